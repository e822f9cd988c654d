"""Rung 2: a tool result over its budget keeps the lines that matter, or its head and its tail.

Law: depends only on the result and its own call, never on its age or its position. So the forwarded prefix does not
change. Arguments of tool calls are never cut. A result never gets longer. A marker says how much is missing, unless the
marker would cost more tokens than the whole text.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rules.conversation import CountTokens, Message, Telling
from rules.results.calls import Place
from rules.results.edit import Editor, Result
from rules.results.excerpt.text import Asked, excerpt_text
from rules.text.head_tail import Measure, measure_bytes, take_head, truncate_text
from rules.text.markers import READ_PART
from rules.text.payloads import hide_payloads
from rules.treatment import Budget, Truncation

MIN_SHARE = 16
"""If the budget gives each text less than this, the texts are joined into one. Chosen: otherwise some would become
empty."""
BYTES_A_UNIT = 4
"""A limit in bytes is counted in units of 4 bytes. Chosen: a token has about 4 bytes, so constants that are given in
tokens, such as the cost of a marker, can be used for both kinds of limit."""

Shorten = Callable[[str, Budget], str]
"""Shortens a text to a budget."""


@dataclass(frozen=True, slots=True)
class _Gauge:
    """A budget in tokens and bytes as one limit: `measure` of a text is within it exactly if the text is within both.

    unit: name of the unit, tokens or bytes, whose limit is tighter for this text.
    count: counts that unit.
    """

    limit: int
    measure: Measure
    unit: str
    count: Measure


def _gauge(text: str, budget: Budget, count: CountTokens) -> _Gauge:
    max_tokens, max_bytes = max(budget.max_tokens, 1), budget.max_bytes
    if max_bytes is None:
        return _Gauge(budget.max_tokens, count, "tokens", count)
    whole = count(text), measure_bytes(text)
    is_by_bytes = whole[1] * max_tokens > whole[0] * max_bytes
    limit = max(max_bytes // BYTES_A_UNIT, 1) if is_by_bytes else max_tokens

    def measure(piece: str) -> int:
        tokens, size = whole if piece is text else (count(piece), measure_bytes(piece))
        return max(-(-tokens * limit // max_tokens), -(-size * limit // max_bytes))

    return _Gauge(limit, measure, "bytes", measure_bytes) if is_by_bytes else _Gauge(limit, measure, "tokens", count)


def _excerpt(text: str, gauge: _Gauge, asked: Asked) -> str:
    """The lines of a text that matter; its head and tail if the limit is too small for that."""
    short = excerpt_text(text, gauge.limit, gauge.measure, asked)
    return _take_ends(text, gauge) if short is None or gauge.measure(short) > gauge.limit else short


def _take_ends(text: str, gauge: _Gauge) -> str:
    return truncate_text(text, gauge.limit, gauge.measure, gauge.unit, gauge.count, READ_PART)


def _truncate(result: Result, count: CountTokens) -> tuple[str, ...]:
    """The result's texts within its own budget."""
    return truncate_result(result, result.budget, count)


def truncate_result(result: Result, budget: Budget, count: CountTokens) -> tuple[str, ...]:
    """The result's texts, each truncated at most once, to a budget, in the way that the result's treatment says.

    Never more tokens than before: if markers would cost more than the texts, only the beginning of each is kept.
    """
    asked = Asked(result.call, count)

    def shorten(text: str, budget: Budget) -> str:
        gauge = _gauge(text, budget, count)
        if gauge.measure(text) <= gauge.limit:
            return text
        hidden = hide_payloads(text)
        if hidden.text is not text:
            gauge = _gauge(hidden.text, budget, count)
            if gauge.measure(hidden.text) <= gauge.limit:
                return hidden.text
        if result.treatment.truncation is not Truncation.SALIENT:
            return _take_ends(hidden.text, gauge)
        return _excerpt(hidden.text, gauge, replace(asked, is_numbered=not hidden.moves_lines))

    def take_beginning(text: str, budget: Budget) -> str:
        text = hide_payloads(text).text
        gauge = _gauge(text, budget, count)
        return take_head(text, gauge.limit, gauge.measure)

    texts = result.message.texts
    short = share_budget(texts, budget, count, shorten)
    if sum(map(count, short)) <= sum(map(count, texts)):
        return short
    return share_budget(texts, budget, count, take_beginning)


def share_budget(texts: tuple[str, ...], budget: Budget, count: CountTokens, shorten: Shorten) -> tuple[str, ...]:
    """Shorten several texts to one budget: short ones stay whole, long ones get equal shares of what is left.

    May return one text instead of many, see MIN_SHARE.
    """
    measures = (count,) if budget.max_bytes is None else (count, measure_bytes)
    limits = (budget.max_tokens,) if budget.max_bytes is None else (budget.max_tokens, budget.max_bytes)
    sizes = [[measure(text) for measure in measures] for text in texts]
    if all(sum(column) <= limit for column, limit in zip(zip(*sizes, strict=True), limits, strict=False)):
        return texts
    if min(limits) < MIN_SHARE * len(texts):
        return (shorten("\n".join(texts), budget),)
    short = list(texts)
    left = list(limits)
    tightness = [max(size / limit for size, limit in zip(each, limits, strict=True)) for each in sizes]
    for rank, index in enumerate(sorted(range(len(texts)), key=tightness.__getitem__)):
        shares = [each // (len(texts) - rank) for each in left]
        if any(size > share for size, share in zip(sizes[index], shares, strict=True)):
            short[index] = shorten(texts[index], Budget(*shares))
        left = [each - min(measure(short[index]), each) for each, measure in zip(left, measures, strict=True)]
    return tuple(short)


def _wants(messages: Sequence[Message], places: Sequence[Place]) -> list[Place]:
    return [place for place in places if _may_exceed(messages[place.at], place.treatment.budget)]


def _may_exceed(message: Message, budget: Budget) -> bool:
    if message.tokens > budget.max_tokens:
        return True
    return budget.max_bytes is not None and sum(map(measure_bytes, message.texts)) > budget.max_bytes


def _describe(number: int) -> str:
    """Does not name the limits: those of errors are larger, and the model's tokens differ from the counted ones."""
    return f"{number} tool results over their limits"


_TELLING = Telling(
    "tool result",
    "{what} {was} longer than its tool may fill, and {was} shortened, {saved}: the lines that matter most stay, and a"
    " marker says how much is missing{hidden}.",
)
TRUNCATE = Editor("truncate", _wants, _truncate, _describe, _TELLING)
