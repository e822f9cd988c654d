"""Rung 1: removes what nobody reads from a tool result.

Law: depends on the text and the settings alone. Never longer than the input; idempotent; the same object if nothing
changed. `rule.py` decides which results are tidied, and `edit.py` whether it saves enough.
"""

from collections.abc import Callable

from rules.results.tidy.json_spacing import may_be_json, shorten_json
from rules.results.tidy.terminal import settle_progress, strip_escapes
from rules.text.head_tail import cut_pieces
from rules.treatment import Tidying


def tidy_text(text: str, tidying: Tidying, *, is_file: Callable[[], bool], fits: Callable[[str], bool]) -> str:
    """Remove from a text what the switches of `tidying` say. Returns the same object if there is nothing to remove.

    is_file: whether the text is a file that was read. Its JSON stays unchanged, as the agent may copy it into an exact
        edit. Called at most once.
    fits: whether a text is within its budget. JSON is shortened only if the short form fits. Otherwise it is truncated,
        and a reader must be able to find the excerpt again in the original. Called at most once.

    If only white space would be left, the text stays unchanged, because some upstreams refuse an empty text.
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
