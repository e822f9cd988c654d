"""Rung 1: a tool result without what nobody reads. Lossless, or declared where the text is shortened.

Law: by the text alone. Never longer; the same object where nothing changed; what came out comes out of a second
pass as it is. Text functions only: which results, and whether it is worth it, others decide.
"""

import re
from collections.abc import Callable

from rules.results.tidy.base64 import name_base64
from rules.results.tidy.diffs import change_outside_diffs
from rules.results.tidy.json_spacing import Body, find_json, shorten_json
from rules.results.tidy.repeats import fold_repeats
from rules.results.tidy.terminal import settle_backspaces, settle_progress, strip_escapes, unify_line_ends
from rules.text.chunks import cut_pieces, holds
from rules.treatment import Tidying

MAX_PASSES = 4
"""Until nothing changes any more. A text that is still not settled then was made for it, and stays as it came."""
_BLANK_LINES = re.compile(r"\n{3,}+")


def tidy_text(text: str, tidying: Tidying, *, is_file: bool, fits: Callable[[str], bool]) -> str:
    """The text without what the switches of `tidying` name; the same object where that is nothing.

    With `is_file`, a code file was read: its lines may be copied into an exact edit, so only colours and long base64
    go. `fits` says whether a text is within its budget; JSON is written anew only where it then fits, because an
    excerpt of what is truncated must be found again to the letter. It is asked once at most for each JSON text.
    A text of which only blanks would be left stays as it came: some upstreams refuse an empty one.
    """
    answers = _Answers(fits)
    tidied = text
    for _ in range(MAX_PASSES):
        again = _tidy_file(tidied, tidying) if is_file else _tidy_once(tidied, tidying, answers)
        if again == tidied:
            return text if _is_blank(tidied) else tidied
        tidied = again
    return text


def _is_blank(text: str) -> bool:
    return all(not piece or piece.isspace() for piece in cut_pieces(text))


class _Answers:
    """What earlier passes found out: which texts fit, which JSON is in its last form."""

    def __init__(self, fits: Callable[[str], bool]) -> None:
        self._fits = fits
        self._known: dict[str, bool] = {}
        self.written: set[str] = set()

    def fits(self, text: str) -> bool:
        if text not in self._known:
            self._known[text] = self._fits(text)
        return self._known[text]


def _tidy_file(text: str, tidying: Tidying) -> str:
    if tidying.ansi:
        text = strip_escapes(text, repaint=False)
    return name_base64(text, is_file=True) if tidying.base64 else text


def _tidy_once(text: str, tidying: Tidying, answers: _Answers) -> str:
    text = _settle_terminal(text, tidying)
    if tidying.base64:
        text = name_base64(text, is_file=False)
    body = find_json(text, answers.written)
    if body:
        return _shorten_body(text, body, tidying, answers)
    if tidying.blanks:
        text = change_outside_diffs(text, strip_blanks)
    return change_outside_diffs(text, fold_repeats) if tidying.repeats else text


def _shorten_body(text: str, body: Body, tidying: Tidying, answers: _Answers) -> str:
    short = shorten_json(body, spaces=tidying.json, tables=tidying.tables)
    if short is None:
        return text
    whole = text[: body.start] + short + text[body.stop :]
    if not answers.fits(whole):
        return text
    answers.written.add(short)
    return whole


def _settle_terminal(text: str, tidying: Tidying) -> str:
    if tidying.ansi:
        text = settle_backspaces(strip_escapes(text, repaint=tidying.progress))
    if tidying.line_ends:
        text = change_outside_diffs(text, unify_line_ends)
    return change_outside_diffs(text, settle_progress) if tidying.progress else text


def strip_blanks(text: str) -> str:
    """The text without blanks at the ends of lines, and with one blank line where several stood.

    Tabs at the ends of lines stay where most lines hold tabs: they are empty cells.
    """
    if holds(text, " \n") or holds(text, "\t\n") or text.endswith((" ", "\t")):
        text = "".join(map(_strip_lines, cut_pieces(text)))
    if holds(text, "\n\n\n"):
        text = "".join(_BLANK_LINES.sub("\n\n", piece) for piece in cut_pieces(text))
    return text


def _strip_lines(piece: str) -> str:
    lines = piece.split("\n")
    tabbed = "\t" in piece and 2 * sum("\t" in line for line in lines) > len(lines)
    blanks = " " if tabbed else " \t"
    return "\n".join([line.rstrip(blanks) for line in lines])
