"""Messages that lose text: retrieved memory, long user and system messages, and long arguments of calls.

Law: what is left of a message is a function of the message, the policy and, for a leading one, the head and the limit.
The fold (window/cut_decision.py) says from when on it is forwarded so. Without a reason to act, nothing changes.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import NamedTuple

import msgspec

from trimtab.rules.conversation import (
    NOT_SERVED,
    Arguments,
    Conversation,
    CountTokens,
    Decision,
    Message,
    Outcome,
    Role,
    Telling,
    ToolCall,
    replace_messages,
)
from trimtab.rules.policy import OverflowStrategy, Policy
from trimtab.rules.results.calls import OpenCalls, decode, has_argument, tells_failure
from trimtab.rules.results.excerpt import MIN_SHARE, excerpt_written, may_shorten, shorten_message
from trimtab.rules.results.work import UNTOUCHED, Shortened, Work, shorten_once, weigh_message
from trimtab.rules.summary.calls import Answered
from trimtab.rules.summary.files import find_file_events, find_written, is_same_path
from trimtab.rules.text.client_summaries import find_memory, is_client_summary
from trimtab.rules.text.head_tail import truncate_text
from trimtab.rules.text.late import compile_late
from trimtab.rules.text.markers import NO_RESULT, mark_memory
from trimtab.rules.tokens.messages import count_calls
from trimtab.rules.window.room import MIN_ROOM_SHARE, leave_room

MEMORY = "memory"
TRUNCATE_USERS = "truncate_users"
"""The names of the rules in decisions."""
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


class Memory(msgspec.Struct, eq=False):
    """The retrieved memory of a transcript so far: of user messages and later system messages.

    The text around a block stays, and a marker tells that the block is missing.

    savings: by the index of a message with memory, the tokens that dropping it saves.
    bare: the same messages without their memory.
    size_bytes: memory that this takes, roughly.

    After a LargeWorkError this object must not be used again.
    """

    savings: dict[int, int] = msgspec.field(default_factory=dict)
    bare: dict[int, Message] = msgspec.field(default_factory=dict)
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


class LongUsers(msgspec.Struct, eq=False):
    """The user messages of a transcript so far that are over the limit, as they are when they are short.

    The task statement, the messages of the newest turn and a client's own summaries are never short. A turn begins with
    a user message right behind an answer of the model.

    short: by index. tokens: what they cost then. size_bytes: memory that this takes, roughly.

    After a LargeWorkError this object must not be used again.
    """

    short: dict[int, Message] = msgspec.field(default_factory=dict)
    tokens: dict[int, int] = msgspec.field(default_factory=dict)
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


# Long arguments of calls that have written files: once the file has the text, an excerpt of it is enough in the call.
#
# A call is stale from the message on that shows it: its own result, if the call has not failed, else a later call that
# has read or written the same file. That never changes, and what is left of the arguments is a function of the call
# alone. They are forwarded so together with the pruned results: before the place up to which the window prunes.
#
# Only long strings change, never keys, numbers or the form, so the call stays JSON of its tool's schema; an argument
# that is free text, as a patch is for some tools, becomes a shorter text. Calls that the dialect says are fixed stay: a
# signature of the provider may cover them. So do calls of tools that the policy exempts.
ARGUMENTS = "arguments"
"""The name of the rule in decisions."""
KEPT_TOKENS = 400
"""What is left of a text. Measured (`bench.retention.needed --limit 25`, 2026-11-28): with 160, needed identifiers kept
fell by 0.1 points at 32,000 and 0.9 at 64,000, at the same cost; with 400, both stay."""
LONG_TOKENS = 2 * KEPT_TOKENS
"""A shorter text stays whole. Chosen: an excerpt of half a text saves little and reads badly."""
MOST_WAITING = 64
"""Failed calls that may still become stale. Chosen: bounds the work; most are repeated at once."""
ARGUMENTS_TELLING = Telling(
    "message",
    "Long arguments of calls in {what} were shortened, {saved}: the files that the calls wrote have the text by now,"
    " and a marker says how much is missing.",
)
_STRING = compile_late(r'"(?:[^"\\]++|\\.|)*+"(\s*+:)?')
"""A string of a valid JSON text; a key with the colon behind it."""


class Stale(NamedTuple):
    """The calls of message `at`, as they are forwarded if what is before message `made_at`, and it, may be pruned."""

    at: int
    made_at: int
    calls: tuple[ToolCall, ...]
    saved_tokens: int


class _Waiting(NamedTuple):
    """Call number `number` of message `at`, which has failed, and the files that it names."""

    at: int
    number: int
    paths: frozenset[str]


class LongArguments(msgspec.Struct, eq=False):
    """The stale calls of a transcript so far.

    stale: in the order in which they became so. A message with several such calls is there several times.
    tokens: by the index of a result, what can be saved in the calls of its step because of it.
    size_bytes: memory that this takes, roughly.

    After a LargeWorkError this object must not be used again.
    """

    stale: list[Stale] = msgspec.field(default_factory=list)
    tokens: dict[int, int] = msgspec.field(default_factory=dict)
    size_bytes: int = 0
    made: dict[int, tuple[Message, Stale, Message]] = msgspec.field(default_factory=dict)
    _stop: int = 0
    _open: OpenCalls = msgspec.field(default_factory=OpenCalls)
    _opener: int = 0
    _calls: tuple[ToolCall, ...] = ()
    _long: frozenset[int] = frozenset()  # the calls of the open step that may become stale
    _latest: dict[int, Stale] = msgspec.field(default_factory=dict)
    _waiting: list[_Waiting] = msgspec.field(default_factory=list)

    def extend(self, messages: Sequence[Message], leading: int, policy: Policy, work: Work) -> None:
        """Look at the new messages of a transcript; its first `leading` ones always stay. Raises LargeWorkError."""
        looks = not work.drops_calls  # else shortening them saves nothing
        for at in range(max(self._stop, leading), len(messages)):
            message = messages[at]
            if message.role is not Role.TOOL:
                _ = self._open.answer(message)
                self._opener, self._calls = at, message.tool_calls
                self._long = frozenset(_find_long(message, policy)) if looks and message.tool_calls else frozenset()
            elif (self._long or self._waiting) and (call := self._open.answer(message)) is not None:
                self._answer(at, messages, call, work)
        self._stop = max(self._stop, len(messages))

    def _answer(self, at: int, messages: Sequence[Message], call: ToolCall, work: Work) -> None:
        result = messages[at]
        number = next(number for number, one in enumerate(self._calls) if one is call)
        has_failed = result.texts == (NO_RESULT,) or tells_failure(result)
        if self._waiting and not has_failed:
            self._outdate_failed(at, messages, Answered(call, result), work)
        if number not in self._long or result.keep or result.loads:
            return
        work.allowance.spend(len(call.arguments))
        if not (paths := find_written(call)):
            return
        if has_failed:
            self._waiting = [*self._waiting, _Waiting(self._opener, number, paths)][-MOST_WAITING:]
        elif (saved := self._note(at, self._opener, number, messages, work)) > 0:
            self.tokens[at] = saved

    def _outdate_failed(self, at: int, messages: Sequence[Message], answered: Answered, work: Work) -> None:
        """Failed calls become stale when a later step has read or written one of their files."""

        def wants(path: str) -> bool:
            return any(is_same_path(path, each) for one in self._waiting for each in one.paths)

        touched = {event.path for event in find_file_events(answered, wants)}
        for one in self._waiting if touched else ():
            if one.at < self._opener and any(is_same_path(path, each) for path in touched for each in one.paths):
                self._note(at, one.at, one.number, messages, work)
                self._waiting = [each for each in self._waiting if each is not one]

    def _note(self, made_at: int, at: int, number: int, messages: Sequence[Message], work: Work) -> int:
        """Note that a call is stale from now on; return what that saves."""
        message, known = messages[at], self._latest.get(at)
        calls, saved_before = (message.tool_calls, 0) if known is None else (known.calls, known.saved_tokens)
        short = shorten_call(message, number, work)
        if short is message.tool_calls[number]:
            return 0
        calls = (*calls[:number], short, *calls[number + 1 :])
        saved = count_calls(message.tool_calls, work.count) - count_calls(calls, work.count)
        stale = self._latest[at] = Stale(at, made_at, calls, saved)
        self.stale.append(stale)
        self.size_bytes += 2 * len(short.arguments) + 400
        return saved - saved_before


def shorten_arguments(
    conversation: Conversation,
    chosen: Mapping[int, Stale],
    known: dict[int, tuple[Message, Stale, Message]] | None = None,
) -> Outcome:
    """The conversation with these calls, by the index of their message. `known`: what was made earlier."""
    known, new = {} if known is None else known, dict[int, Message]()
    for at, stale in chosen.items():
        message, made = conversation.messages[at], known.get(at)
        if made is None or made[0] is not message or made[1] is not stale:
            saved = stale.saved_tokens
            short = replace(message.shorten(message.texts, saved), tool_calls=stale.calls)
            made = known[at] = message, stale, short
        new[at] = made[2]
    return replace_messages(conversation, new, ARGUMENTS, f"{len(new)} messages with long arguments of calls")


def _find_long(message: Message, policy: Policy) -> Iterator[int]:
    """The calls of a message that may be shortened, by their size, their form and the policy."""
    if message.keep or message.loads or message.served is not NOT_SERVED:
        return
    for number, call in enumerate(message.tool_calls):
        if call.shortens is Arguments.FIXED or len(call.arguments) <= LONG_TOKENS:
            continue
        treatment = policy.find_treatment(call.name)
        globs = treatment.exempt_arguments
        if not (treatment.is_exempt or (globs and has_argument(call, globs))):
            yield number


def shorten_call(message: Message, number: int, work: Work) -> ToolCall:
    """A call of the message with excerpts for the long texts in its arguments; the call itself if it has none."""
    call = message.tool_calls[number]
    key = (work.counter, f"{ARGUMENTS} {number}", call.shortens, message.digest, False, call.name, "")
    short = work.results.get(key)
    if short is None:
        work.allowance.spend(len(call.arguments))
        short = work.results[key] = Shortened((_shorten(call, work),), 0)
    return call if short.texts == (call.arguments,) else replace(call, arguments=short.texts[0])


def _shorten(call: ToolCall, work: Work) -> str:
    if call.shortens is Arguments.TEXT:
        return _excerpt(call.arguments, work)
    if not isinstance(decode(call.arguments), dict):
        return call.arguments
    return _STRING.sub(partial(_replace, work=work), call.arguments)


def _replace(found: re.Match[str], work: Work) -> str:
    """A string of JSON with an excerpt of its text; the same if that is not long."""
    if found[1]:
        return found[0]
    text = msgspec.json.decode(found[0])
    short = _excerpt(text, work)
    return found[0] if short is text else msgspec.json.encode(short).decode()


def _excerpt(text: str, work: Work) -> str:
    is_short = len(text) <= LONG_TOKENS or work.count(text) <= LONG_TOKENS  # no token is shorter than a character
    return text if is_short else excerpt_written(text, KEPT_TOKENS, work.count)
