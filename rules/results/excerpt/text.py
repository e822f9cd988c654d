"""Shortens a text to a budget: what matters in it is kept.

Law: a function of the text, the budget and the tool's own call. Never over the budget.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rules.conversation import CountTokens, ToolCall
from rules.results.excerpt.json.document import Shorten, excerpt_json
from rules.results.excerpt.kinds import SOURCE, Kind, tell_kind
from rules.results.excerpt.lines import Units, split_units
from rules.results.excerpt.scores.source import read_numbers
from rules.results.excerpt.select import Guide, Selection
from rules.results.excerpt.terms import add_terms, find_terms
from rules.results.excerpt.windows import Scan, is_large, split_large, tell_large_kind
from rules.text.head_tail import Measure
from rules.text.payloads import hide_payloads

LINE_SHARE, MIN_LINE_TOKENS = 0.15, 24
"""A line that costs more than this share of the budget, and more than 24 tokens, is cut into pieces. Chosen: one line
must not take most of the budget."""
MIN_LINE_CHARS, MAX_LINE_CHARS = 40, 2000
"""Bounds of the length of such a piece. Chosen."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The facts that the excerpt of a text depends on.

    call: the call that it answers, if any.
    count: counts tokens for the markers; None if the limit is in tokens.
    is_numbered: whether a reader can ask for lines by their numbers.
    """

    call: ToolCall | None = None
    count: CountTokens | None = None
    is_numbered: bool = True


def excerpt_text(text: str, limit: int, measure: Measure, asked: Asked) -> str | None:
    """An excerpt of a longer text, of at most `limit` by `measure`; None if the limit leaves no room for a choice.

    `measure` counts tokens, or units of about that size.
    """
    short = excerpt_json(text, limit, measure, _shorten_within(measure, asked))
    return _excerpt_lines(text, limit, measure, asked) if short is None else short


def _excerpt_lines(text: str, limit: int, measure: Measure, asked: Asked) -> str | None:
    total = measure(text)
    token_chars = len(text) / max(total, 1)
    line_chars = min(max(int(max(limit * LINE_SHARE, MIN_LINE_TOKENS) * token_chars), MIN_LINE_CHARS), MAX_LINE_CHARS)
    terms = find_terms(asked.call)
    if is_large(text):
        kind = tell_large_kind(text, line_chars)
        units = split_large(text, kind, Scan(line_chars, limit, int(limit * token_chars), terms))
    else:
        units = split_units(text, line_chars)
        kind = tell_kind(units.texts)
    scores = kind.score(units.texts)
    add_terms(scores, text, units.offsets, terms)
    guide = Guide(scores, _number(units, kind, asked))
    tokens = None if asked.count is None else asked.count(text)
    return Selection(units, total, guide, tokens).write(limit, kind.ends, measure)


def _number(units: Units, kind: Kind, asked: Asked) -> Sequence[int]:
    """The numbers that the text shows, else those that are counted; empty if a reader cannot ask for lines."""
    shown = read_numbers(units.texts) if kind is SOURCE else ()
    return shown or (units.lines if asked.is_numbered else ())


def _shorten_within(measure: Measure, asked: Asked) -> Shorten:
    """Shortens a long text within JSON as if it were alone, but markers do not name line numbers."""
    within = replace(asked, is_numbered=False)

    def shorten(text: str, limit: int) -> str | None:
        if measure(text) <= limit:
            return text
        text = hide_payloads(text).text
        return text if measure(text) <= limit else _excerpt_lines(text, limit, measure, within)

    return shorten
