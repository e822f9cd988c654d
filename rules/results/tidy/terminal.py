"""What was meant for a terminal: colours, links, titles, overstrikes and progress that paints over itself.

Law: each function returns the same text where nothing of its kind stands in it; none makes a text longer.
"""

import re

from rules.text.chunks import PIECE_CHARS, cut_lines, cut_pieces, holds

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
"""Goes back to the line's start: what follows paints over it, as behind a carriage return."""
_ERASED = "\r \r"
"""The line was erased: as one that was painted over with blanks."""
_EIGHT_BIT = re.compile(r"(?<![\x80-\xff])(?:\x9b[0-9;:?]++[A-Za-z]|\x9d[0-9]{1,4};[^\x07\x1b\x9c\n]*+[\x07\x9c])")
"""CSI and OSC as single characters, with a parameter, and not behind another character of their row: Latin text that
was decoded wrongly ("\xc5\x9bm") is content."""
_OVERSTRIKE = re.compile(r"[^\x08\n](?<!\x08.)\x08(?=[^\x08\n\r])")
_BACKSPACES = re.compile(r"(\x08+)")
MAX_OVERSTRUCK_CHARS = 1024
"""A longer line with runs of backspaces is left alone: no terminal is that wide."""
_FIRST_WIDE = "\u1100"
"""From here on a character may take two columns, and two backspaces."""
_RETURNS = re.compile(r"(?<!\r)\r++\n")
MAX_PAINTED_CHARS = 1024
"""A longer state was not painted on a line of a terminal."""
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
"""What only progress shows: a percentage, n/m with its unit or in brackets, a rate, an ETA, a bar, a spinner. A time
or a fraction alone stands in any text."""
_SPINNER = " |/\\-"
_ERRORS = (
    "error", "fail", "fatal", "exception", "traceback", "panic", "abort", "crash", "denied", "refused", "critical",
    "warn", "cannot", "unable", "invalid", "not found", "no such", "lost", "corrupt", "kill", "timed out", "timeout",
)  # fmt: skip


def strip_escapes(text: str, *, repaint: bool) -> str:
    """The text without ANSI, VT and OSC sequences; a link's text stays, its address goes.

    With `repaint`, a sequence that erases the line becomes a carriage return, for `settle_progress`.
    No escape character is left.
    """
    if holds(text, "\x1b"):
        text = "".join(
            _strip_seven_bit(piece, repaint=repaint) for piece in cut_pieces(text, before="\x1b", size=PIECE_CHARS // 4)
        )
    if not text.isascii() and (holds(text, "\x9b") or holds(text, "\x9d")):
        text = "".join(_EIGHT_BIT.sub("", piece) for piece in cut_pieces(text))
    return text


def _strip_seven_bit(piece: str, *, repaint: bool) -> str:
    if "\x1b" not in piece:
        return piece
    if repaint:
        piece = _REPAINT.sub("\r", piece).replace("\x1b[2K", _ERASED)
        piece = piece.replace("\r\x1b[K", _ERASED).replace("\r\x1b[0K", _ERASED)
    return _ESCAPE.sub("", piece)


def settle_backspaces(text: str) -> str:
    """The text as it stands after its backspaces: bold and underlined words as words, a spinner's last state."""
    if not holds(text, "\b"):
        return text
    return "".join(_settle_piece(piece) if "\b" in piece else piece for piece in cut_pieces(text))


def _settle_piece(piece: str) -> str:
    piece = _OVERSTRIKE.sub("", piece)
    if "\b" not in piece:
        return piece
    return "\n".join(_settle_line(line) if "\b" in line else line for line in piece.split("\n"))


def _settle_line(line: str) -> str:
    if len(line) > MAX_OVERSTRUCK_CHARS or "\r" in line or max(line) >= _FIRST_WIDE:
        return line
    shown, column = "", 0
    for part in _BACKSPACES.split(line):
        if part.startswith("\b"):
            column = max(column - len(part), 0)
        else:
            shown = shown[:column] + part + shown[column + len(part) :]
            column += len(part)
    return shown


def unify_line_ends(text: str) -> str:
    """CRLF, and CRCRLF as some terminals write it, as LF."""
    if not (holds(text, "\r") and holds(text, "\r\n")):
        return text
    if not holds(text, "\r\r"):
        return "".join(piece.replace("\r\n", "\n") for piece in cut_pieces(text))
    return "".join(_RETURNS.sub("\n", piece) for piece in cut_pieces(text))


def settle_progress(text: str) -> str:
    r"""Of a line that painted over itself with carriage returns, the last state.

    Promised: the last state that shows anything stays, whole, and nothing of an earlier one is mixed into it (a
    terminal shows the end of a longer earlier state behind it). An earlier state goes only if the next goes on where it
    ended, or if it shows progress (a percentage, a bar, a rate, an ETA, n/m with a unit) and no words, or the next
    begins with the same words, or it was erased since. One that tells of an error never goes. Any other stays, on a
    line of its own: carriage returns may be line ends.
    """
    if not holds(text, "\r"):
        return text
    return "".join(_settle_lines(piece) if "\r" in piece else piece for piece in cut_lines(text))


def _settle_lines(piece: str) -> str:
    return "\n".join(_settle_states(line) if "\r" in line else line for line in piece.split("\n"))


def _settle_states(line: str) -> str:
    body = line[: _find_returns(line)]
    if "\r" not in body:
        return line
    kept: list[str] = []
    current, erased = "", False
    for states in cut_lines(body, "\r"):
        for state in states.removesuffix("\r").split("\r"):
            if not state or state.isspace():
                erased = erased or bool(state)
                continue
            if current and not _gives_way(current, state, erased=erased):
                kept.append(current)
            current, erased = state, False
    kept.append(current)
    return "\n".join(kept) + line[len(body) :]


def _find_returns(line: str) -> int:
    """Where the carriage returns at the line's end begin."""
    end = len(line)
    while end:
        piece = line[max(end - PIECE_CHARS, 0) : end]
        rest = len(piece.rstrip("\r"))
        end -= len(piece) - rest
        if rest:
            break
    return end


def _gives_way(state: str, to: str, *, erased: bool) -> bool:
    if len(state) > MAX_PAINTED_CHARS:
        return False
    step = _find_step(state)
    if step < 0:
        return _spins(state, to) or (_goes_on(state.rstrip(), to) and (erased or state.rstrip() != to.rstrip()))
    if to.startswith(state.rstrip()):
        return True
    if _tells_error(state):
        return to.startswith(state[:step]) and not _tells_error(state[step:])
    return erased or _begins_like(state, to[:MAX_PAINTED_CHARS], step)


def _find_step(state: str) -> int:
    """Where what shows progress begins, or -1."""
    percent = state.find("%")
    if percent < 1 or not state[percent - 1].isdigit():
        step = _STEP.search(state)
        if step is None:
            return -1
        percent = step.end() if step[0].endswith("%") else step.start()
    return len(state[:percent].rstrip("0123456789. %"))


def _tells_error(text: str) -> bool:
    lowered = text.lower()
    return any(word in lowered for word in _ERRORS)


def _goes_on(state: str, to: str) -> bool:
    cut_number = state[-1:].isdigit() and to[len(state) : len(state) + 1].isdigit()
    return to.startswith(state) and not cut_number


def _spins(state: str, to: str) -> bool:
    """Whether `to` says what `state` does, or goes on there, behind another spinner of one character."""
    said = state.strip(_SPINNER)
    spinner = len(state.strip()) - len(said)
    return (spinner == 2 and state != to if said else spinner == 1) and _goes_on(said, to.lstrip(_SPINNER))


def _begins_like(state: str, to: str, step: int) -> bool:
    """Whether `to` has the words that stand before the step in `state`; where none do, its first word."""
    words = _WORD.findall(state, 0, step)
    if words and to.startswith(state[:step]):
        return True
    words = words or _WORD.findall(state)[:1]
    return _WORD.findall(to)[: len(words)] == words
