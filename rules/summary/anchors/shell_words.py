"""Blank the parts of a command line that the shell does not execute: quoted texts, comments and here-documents.

Law: linear. The blanked line is as long as the original, so an index means the same place in both.
"""

import re

_HEREDOC = re.compile(
    r"(?<!<)<<-?[ \t]{0,4}(?P<quote>['\"]?)\\?(?P<end>\w{1,40})(?P=quote)(?P<rest>[^\n]*)\n"
    r"(?P<body>.*?(?:^[ \t]{0,40}(?P=end)[ \t]{0,8}$|\Z))",
    re.DOTALL | re.MULTILINE,
)
_INNER = re.compile(r"\b(?:ba|z|da|k)?sh[ ]{1,4}-[a-z]{0,4}c[ ]{1,4}(?P<quote>['\"])(?P<line>[^'\"]*)(?P=quote)")
"""A quoted command line that another shell executes, as in `sh -c '...'`."""
_TEXT = re.compile(r"\\.|'[^']*(?:'|\Z)|\"(?:\\.|[^\"\\])*(?:\"|\Z)|(?:^|(?<=\s))#[^\n]*", re.DOTALL | re.MULTILINE)
_BLANK = "_"


def blank_texts(command: str) -> str:
    """Return the command line with all text that is not executed blanked."""
    command = _HEREDOC.sub(_blank_body, command)
    return _TEXT.sub(_blank, _INNER.sub(_open, command))


def _blank_body(found: re.Match[str]) -> str:
    return found[0][: found.start("body") - found.start()] + " " * len(found["body"])


def _open(found: re.Match[str]) -> str:
    """The inner command line with line breaks in place of its quotes, so that it is read as a line of its own."""
    return found[0][: found.start("line") - found.start() - 1] + "\n" + found["line"] + "\n"


def _blank(found: re.Match[str]) -> str:
    return _BLANK * len(found[0])
