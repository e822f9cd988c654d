"""Rung 2: a tool result over its budget keeps the lines that matter, or its head and its tail; so do long messages.

Law: depends only on the result and its own call, or on the message alone, never on its age or its position. So the
forwarded prefix does not change. A result never gets longer, and an excerpt is never over its budget. A marker says how
much is missing, unless the marker would cost more tokens than the whole text.

A message that is no tool result keeps its head and its tail. The last one of the transcript is no exception: an answer
that the model is to continue keeps its tail. Tool calls, reasoning, signatures and attachments stay. What is last today
is not last tomorrow, so user messages are another matter: pipeline/shortening.py.
"""

from collections.abc import Callable, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from trimtab.rules.conversation import Conversation, CountTokens, Decision, Message, Outcome, Role, Telling, ToolCall
from trimtab.rules.policy import Budget, Policy, PreserveSystem, Truncation
from trimtab.rules.results.json_document import ShortenString, excerpt_json
from trimtab.rules.results.kinds import (
    SOURCE,
    Scan,
    add_terms,
    find_terms,
    is_large,
    split_large,
    tell_kind,
    tell_large_kind,
)
from trimtab.rules.results.scores import read_numbers
from trimtab.rules.results.select import Guide, Selection, split_units
from trimtab.rules.results.work import (
    MIN_SAVED_SHARE,
    UNTOUCHED,
    Editor,
    Result,
    Shortened,
    Work,
    may_exceed,
    shorten_once,
    weigh_message,
)
from trimtab.rules.text.head_tail import Measure, measure_bytes, take_head, truncate_text
from trimtab.rules.text.markers import ASK_PART, CALL_HAD_PART, READ_PART
from trimtab.rules.text.payloads import hide_payloads

LINE_SHARE, MIN_LINE_TOKENS = 0.15, 24
"""A line that costs more than this share of the budget, and more than 24 tokens, is cut into pieces. Chosen: one line
must not take most of the budget."""
MIN_LINE_CHARS, MAX_LINE_CHARS = 40, 2000  # Bounds of the length of such a piece. Chosen.


class Facts(msgspec.Struct, frozen=True):
    call: ToolCall | None = None  # the call that it answers, if any
    count: CountTokens | None = None  # counts tokens for the markers; None if the limit is in tokens
    is_numbered: bool = True  # whether a reader can ask for lines by their numbers
    how: str = ""  # how to see what is missing, if that is not to call the tool again


def excerpt_text(text: str, limit: int, measure: Measure, asked: Facts) -> str | None:
    """An excerpt of at most `limit` by `measure`: tokens, or units of that size. None if there is no room for one."""
    short = excerpt_json(text, limit, measure, _shorten_within(measure, asked))
    return _excerpt_lines(text, limit, measure, asked) if short is None else short


def _excerpt_lines(text: str, limit: int, measure: Measure, asked: Facts) -> str | None:
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
    # The numbers that the text shows, else those that are counted; none if a reader cannot ask for lines.
    shown = read_numbers(units.texts) if kind is SOURCE and not asked.how else ()
    numbers = shown or (units.lines if asked.is_numbered and not asked.how else ())
    tokens = None if asked.count is None else asked.count(text)
    guide = Guide(scores, numbers, asked.how or READ_PART)
    return Selection(units, total, guide, tokens).write(limit, kind.ends, measure)


def _shorten_within(measure: Measure, asked: Facts) -> ShortenString:
    """Shortens a long text within JSON as if it were alone, but markers do not name line numbers."""
    within = replace(asked, is_numbered=False)

    def shorten(text: str, limit: int) -> str | None:
        if measure(text) <= limit:
            return text
        text = hide_payloads(text).text
        return text if measure(text) <= limit else _excerpt_lines(text, limit, measure, within)

    return shorten


def excerpt_written(text: str, limit: int, count: CountTokens) -> str:
    """An excerpt of a text that is in a file now. Its lines have no numbers: who reads the file finds its own."""
    hidden = hide_payloads(text).text
    if count(hidden) <= limit:
        return hidden
    short = _excerpt_lines(hidden, limit, count, Facts(how=CALL_HAD_PART))
    return truncate_text(hidden, limit, count, how=CALL_HAD_PART) if short is None else short


MIN_SHARE = 16
"""If the budget gives each text less than this, the texts are joined into one. Chosen: otherwise some would become
empty."""
BYTES_A_UNIT = 4
"""A limit in bytes is counted in units of 4 bytes. Chosen: a token has about 4 bytes, so constants that are given in
tokens, such as the cost of a marker, can be used for both kinds of limit."""

Shorten = Callable[[str, Budget], str]  # Shortens a text to a budget


class _Gauge(msgspec.Struct, frozen=True):
    """A budget in tokens and bytes as one limit: by `measure`, a text is within it exactly if it is within both."""

    limit: int
    measure: Measure
    unit: str  # name of the unit, tokens or bytes, whose limit is tighter for this text
    count: Measure  # counts that unit


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


def _cut(text: str, gauge: _Gauge, asked: Facts | None) -> str:
    """The lines of a text that matter; its head and tail if none are asked, or if the limit is too small for them."""
    short = None if asked is None else excerpt_text(text, gauge.limit, gauge.measure, asked)
    if short is not None and gauge.measure(short) <= gauge.limit:
        return short
    return truncate_text(text, gauge.limit, gauge.measure, gauge.unit, gauge.count, READ_PART)


def truncate_result(result: Result, budget: Budget, count: CountTokens) -> tuple[str, ...]:
    """The result's texts, each truncated at most once, to a budget, in the way that the result's treatment says.

    Never more tokens than before: if markers would cost more than the texts, only the beginning of each is kept.
    """

    def shorten(text: str, budget: Budget) -> str:
        gauge = _gauge(text, budget, count)
        if gauge.measure(text) <= gauge.limit:
            return text
        hidden = hide_payloads(text)
        if hidden.text is not text:
            gauge = _gauge(hidden.text, budget, count)
            if gauge.measure(hidden.text) <= gauge.limit:
                return hidden.text
        facts = Facts(result.call, count, is_numbered=not hidden.moves_lines)
        return _cut(hidden.text, gauge, facts if result.treatment.truncation is Truncation.SALIENT else None)

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
    """Shorten several texts to one budget: short ones stay, long ones share the rest. May join them, see MIN_SHARE."""
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


_TELLING = Telling(
    "tool result",
    "{what} {was} longer than its tool may fill, and {was} shortened, {saved}: the lines that matter most stay, and a"
    " marker says how much is missing{hidden}.",
)
# The reason does not name the limits: those of errors are larger, and the model's tokens differ from the counted ones.
TRUNCATE = Editor(
    "truncate",
    may_exceed,
    lambda result, count: truncate_result(result, result.budget, count),
    "{} tool results over their limits",
    _TELLING,
)

SHORTEN_TELLING = Telling(
    "message",
    "{what} over the limit for one message {was} shortened to the beginning and the end, {saved}{hidden}.",
)


class LongMessages:
    """The long messages so far, as forwarded. leading: messages at the start that always stay. size_bytes: held."""

    def __init__(self, leading: int) -> None:
        self.size_bytes = 0
        self._stop = leading  # the messages before this index have been looked at
        self._short: dict[int, Message] = {}
        self._before_tokens = 0
        self._after_tokens = 0

    def extend(self, messages: Sequence[Message], policy: Policy, work: Work) -> None:
        """Process the new messages of a transcript. After a LargeWorkError this object must not be used again."""
        for index in range(self._stop, len(messages)):
            message = messages[index]
            if message.role is not Role.USER and may_shorten(message, policy):
                short = shorten_message(message, policy.max_message_tokens or 0, work)
                if short is not message:
                    self._short[index] = short
                    self._before_tokens += message.tokens
                    self._after_tokens += short.tokens
                    self.size_bytes += weigh_message(short)
        self._stop = max(self._stop, len(messages))

    def apply(self, conversation: Conversation) -> Outcome:
        """The conversation with its shortened messages. It must consist of the messages seen so far."""
        if not self._short:
            return Outcome(conversation)
        messages = list(conversation.messages)
        for index, short in self._short.items():
            messages[index] = short
        number = len(self._short)
        reason = f"{number} messages over the limit"
        decision = Decision("shorten", reason, self._before_tokens, self._after_tokens, number, next(iter(self._short)))
        return Outcome(conversation.edit(messages), (decision,), (tuple(self._short),))


def may_shorten(message: Message, policy: Policy) -> bool:
    """Whether a message after the leading ones may be over the policy's limit. A quick test, by its whole size."""
    limit = policy.max_message_tokens
    if limit is None or message.tokens <= limit or message.has_fixed_texts or message.keep:
        return False
    if message.role is Role.SYSTEM:
        return policy.preserve_system is PreserveSystem.LEADING
    return message.role is Role.ASSISTANT or (message.role is Role.USER and policy.truncate_users)


def shorten_message(message: Message, limit: int, work: Work) -> Message:
    """The message with texts of at most `limit` tokens; the same one if they fit, or if little would be saved.

    A message with so many texts that each would get less than MIN_SHARE tokens stays too: its texts would have to be
    joined. Raises LargeWorkError if the allowance of `work` is used up.
    """
    if limit < MIN_SHARE * len(message.texts):
        return message
    how = ASK_PART if message.role is Role.USER else ""
    work_out = partial(_cut_texts, message.texts, limit, work.count, how)
    return shorten_once(message, None, f"shorten {limit}{how}", work, work_out)


def share_ends(texts: tuple[str, ...], limit: int, count: CountTokens, how: str) -> tuple[str, ...]:
    """The beginnings and ends of texts, without files in them, in at most `limit` tokens together."""

    def shorten(text: str, share: Budget) -> str:
        return truncate_text(hide_payloads(text).text, share.max_tokens, count, how=how)

    return share_budget(texts, Budget(limit), count, shorten)


def _cut_texts(texts: tuple[str, ...], limit: int, count: CountTokens, how: str) -> Shortened:
    tokens, short = sum(map(count, texts)), share_ends(texts, limit, count, how)
    saved_tokens = tokens - sum(map(count, short))
    return Shortened(short, saved_tokens) if saved_tokens > tokens * MIN_SAVED_SHARE else UNTOUCHED
