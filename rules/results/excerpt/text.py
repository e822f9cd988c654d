"""A text that is too long, brought within its budget: what matters in it is kept.

Law: a function of the text, the budget and the tool's own call. Never longer than the budget.
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

LINE_SHARE, MIN_LINE_TOKENS = 0.15, 24
"""Of the budget: a line that has more is taken in pieces of so much."""
MIN_LINE_CHARS, MAX_LINE_CHARS = 40, 2000


@dataclass(frozen=True, slots=True)
class Asked:
    """What is known beside the text.

    `call` is the call that it answers. `count` counts the tokens that markers name, if the limit is in another unit.
    `is_numbered` says whether a reader could ask for lines by their number.
    """

    call: ToolCall | None = None
    count: CountTokens | None = None
    is_numbered: bool = True


def excerpt_text(text: str, limit: int, measure: Measure, asked: Asked) -> str | None:
    """At most `limit` of `text` by `measure`, which has more; None where that leaves no room for a choice.

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
    """The lines' numbers as the text shows them, else as they are counted, if a reader could ask for them."""
    shown = read_numbers(units.texts) if kind is SOURCE else ()
    return shown or (units.lines if asked.is_numbered else ())


def _shorten_within(measure: Measure, asked: Asked) -> Shorten:
    """How a long text within JSON is shortened: as it would be alone, but that its lines have no numbers."""
    within = replace(asked, is_numbered=False)

    def shorten(text: str, limit: int) -> str | None:
        return text if measure(text) <= limit else _excerpt_lines(text, limit, measure, within)

    return shorten
