"""A text that is too long, brought within its budget: what matters in it is kept.

Law: a function of the text, the budget and the tool's own call. Never longer than the budget.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rules.conversation import CountTokens, ToolCall
from rules.salience.kinds import SCORES, Kind, ends_of, find_heads, tell_kind
from rules.salience.records import Shorten, excerpt_json
from rules.salience.select import Guide, Selection
from rules.salience.source import read_numbers
from rules.salience.terms import add_terms, find_terms
from rules.salience.units import Units, split_units

LINE_SHARE, PIECE_SHARE, MIN_PIECE_TOKENS = 0.15, 0.05, 24
"""Of the budget: a line that has more is taken in pieces of so much."""
MIN_PIECE_CHARS, MAX_LINE_CHARS = 40, 2000
MAX_WRAP_CHARS = 2000
"""What may stand before and behind JSON that a shell or an agent's tool has wrapped."""
_OPENING = re.compile(r"^[ \t]*[\[{]", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Asked:
    """What is known beside the text: the call that it answers, and whether lines were taken out of it before."""

    call: ToolCall | None = None
    is_tidied: bool = False


def excerpt_text(text: str, limit: int, count: CountTokens, asked: Asked | None = None) -> str | None:
    """At most `limit` tokens of `text`, which has more; None where that leaves no room for a choice."""
    asked = asked or Asked()
    short = excerpt_json(text, limit, count, _shorten_within(count, asked)) or _excerpt_wrapped(
        text, limit, count, asked
    )
    return _excerpt_lines(text, limit, count, asked) if short is None else short


def _excerpt_lines(text: str, limit: int, count: CountTokens, asked: Asked) -> str | None:
    total = count(text)
    token_chars = len(text) / max(total, 1)
    line_chars, piece_chars = (
        min(max(int(max(limit * share, MIN_PIECE_TOKENS) * token_chars), MIN_PIECE_CHARS), MAX_LINE_CHARS)
        for share in (LINE_SHARE, PIECE_SHARE)
    )
    units = split_units(text, line_chars, piece_chars)
    kind = tell_kind(units.texts)
    scores = SCORES[kind](units.texts)
    add_terms(scores, text, units.offsets, find_terms(asked.call))
    guide = Guide(scores, find_heads(kind, units.texts), _number(units, kind, asked))
    return Selection(units, total, guide).write(limit, ends_of(kind), count)


def _number(units: Units, kind: Kind, asked: Asked) -> Sequence[int]:
    """The lines' numbers as the text shows them, else as they are counted, where none was taken out."""
    shown = read_numbers(units.texts) if kind is Kind.SOURCE else ()
    return shown or (() if asked.is_tidied else units.lines)


def _shorten_within(count: CountTokens, asked: Asked) -> Shorten:
    """How a long text within JSON is shortened: as it would be alone, but that its lines have no numbers."""

    def shorten(text: str, limit: int) -> str | None:
        return text if count(text) <= limit else _excerpt_lines(text, limit, count, Asked(asked.call, is_tidied=True))

    return shorten


def _excerpt_wrapped(text: str, limit: int, count: CountTokens, asked: Asked) -> str | None:
    """The same of JSON between short texts, as shells and agents' tools wrap it; None where there is none."""
    opening = _OPENING.search(text, 0, MAX_WRAP_CHARS)
    if opening is None:
        return None
    start = opening.end() - 1
    stop = max(text.rfind(sign, max(start, len(text) - MAX_WRAP_CHARS)) for sign in "]}") + 1
    before, behind = text[:start], text[stop:]
    if stop <= start + 1 or not (before or behind):
        return None
    room = limit - count(before) - count(behind) - 2
    short = excerpt_json(text[start:stop], room, count, _shorten_within(count, asked)) if room > limit // 2 else None
    wrapped = None if short is None else f"{before}{short}{behind}"
    return wrapped if wrapped is not None and count(wrapped) <= limit else None
