"""Rung 2: a tool result over its budget keeps what matters of it, or head and tail.

Law: by the result and its own call alone, never by its age or its place, so the forwarded prefix stays as it is. Never
a tool call's arguments. Never longer than before. A marker says how much is missing, unless it would cost more tokens
than the text does.
"""

from collections.abc import Callable, Sequence

from rules.conversation import Conversation, CountTokens, Message, Outcome, ToolCall
from rules.head_tail import Measure, measure_bytes, take_head, truncate_text
from rules.places import Place
from rules.policy import Policy
from rules.results import Editor, Result, Work, edit_results
from rules.salience.excerpt import Asked, excerpt_text
from rules.treatment import Budget, Truncation

MIN_SHARE = 16
"""Where each of many texts would get less than this, they become one text: none is emptied."""
BYTE_ROUNDS = 4
"""Budgets in tokens that are tried for one in bytes."""
BYTE_SLACK = 0.97
"""Of the tokens that a budget in bytes should leave: another excerpt may have longer words."""

MIN_USED_SHARE = 0.5
"""Of a budget in bytes. Where an excerpt uses less, head and tail say more."""
MARK = "[trimtab: "

Shorten = Callable[[str, int], str]
"""A text within a limit."""


def shorten_text(
    text: str, limit: int, count: CountTokens, *, call: ToolCall | None = None, is_tidied: bool = False
) -> str:
    """What is kept of a result's text, at most `limit` tokens; the same text where it fits.

    `call` is the call that the result answers, where it is known; `is_tidied` says that lines may have been taken out
    before, so that their numbers are not those of the tool's output.
    """
    if count(text) <= limit:
        return text
    short = excerpt_text(text, limit, count, Asked(call, is_tidied))
    return truncate_text(text, limit, count) if short is None or count(short) > limit else short


def _truncate(result: Result, count: CountTokens) -> tuple[str, ...]:
    """The result's texts within its budget."""
    return truncate_result(result, result.budget, count)


def truncate_result(result: Result, budget: Budget, count: CountTokens) -> tuple[str, ...]:
    """The result's texts within a budget, which may be another than its own; as its treatment truncates."""
    call = result.call
    is_salient = result.treatment.truncation is Truncation.SALIENT

    def shorten(text: str, limit: int) -> str:
        if not is_salient:
            return truncate_text(text, limit, count)
        return shorten_text(text, limit, count, call=call, is_tidied=result.message.edited)

    def shorten_to_bytes(text: str, limit: int) -> str:
        return _shorten_to_bytes(text, limit, count, call) if is_salient else _truncate_bytes(text, limit)

    texts = result.message.texts
    short = share_limit(texts, budget.max_tokens, count, shorten)
    if budget.max_bytes is None:
        return short
    small = share_limit(short, budget.max_bytes, measure_bytes, shorten_to_bytes)
    if sum(map(count, small)) <= sum(map(count, texts)):
        return small
    return share_limit(
        short, budget.max_bytes, measure_bytes, lambda text, limit: take_head(text, limit, measure_bytes)
    )


def _truncate_bytes(text: str, limit: int) -> str:
    """Head and tail within so many bytes."""
    return truncate_text(text, limit, measure_bytes, "bytes")


def _shorten_to_bytes(text: str, limit: int, count: CountTokens, call: ToolCall | None) -> str:
    """What is kept of a text within so many bytes, found by budgets in tokens; head and tail where that is little."""
    max_tokens = count(text)
    size = measure_bytes(text)
    best, best_size = "", 0
    for _ in range(BYTE_ROUNDS):
        max_tokens = max(int(max_tokens * BYTE_SLACK * limit / max(size, 1)), 1)
        short = shorten_text(text, max_tokens, count, call=call)
        size = measure_bytes(short)
        if best_size < size <= limit:
            best, best_size = short, size
        if limit * MIN_USED_SHARE <= size <= limit:
            break
    # Blanks and rules cost bytes, but hardly a token.
    is_enough = best_size >= limit * MIN_USED_SHARE and MARK in best
    return best if is_enough else _truncate_bytes(text, limit)


def share_limit(texts: tuple[str, ...], limit: int, measure: Measure, shorten: Shorten) -> tuple[str, ...]:
    """Several texts within one limit: the short ones whole, the long ones an equal share of what is left."""
    sizes = [measure(text) for text in texts]
    if sum(sizes) <= limit:
        return texts
    if limit < MIN_SHARE * len(texts):
        return (shorten("\n".join(texts), limit),)
    short = list(texts)
    left = limit
    for rank, index in enumerate(sorted(range(len(texts)), key=lambda index: sizes[index])):
        share = left // (len(texts) - rank)
        if sizes[index] > share:
            short[index] = shorten(texts[index], share)
        left -= min(measure(short[index]), left)
    return tuple(short)


def _wants(messages: Sequence[Message], places: Sequence[Place]) -> list[Place]:
    return [place for place in places if _may_exceed(messages[place.at], place.treatment.budget)]


def _may_exceed(message: Message, budget: Budget) -> bool:
    if message.tokens > budget.max_tokens:
        return True
    return budget.max_bytes is not None and sum(map(measure_bytes, message.texts)) > budget.max_bytes


def _describe(changed: Sequence[Place]) -> str:
    """Without their limits: an error's is twice another's, and the model's tokens are others than ours."""
    return f"{len(changed)} tool results over their limits"


TRUNCATE = Editor("truncate", _wants, _truncate, _describe)


def truncate_tool_results(conversation: Conversation, *, policy: Policy, work: Work) -> Outcome:
    """Truncate every tool result over its budget, but those exempt.

    Raises LargeWorkError where `work` does not allow for so much.
    """
    return edit_results(conversation, policy, (TRUNCATE,), work)
