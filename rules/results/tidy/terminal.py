"""Removes output meant for a terminal: colours, links, titles, and progress lines that overwrite themselves.

Law: each function returns the same text if it finds nothing to remove; none makes a text longer.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

from rules.text.head_tail import PIECE_CHARS, cut_lines, cut_pieces, holds

# Source: ECMA-48 (control functions), xterm's ctlseqs (OSC ended by BEL), OSC 8 hyperlinks as cargo and gcc write them.
_ESCAPE = re.compile(
    r"\x1b(?:"
    r"\[[0-?]*+[ -/]*+[@-~]"  # CSI: colours, cursor
    r"|\][^\x07\x1b\n]*+(?:\x07|\x1b\\)"  # OSC: titles, hyperlinks
    r"|[PX^_][^\x07\x1b\n]*+\x1b\\"  # DCS, SOS, PM, APC
    r"|[!-/]++[0-~]| [FGLMN]"  # character sets
    r"|[=>78cM]"
    r")?"
)
_REPAINT = re.compile(r"\x1b\[[01]?G")
"""Moves to the start of the line, like a carriage return: the text after it overwrites the line."""
_ERASED = "\r \r"
"""Replaces a sequence that erases the line: the same as overwriting the line with blanks."""
_HUNK = "@@ -"
MAX_STATE_CHARS = 1024
"""Maximum length of one state of a progress line; a longer text is not progress. Chosen: wider than any terminal."""
MANY_FORMS = 2
"""Forms of progress that are distinguished in one line. Two are enough: the only question is whether there is more than
one."""
_WORD = re.compile(r"(?<![^\W\d_])(?!(?i:eta)\b)[^\W\d_]{3,}+")
_STEP = re.compile(
    r"\d ?%"
    r"|\d ?[kKMGT]?(?:i?B)? ?/ ?\d[\d.,]*+ ?(?:[kKMGT]?i?B|bytes|files|objects|packages|items|layers)\b"
    r"|[\[(]\d++/\d++[\])]"
    r"|\d ?(?:[kKMGT]?i?B|it)/s\b|\ds/it\b"
    r"|--:--|\b(?i:eta)\b"
    r"|\[(?=[^\]]{4})[=#>*.]*+[ .\-]*+\]|(?<![=#])[=#]{3,}+>|[\u2580-\u259f]"
    r"|[\u25d0-\u25d5\u2800-\u28ff](?:\s|$)"
)
"""Signs of progress: a percentage, n/m with its unit or in brackets, a rate, an ETA, a bar, a spinner. A time or a
fraction alone is not enough, as it occurs in any text."""
_ERRORS = (
    "error", "fail", "fatal", "exception", "traceback", "panic", "abort", "crash", "denied", "refused", "critical",
    "warn", "cannot", "unable", "invalid", "not found", "no such", "lost", "corrupt", "kill", "timed out", "timeout",
)  # fmt: skip


def strip_escapes(text: str, *, repaint: bool) -> str:
    """The text without ANSI, VT and OSC sequences, and without any escape character. Of a link, the text stays.

    With `repaint`, sequences that erase the line or move to its start become carriage returns, for `settle_progress`.
    """
    if not holds(text, "\x1b"):
        return text
    pieces = cut_pieces(text, before="\x1b", size=PIECE_CHARS // 4)
    return "".join(_strip_piece(piece, repaint=repaint) if "\x1b" in piece else piece for piece in pieces)


def _strip_piece(piece: str, *, repaint: bool) -> str:
    if repaint:
        piece = _REPAINT.sub("\r", piece).replace("\x1b[2K", _ERASED)
        piece = piece.replace("\r\x1b[K", _ERASED).replace("\r\x1b[0K", _ERASED)
    return _ESCAPE.sub("", piece)


def settle_progress(text: str) -> str:
    r"""The text with only the last state of each progress line, which overwrote itself with carriage returns.

    A line is progress if all its states but the last show progress (a percentage, a bar, a rate, an ETA, n/m with a
    unit) and none of them mentions an error. Also, either all states have the same words before the sign of progress,
    or the line is erased in between. Any other line stays unchanged, as its carriage returns may be line ends. So does
    a text that contains a diff, as it may be a patch.
    """
    if not holds(text, "\r") or holds(text, _HUNK):
        return text
    return "".join(_settle_lines(piece) if "\r" in piece else piece for piece in cut_lines(text))


def _settle_lines(piece: str) -> str:
    return "\n".join(_settle_line(line) if "\r" in line else line for line in piece.split("\n"))


def _settle_line(line: str) -> str:
    body = line.rstrip("\r")
    is_erased = any(map(str.isspace, _cut_states(body)))
    forms: set[tuple[str, ...]] = set()
    last = ""
    for state, last in pairwise(state for state in _cut_states(body) if any(map(str.isalnum, state))):
        form = _read_form(state)
        if form is not None and len(forms) < MANY_FORMS:
            forms.add(form)
        elif form is None and not last.startswith(state.rstrip()):  # a state that the next one repeats is not lost
            return line
    if not forms or not (is_erased or (len(forms) == 1 and _begins_with(last, *forms))):
        return line
    return last + line[len(body) :]


def _cut_states(body: str) -> Iterator[str]:
    """The states of a line, one at a time, because there may be millions."""
    return (state for piece in cut_lines(body, "\r") for state in piece.split("\r"))


def _read_form(state: str) -> tuple[str, ...] | None:
    """The words before the sign of progress, else the first one; None if the state is an error or shows no progress."""
    step = _STEP.search(state) if len(state) <= MAX_STATE_CHARS else None
    lowered = state[:MAX_STATE_CHARS].lower()
    if step is None or any(word in lowered for word in _ERRORS):
        return None
    return tuple(_WORD.findall(state, 0, step.start()) or _WORD.findall(state)[:1])


def _begins_with(state: str, words: tuple[str, ...]) -> bool:
    return tuple(_WORD.findall(state[:MAX_STATE_CHARS])[: len(words)]) == words
