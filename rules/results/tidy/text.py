"""Rung 1: a tool result without what nobody reads, lossless or declared.

Law: by the text alone. Never longer than the input; idempotent; the same object if nothing changed. These functions
know texts only: `rule.py` decides which results are tidied, and whether it is worth it.
"""

from collections.abc import Callable

from rules.results.tidy.json_spacing import may_be_json, shorten_json
from rules.results.tidy.terminal import settle_progress, strip_escapes
from rules.text.chunks import cut_pieces
from rules.treatment import Tidying


def tidy_text(text: str, tidying: Tidying, *, is_file: Callable[[], bool], fits: Callable[[str], bool]) -> str:
    """The text without what the switches of `tidying` name; the same object if there is nothing of that.

    `is_file` says that a file was read: its JSON stays as it is, because the agent may copy it into an exact edit.
    `fits` says whether a text is within its budget; JSON is written anew only if it then fits, because a reader must
    find the excerpt of a truncated text again to the letter. Each is asked once at most.
    A text of which only white space would be left stays unchanged: some upstreams refuse an empty one.
    """
    tidied = text
    if tidying.ansi:
        tidied = strip_escapes(tidied, repaint=tidying.progress)
    if tidying.progress:
        tidied = settle_progress(tidied)
    if may_be_json(tidied) and not is_file():
        short = shorten_json(tidied, spaces=tidying.json, tables=tidying.tables)
        tidied = short if short is not None and fits(short) else tidied
    return text if tidied == text or _is_blank(tidied) else tidied


def _is_blank(text: str) -> bool:
    return all(not piece or piece.isspace() for piece in cut_pieces(text))
