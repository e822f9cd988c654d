"""Messages that lose text: retrieved memory, long user messages of earlier turns, and system messages at the beginning.

Law: what is left of a message is a function of the message, the policy and, for a leading one, the head and the limit.
The fold (window/cut_decision.py) says from when on it is forwarded so. Without a reason to act, nothing changes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter

from trimtab.rules.conversation import (
    Conversation,
    CountTokens,
    Decision,
    Message,
    Outcome,
    Role,
    Telling,
    replace_messages,
)
from trimtab.rules.pipeline.plan import MEMORY, TRUNCATE_USERS
from trimtab.rules.policy import OverflowStrategy, Policy
from trimtab.rules.results.edit import UNTOUCHED, shorten_once, weigh_message
from trimtab.rules.results.excerpt.rule import MIN_SHARE, may_shorten, shorten_message
from trimtab.rules.results.work import Shortened, Work
from trimtab.rules.text.client_summaries import find_memory, is_client_summary
from trimtab.rules.text.head_tail import truncate_text
from trimtab.rules.text.markers import mark_memory
from trimtab.rules.window.room import MIN_ROOM_SHARE, leave_room

GRAINS = 16
"""What stays whole counts as a multiple of this part of what is shared. Chosen: as the head of the room (room.py)."""
LEAST_SHARE = 1 / 4
"""System messages keep this part of their share even if tools leave less of it. Chosen: tools cannot be truncated, and
an agent without its instructions is of no use."""
LEAST_TEXT_TOKENS = 2 * MIN_SHARE
"""No text gets less than half of this. Chosen: as for the texts of a tool result (MIN_SHARE)."""
MEMORY_TELLING = Telling(
    "message", "Retrieved memory in {what} was dropped, {saved}; the words around it stay{hidden}."
)
USERS_TELLING = Telling(
    "earlier user message",
    "{what} over the limit for one message {was} shortened to the beginning and the end, {saved}{hidden}.",
)
SYSTEM_TELLING = Telling(
    "system message",
    "{what} {was} over the share of the prompt that is configured for them, and {was} shortened to the beginning and"
    " the end, {saved}.",
)
_tell_tokens = attrgetter("tokens")
_HOLDERS = frozenset({Role.USER, Role.SYSTEM})


@dataclass(slots=True, eq=False)
class Memory:
    """The retrieved memory of a transcript so far: of user messages and later system messages.

    The text around a block stays, and a marker tells that the block is missing.

    savings: by the index of a message with memory, the tokens that dropping it saves.
    bare: the same messages without their memory.
    size_bytes: memory that this takes, roughly.

    After a LargeWorkError this object must not be used again.
    """

    savings: dict[int, int] = field(default_factory=dict)
    bare: dict[int, Message] = field(default_factory=dict)
    size_bytes: int = 0
    _seen: int = 0

    def extend(self, messages: Sequence[Message], leading: int, policy: Policy, work: Work) -> None:
        """Search the new messages of a transcript; its first `leading` ones hold none. Raises LargeWorkError."""
        start, self._seen = max(self._seen, leading), len(messages)
        if not policy.memory_tags or policy.overflow_strategy is OverflowStrategy.ERROR:
            return
        for index in range(start, len(messages)):
            message = messages[index]
            if message.role in _HOLDERS:
                bare = strip_message(message, policy.memory_tags, work)
                if bare is not message:
                    self.savings[index] = message.tokens - bare.tokens
                    self.bare[index] = bare
                    self.size_bytes += weigh_message(bare)

    def strip(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages without memory; the same object if there is none."""
        if not self.bare:
            return messages
        stripped = list(messages)
        for index, bare in self.bare.items():
            stripped[index] = bare
        return stripped

    def drop(self, conversation: Conversation, stop: int) -> Outcome:
        bare = {at: message for at, message in self.bare.items() if at < stop}
        return replace_messages(conversation, bare, MEMORY, f"memory of {len(bare)} messages before message {stop}")


def strip_message(message: Message, tags: Sequence[str], work: Work) -> Message:
    """The message without its retrieved memory; the same one if it holds none. Raises LargeWorkError."""
    if message.has_fixed_texts or message.keep or not any(find_memory(text, tags) for text in message.texts):
        return message
    return shorten_once(
        message, None, f"memory {' '.join(tags)}", work, partial(_work_out, message.texts, tags, work.count)
    )


def _work_out(texts: Sequence[str], tags: Sequence[str], count: CountTokens) -> Shortened:
    stripped = tuple(_strip(text, tags, count) for text in texts)
    saved_tokens = sum(map(count, texts)) - sum(map(count, stripped))
    return Shortened(stripped, saved_tokens) if saved_tokens > 0 else UNTOUCHED


def _strip(text: str, tags: Sequence[str], count: CountTokens) -> str:
    parts: list[str] = []
    end = 0
    for start, stop in find_memory(text, tags):
        block = text[start:stop]
        tokens = count(block)
        marker = mark_memory(tokens)
        parts += [text[end:start], marker if count(marker) < tokens else block]
        end = stop
    return "".join((*parts, text[end:]))


@dataclass(slots=True, eq=False)
class LongUsers:
    """The user messages of a transcript so far that are over the limit, as they are when they are short.

    The task statement, the messages of the newest turn and a client's own summaries are never short. A turn begins with
    a user message right behind an answer of the model.

    short: by index. tokens: what they cost then. size_bytes: memory that this takes, roughly.

    After a LargeWorkError this object must not be used again.
    """

    short: dict[int, Message] = field(default_factory=dict)
    tokens: dict[int, int] = field(default_factory=dict)
    size_bytes: int = 0
    _seen: int = 0
    _has_task: bool = False

    def extend(self, messages: Sequence[Message], leading: int, policy: Policy, work: Work) -> None:
        """Look at the new messages of a transcript, without their memory; its first `leading` ones always stay."""
        start, self._seen = max(self._seen, leading), len(messages)
        for index in range(start, len(messages)):
            message = messages[index]
            if message.role is not Role.USER:
                continue
            is_task, self._has_task = not self._has_task, True
            if not (is_task or any(map(is_client_summary, message.texts))) and may_shorten(message, policy):
                short = shorten_message(message, policy.max_message_tokens or 0, work)
                if short is not message:
                    self.short[index], self.tokens[index] = short, short.tokens
                    self.size_bytes += weigh_message(short)

    def apply(self, conversation: Conversation, stop: int) -> Outcome:
        short = {at: message for at, message in self.short.items() if at < stop}
        reason = f"{len(short)} user messages over the limit, of earlier turns"
        return replace_messages(conversation, short, TRUNCATE_USERS, reason)


def fit_head(conversation: Conversation, task_tokens: int, policy: Policy, limit: int, work: Work) -> Outcome:
    """The conversation with leading system messages that leave room for it, as far as the policy allows.

    It does not depend on the conversation after the first user message. What stands outside the messages (tools,
    response format) counts rounded up, and so do messages that stay. So a timestamp or a small tool that changes does
    not change the text of another message.

    `task_tokens`: what the task statement costs. Raises LargeWorkError.
    """
    number = next((at for at, one in enumerate(conversation.messages) if one.role is not Role.SYSTEM), None)
    leading = conversation.messages[:number]
    if not leading:
        return Outcome(conversation)
    head_tokens = conversation.fixed_tokens + task_tokens + _sum(leading)
    decisions: list[Decision] = []
    places: list[tuple[int, ...]] = []

    def note(rule: str, reason: str, before: Sequence[Message], after: Sequence[Message]) -> None:
        changed = tuple(at for at, (one, two) in enumerate(zip(before, after, strict=True)) if one is not two)
        if changed:
            sizes = _sum(before), _sum(after)
            decisions.append(Decision(rule, reason.format(len(changed)), *sizes, len(changed), changed[0]))
            places.append(changed)

    bare = leading
    if (
        leave_room(limit, head_tokens) < limit * MIN_ROOM_SHARE
        and policy.overflow_strategy is not OverflowStrategy.ERROR
    ):
        bare = tuple([strip_message(message, policy.memory_tags, work) for message in leading])
        note(MEMORY, "memory of {} messages at the beginning", leading, bare)
    short = bare
    if policy.sections is not None and policy.truncate_system:
        share = int(limit * policy.sections.system)
        short = _truncate(bare, share, conversation.fixed_tokens, work)
        note("truncate_system", "{} system messages over their share", bare, short)
    if not decisions:
        return Outcome(conversation)
    fitted = conversation.edit((*short, *conversation.messages[len(short) :]))
    return Outcome(fitted, tuple(decisions), tuple(places))


def _sum(messages: Sequence[Message]) -> int:
    return sum(map(_tell_tokens, messages))


def _truncate(leading: Sequence[Message], share: int, fixed_tokens: int, work: Work) -> tuple[Message, ...]:
    """The messages within the share, as far as they have texts that may be shortened. Raises LargeWorkError."""
    free = [
        message
        for message in leading
        if message.texts and not (message.has_fixed_texts or message.keeps_before or message.keep)
    ]
    bound_tokens = fixed_tokens + _sum(leading) - _sum(free)
    if bound_tokens + _sum(free) <= share:
        return tuple(leading)
    least = LEAST_TEXT_TOKENS * sum(len(message.texts) for message in free)
    budget = max(share - _round_up(bound_tokens, share), int(share * LEAST_SHARE), least)
    caps = share_evenly([message.tokens for message in free], budget)
    short = [_cap(message, cap, work) for message, cap in zip(free, caps, strict=True)]
    by_id = {id(message): one for message, one in zip(free, short, strict=True)}
    return tuple([by_id.get(id(message), message) for message in leading])


def _round_up(tokens: int, shared: int) -> int:
    grain = max(shared // GRAINS, 1)
    return -(-tokens // grain) * grain


def share_evenly(sizes: Sequence[int], budget: int) -> list[int]:
    """What each of several parts may have of a budget: small ones their size, large ones equal shares of what is left.

    The small ones count rounded up, so the shares stay the same if their sizes change a little.
    """
    caps, kept, number = list(sizes), 0, len(sizes)
    order = sorted(range(number), key=sizes.__getitem__)
    for rank, at in enumerate(order):
        if sizes[at] * (number - rank) > budget - kept:
            even = (budget - _round_up(kept, budget)) // (number - rank)
            # Rounding must not take everything. At least half of an even share is left in any case.
            for large in order[rank:]:
                caps[large] = max(even, budget // (2 * number))
            break
        kept += sizes[at]
    return caps


def _cap(message: Message, cap: int, work: Work) -> Message:
    if message.tokens <= cap:
        return message
    work_out = partial(_share_cap, message, cap, work.count)
    return shorten_once(message, None, f"truncate_system {cap}", work, work_out)


def _share_cap(message: Message, cap: int, count: CountTokens) -> Shortened:
    sizes = list(map(count, message.texts))
    budget = max(cap - (message.tokens - sum(sizes)), LEAST_TEXT_TOKENS * len(sizes))
    pairs = zip(message.texts, sizes, share_evenly(sizes, budget), strict=True)
    texts = tuple([text if size <= most else truncate_text(text, most, count) for text, size, most in pairs])
    saved_tokens = sum(sizes) - sum(map(count, texts))
    return Shortened(texts, saved_tokens) if saved_tokens > 0 else UNTOUCHED
