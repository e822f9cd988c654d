"""Rung 2: a tool result over its budget keeps its head and its tail.

Law: by the message alone, never by its age or its place, so the forwarded prefix stays as it is. Never a tool call's
arguments. Never longer than before. The marker says how much is missing.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from rules.conversation import RESULT_ROLES, Conversation, CountTokens, Decision, Message, Outcome

HEAD_SHARE = 0.4
"""Of the budget. Errors and totals stand at the end of logs, so the tail gets the larger part."""
LINE_SLACK = 0.2
"""A cut moves to a line's end when that costs at most this share of the piece."""
SEARCH_ROUNDS = 12
"""Pieces measured for one cut at most; most cuts need two or three."""
PROPORTIONAL_ROUNDS = 4
CLOSE_ENOUGH = 0.97
LIKELY_CHARS_PER_UNIT = 4
MAX_CHARS_PER_UNIT = 128
"""No token of the vocabulary is longer."""
MIN_SHARE = 16
"""Where each of many texts would get less than this, they become one text: none is emptied."""

MIN_TEXT_TOKENS = 24
"""A text shorter than this says nothing: a summary's reserve below it has room for one line only."""

Measure = Callable[[str], int]


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


def truncate_text(text: str, limit: int, measure: Measure, unit: str = "tokens") -> str:
    """Head and tail of `text` around a marker, together at most `limit` by `measure`, which counts `unit`.

    The same text where it fits. Where not even the marker fits, as much of the head as does.
    """
    total = measure(text)
    if total <= limit:
        return text
    room = limit - measure(_marker(text, total, unit))
    for _ in range(SEARCH_ROUNDS):
        if room <= 0:
            break
        head = _take(text, int(room * HEAD_SHARE), measure)
        tail = _take(text[len(head) :], room - int(room * HEAD_SHARE), measure, from_end=True)
        missing = total - measure(head) - measure(tail)
        kept = head + _marker(text[len(head) : len(text) - len(tail)], missing, unit) + tail
        excess = measure(kept) - limit
        if excess <= 0:
            return kept
        room -= excess
    return _take(text, limit, measure)


def _marker(missing: str, size: int, unit: str) -> str:
    lines = missing.count("\n") + 1
    return f"\n[trimtab: {lines} lines ({size} {unit}) omitted here]\n"


def _take(text: str, limit: int, measure: Measure, *, from_end: bool = False) -> str:
    """The longest piece found, from the start or the end, that measures at most `limit`; whole lines where near.

    Guesses by proportion first, then halves: no more than SEARCH_ROUNDS pieces are measured.
    """
    low, high = 0, min(len(text), limit * MAX_CHARS_PER_UNIT)
    size = min(high, limit * LIKELY_CHARS_PER_UNIT)
    for number in range(SEARCH_ROUNDS):
        measured = measure(_slice(text, size, from_end=from_end))
        if measured <= limit:
            low = size
            if size == high or measured >= limit * CLOSE_ENOUGH:
                break
        else:
            high = size
        guess = int(size * limit / max(measured, 1)) if number < PROPORTIONAL_ROUNDS else (low + high) // 2
        size = min(max(guess, low + 1), high)
        if high - low <= 1:
            break
    piece = _slice(text, low, from_end=from_end)
    lines = _whole_lines(piece, from_end=from_end)
    return lines if lines.strip() and measure(lines) <= limit else piece


def _slice(text: str, size: int, *, from_end: bool) -> str:
    return text[len(text) - size :] if from_end else text[:size]


def _whole_lines(piece: str, *, from_end: bool) -> str:
    slack = int(len(piece) * LINE_SLACK)
    if from_end:
        line_break = piece.find("\n", 0, slack)
        return piece[line_break + 1 :]
    line_break = piece.rfind("\n", len(piece) - slack)
    return piece if line_break < 0 else piece[:line_break]


def measure_bytes(text: str) -> int:
    """Bytes of a text in UTF-8."""
    return len(text.encode("utf-8", "surrogatepass"))


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
