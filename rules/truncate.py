"""Rung 2: a tool result over its budget keeps its head and its tail.

Law: by the message alone, never by its age or its place, so the forwarded prefix stays as it is. Never a tool call's
arguments. Never longer than before. The marker says how much is missing.
"""

from dataclasses import dataclass, replace
from typing import Protocol

from rules.conversation import RESULT_ROLES, Conversation, CountTokens, Decision, Message, Outcome, ToolCall
from rules.head_tail import Measure, measure_bytes, truncate_text
from rules.salience.excerpt import excerpt_text

MIN_SHARE = 16
"""Where each of many texts would get less than this, they become one text: none is emptied."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What one tool result may cost: `max_tokens`, and `max_bytes` of UTF-8 where set."""

    max_tokens: int
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Shortened:
    """What became of a result's texts: the new ones, and the tokens saved; none saved where it was left alone."""

    texts: tuple[str, ...]
    saved_tokens: int


class Memo(Protocol):
    """What became of results, by digest and budget. Only a matter of speed: what it forgets is worked out again."""

    def get(self, key: tuple[bytes, Budget]) -> Shortened | None:
        """What was kept under `key`, if anything."""

    def __setitem__(self, key: tuple[bytes, Budget], shortened: Shortened) -> None:
        """Keep it for as long as there is room."""


def truncate_tool_results(
    conversation: Conversation, *, budget: Budget, count: CountTokens, memo: Memo | None = None
) -> Outcome:
    """Truncate every tool result over `budget`; `memo` may hold what an earlier call worked out."""
    messages = list(conversation.messages)
    changed: list[int] = []
    before = after = 0
    for index, message in enumerate(messages):
        if message.role not in RESULT_ROLES or not _may_exceed(message, budget):
            continue
        short = _recall(message, budget, count, memo)
        if short is not message:
            messages[index] = short
            changed.append(index)
            before += message.tokens
            after += short.tokens
    if not changed:
        return Outcome(conversation)
    limit = f"{budget.max_tokens} tokens" if budget.max_bytes is None else f"{budget.max_bytes} bytes"
    reason = f"{len(changed)} tool results over {limit}"
    decision = Decision("truncate", reason, before, after, len(changed), changed[0])
    return Outcome(Conversation(tuple(messages), conversation.fixed_tokens), (decision,))


def shorten_text(text: str, limit: int, count: CountTokens, *, call: ToolCall | None = None) -> str:
    """What is kept of a result's text, at most `limit` tokens; the same text where it fits.

    `call` is the call that the result answers, where it is known.
    """
    if count(text) <= limit:
        return text
    short = excerpt_text(text, limit, count, call=call)
    return truncate_text(text, limit, count) if short is None or count(short) > limit else short


def _may_exceed(message: Message, budget: Budget) -> bool:
    if message.tokens > budget.max_tokens:
        return True
    return budget.max_bytes is not None and sum(map(measure_bytes, message.texts)) > budget.max_bytes


def _recall(message: Message, budget: Budget, count: CountTokens, memo: Memo | None) -> Message:
    """The message within its budget; the same object where it is within it already, or would not shrink."""
    key = (message.digest, budget)
    shortened = memo.get(key) if memo is not None and message.digest and not message.edited else None
    if shortened is None:
        shortened = _shorten(message.texts, budget, count)
        if memo is not None and message.digest and not message.edited:
            memo[key] = shortened
    if shortened.saved_tokens <= 0:
        return message
    return replace(message, texts=shortened.texts, tokens=message.tokens - shortened.saved_tokens, edited=True)


def _shorten(texts: tuple[str, ...], budget: Budget, count: CountTokens) -> Shortened:
    short = _share(texts, budget.max_tokens, count, "tokens")
    if budget.max_bytes is not None:
        short = _share(short, budget.max_bytes, measure_bytes, "bytes")
    saved = sum(map(count, texts)) - sum(map(count, short))
    return Shortened(short, saved) if saved > 0 else Shortened((), 0)


def _share(texts: tuple[str, ...], limit: int, measure: Measure, unit: str) -> tuple[str, ...]:
    """Several texts within one limit: the short ones whole, the long ones an equal share of what is left."""
    sizes = [measure(text) for text in texts]
    if sum(sizes) <= limit:
        return texts
    if limit < MIN_SHARE * len(texts):
        return (truncate_text("\n".join(texts), limit, measure, unit),)
    short = list(texts)
    left = limit
    for rank, index in enumerate(sorted(range(len(texts)), key=lambda index: sizes[index])):
        share = left // (len(texts) - rank)
        if sizes[index] > share:
            short[index] = truncate_text(texts[index], share, measure, unit)
        left -= min(measure(short[index]), left)
    return tuple(short)
