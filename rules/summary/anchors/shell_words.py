"""What a shell itself reads of a command line: quoted texts, comments and what is fed to programs are blanked.

Law: linear. The blanked line is as long as the line: each place is the same in both.
"""

import re

_HEREDOC = re.compile(
    r"(?<!<)<<-?[ \t]{0,4}(?P<quote>['\"]?)\\?(?P<end>\w{1,40})(?P=quote)(?P<rest>[^\n]*)\n"
    r"(?P<body>.*?(?:^[ \t]{0,40}(?P=end)[ \t]{0,8}$|\Z))",
    re.DOTALL | re.MULTILINE,
)
_INNER = re.compile(r"\b(?:ba|z|da|k)?sh[ ]{1,4}-[a-z]{0,4}c[ ]{1,4}(?P<quote>['\"])(?P<line>[^'\"]*)(?P=quote)")
"""A line of a shell in a line of a shell."""
_TEXT = re.compile(r"\\.|'[^']*(?:'|\Z)|\"(?:\\.|[^\"\\])*(?:\"|\Z)|(?:^|(?<=\s))#[^\n]*", re.DOTALL | re.MULTILINE)
_BLANK = "_"


def blank_texts(command: str) -> str:
    """The command line with what is only text in it blanked."""
    command = _HEREDOC.sub(_blank_body, command)
    return _TEXT.sub(_blank, _INNER.sub(_open, command))


def _blank_body(found: re.Match[str]) -> str:
    return found[0][: found.start("body") - found.start()] + " " * len(found["body"])


def _open(found: re.Match[str]) -> str:
    """The inner line as one of its own, between line ends in place of its quotes."""
    return found[0][: found.start("line") - found.start() - 1] + "\n" + found["line"] + "\n"


def _blank(found: re.Match[str]) -> str:
    return _BLANK * len(found[0])
