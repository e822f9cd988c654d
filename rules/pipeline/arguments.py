"""Long arguments of calls that have written files: once the file has the text, an excerpt of it is enough in the call.

Law: a fold. A call is stale from the message on that shows it: its own result, if the call has not failed, else a later
call that has read or written the same file. That never changes, and what is left of the arguments is a function of the
call alone. They are forwarded so together with the pruned results: before the place up to which the window prunes.

Only long strings change, never keys, numbers or the form, so the call stays JSON of its tool's schema; an argument that
is free text, as a patch is for some tools, becomes a shorter text. Calls that the dialect says are fixed stay: a
signature of the provider may cover them. So do calls of tools that the policy exempts.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import msgspec

from trimtab.rules.conversation import (
    NOT_SERVED,
    Arguments,
    Conversation,
    Message,
    Outcome,
    Role,
    Telling,
    ToolCall,
    replace_messages,
)
from trimtab.rules.policy import Policy
from trimtab.rules.results.calls import OpenCalls, decode, has_argument, tells_failure
from trimtab.rules.results.excerpt.rule import excerpt_written
from trimtab.rules.results.work import Shortened, Work
from trimtab.rules.summary.calls import Answered
from trimtab.rules.summary.carried.files import find_file_events, find_written, is_same_path
from trimtab.rules.text.markers import NO_RESULT
from trimtab.rules.tokens.messages import count_calls

ARGUMENTS = "arguments"
"""The name of the rule in decisions."""
KEPT_TOKENS = 400
"""What is left of a text. Measured (`bench.retention.needed --limit 25`, 2026-11-28): with 160, needed identifiers kept
fell by 0.1 points at 32,000 and 0.9 at 64,000, at the same cost; with 400, both stay."""
LONG_TOKENS = 2 * KEPT_TOKENS
"""A shorter text stays whole. Chosen: an excerpt of half a text saves little and reads badly."""
MOST_WAITING = 64
"""Failed calls that may still become stale. Chosen: bounds the work; most are repeated at once."""
TELLING = Telling(
    "message",
    "Long arguments of calls in {what} were shortened, {saved}: the files that the calls wrote have the text by now,"
    " and a marker says how much is missing.",
)
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"(\s*+:)?')
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


@dataclass(slots=True, eq=False)
class LongArguments:
    """The stale calls of a transcript so far.

    stale: in the order in which they became so. A message with several such calls is there several times.
    tokens: by the index of a result, what can be saved in the calls of its step because of it.
    size_bytes: memory that this takes, roughly.

    After a LargeWorkError this object must not be used again.
    """

    stale: list[Stale] = field(default_factory=list)
    tokens: dict[int, int] = field(default_factory=dict)
    size_bytes: int = 0
    made: dict[int, tuple[Message, Stale, Message]] = field(default_factory=dict)
    _stop: int = 0
    _open: OpenCalls = field(default_factory=OpenCalls)
    _opener: int = 0
    _calls: tuple[ToolCall, ...] = ()
    _long: frozenset[int] = frozenset()  # the calls of the open step that may become stale
    _latest: dict[int, Stale] = field(default_factory=dict)
    _waiting: list[_Waiting] = field(default_factory=list)

    def extend(self, messages: Sequence[Message], leading: int, policy: Policy, work: Work) -> None:
        """Look at the new messages of a transcript; its first `leading` ones always stay. Raises LargeWorkError."""
        for at in range(max(self._stop, leading), len(messages)):
            message = messages[at]
            call = self._open.answer(message)
            if message.role is not Role.TOOL:
                self._opener, self._calls = at, message.tool_calls
                self._long = frozenset(_find_long(message, policy)) if message.tool_calls else frozenset()
            elif call is not None and (self._long or self._waiting):
                self._answer(at, messages, call, work)
        self._stop = max(self._stop, len(messages))

    def _answer(self, at: int, messages: Sequence[Message], call: ToolCall, work: Work) -> None:
        result = messages[at]
        number = next(number for number, one in enumerate(self._calls) if one is call)
        has_failed = result.texts == (NO_RESULT,) or tells_failure(result)
        if self._waiting and not has_failed:
            self._heed(at, messages, Answered(call, result), work)
        if number not in self._long or result.keep or result.loads:
            return
        work.allowance.spend(len(call.arguments))
        if not (paths := find_written(call)):
            return
        if has_failed:
            self._waiting = [*self._waiting, _Waiting(self._opener, number, paths)][-MOST_WAITING:]
        elif (saved := self._note(at, self._opener, number, messages, work)) > 0:
            self.tokens[at] = saved

    def _heed(self, at: int, messages: Sequence[Message], answered: Answered, work: Work) -> None:
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
