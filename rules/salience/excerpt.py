"""A text that is too long, brought within its budget: what matters in it is kept.

Law: a function of the text, the budget and the tool's own call. Never longer than the budget.
"""

from rules.conversation import CountTokens, ToolCall
from rules.salience.kinds import SCORES, ends_of, tell_kind
from rules.salience.records import excerpt_json
from rules.salience.select import Selection
from rules.salience.terms import add_terms, find_terms
from rules.salience.units import split_units

UNIT_CHARS_PER_TOKEN = 0.6
MIN_UNIT_CHARS, MAX_UNIT_CHARS = 240, 2000
"""A line longer than so many characters for each token of the budget is kept or left out in pieces."""


def excerpt_text(text: str, limit: int, count: CountTokens, *, call: ToolCall | None = None) -> str | None:
    """At most `limit` tokens of `text`, which has more; None where that leaves no room for a choice."""
    total = count(text)
    short = excerpt_json(text, limit, count)
    if short is not None:
        return short
    units = split_units(text, min(max(int(limit * UNIT_CHARS_PER_TOKEN), MIN_UNIT_CHARS), MAX_UNIT_CHARS))
    kind = tell_kind(units.texts)
    scores = SCORES[kind](units.texts)
    add_terms(scores, text, units.offsets, find_terms(call))
    return Selection(units, total, scores).write(limit, ends_of(kind), count)
