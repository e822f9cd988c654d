"""Rung 0: every tool call has exactly one result right after it, and no result is without a call.

Law: a valid transcript stays unchanged. No text of a result is lost that can be placed, by its id, by the name of its
tool or by its position, or that comes first behind an answer: there it becomes a message of the user, and roles take
turns. A result without an id keeps its bytes, and what may be a result but is none of the dialect's stays. An assistant
message that does not follow another assistant message closes all earlier calls. So a longer transcript never changes
anything before its last open calls and the results behind them.
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import pairwise
from operator import is_
from typing import NamedTuple

import msgspec

from trimtab.rules.conversation import (
    Conversation,
    CountTokens,
    Decision,
    Message,
    Origin,
    Outcome,
    Role,
    Telling,
    ToolCall,
    find_beside,
)
from trimtab.rules.prefix import digest_message
from trimtab.rules.results.calls import Waiting
from trimtab.rules.text.markers import ACKNOWLEDGEMENT, NO_RESULT, RESULT_HEADER
from trimtab.rules.tokens.messages import count_message, finish_message

MAX_NAMED = 10  # Elements that a description names of each kind. Chosen: enough to find the mistake.

TELLING = Telling("result", "Upstreams want exactly one result right after each call: {repairs}.")
"""`repairs`: what was added, dropped, written as text and moved."""


class _Slot(msgspec.Struct, eq=False):
    """A call, and the index of the message that answers it."""

    call: ToolCall
    result: int | None = None


_Form = tuple[str, str | None]  # The form of a result, and the name of its tool


class _Asked(NamedTuple):
    """The calls of one message: a slot for each, and those of them that wait."""

    slots: list[_Slot]
    waiting: Waiting


class _Pairs(msgspec.Struct):
    """Which result answers which call.

    slots: the calls of each assistant message, by its index. orphans: indexes of the results that answer no call.
    """

    slots: dict[int, list[_Slot]] = msgspec.field(default_factory=dict)
    orphans: set[int] = msgspec.field(default_factory=set)

    def find_results(self) -> set[int]:
        return self.orphans | {slot.result for own in self.slots.values() for slot in own if slot.result is not None}


class Unpaired(msgspec.Struct, frozen=True):
    """What is wrong with the tool calls and results of a transcript, by the indexes of its messages."""

    calls: tuple[int, ...]  # of the message of each call without a result
    results: tuple[int, ...]  # of each result without a call
    misplaced: tuple[int, ...]  # of each result that is not right after the message of its call
    misnamed: tuple[int, ...] = ()  # of each result that has another id than its call


def find_unpaired(messages: Sequence[Message]) -> Unpaired | None:
    """What is wrong with the calls and results; None if every call has one result right after it."""
    if is_paired(messages):
        return None
    pairs, run_starts, start = _match(messages), dict[int, int](), 0
    results = pairs.find_results()
    for index in range(len(messages)):
        if index in results:
            run_starts[index] = start
        else:
            start = index + 1
    slots = [(index, slot) for index, own in pairs.slots.items() for slot in own]
    answered = sorted((slot.result, at, slot.call) for at, slot in slots if slot.result is not None)
    found = Unpaired(
        calls=tuple(index for index, slot in slots if slot.result is None),
        results=tuple(sorted(pairs.orphans)),
        misplaced=tuple(index for index, at, _ in answered if run_starts[index] != at + 1),
        misnamed=tuple(index for index, _, call in answered if _is_misnamed(messages[index], call)),
    )
    return found if found.calls or found.results or found.misplaced or found.misnamed else None


def _is_misnamed(message: Message, call: ToolCall) -> bool:
    """Whether a result has the id of no call, and its call has one."""
    return bool(message.answers and call.id) and message.answers != call.id


def describe_unpaired(unpaired: Unpaired, origins: Sequence[Origin | None], member: str) -> str:
    """What is wrong and what to do, in words for the client, without any text of the conversation.

    `origins`: those of the messages. `member`: the name of the request's list of elements.
    """
    kinds = (
        (unpaired.calls, "call has no result", "calls have no result"),
        (unpaired.results, "result has no call", "results have no call"),
        (unpaired.misplaced, "result is not right after its call", "results are not right after their calls"),
        (unpaired.misnamed, "result has the id of no call", "results have the ids of no calls"),
    )
    found = [
        f"{len(indexes)} {one if len(indexes) == 1 else many} ({_name_elements(indexes, origins, member)})"
        for indexes, one, many in kinds
        if indexes
    ]
    return (
        f"The tool calls and results of this request are not paired: {'; '.join(found)}."
        " Send exactly one result for each call, right after the message with the call."
        " trimtab is configured to refuse other requests (pairing: refuse); with pairing: repair it repairs them."
    )


def _name_elements(indexes: Sequence[int], origins: Sequence[Origin | None], member: str) -> str:
    places = dict.fromkeys(origin for index in indexes if (origin := origins[index]) is not None)
    spans = dict.fromkeys((place.start, place.stop - 1) for place in places)
    named = [f"{member}[{start}]" if start >= last else f"{member}[{start}-{last}]" for start, last in spans]
    rest = len(named) - MAX_NAMED
    return ", ".join(named[:MAX_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def pair_tool_calls(conversation: Conversation, *, count: CountTokens) -> Outcome:
    """Answer open calls with `aborted`, and move results right after their call.

    A result with the id of no call gets that of its call, if it can be placed all the same. Results without a call are
    dropped, unless a turn of the user begins with them: these become one message of the user.
    """
    messages = conversation.messages
    if is_paired(messages):
        return Outcome(conversation)
    pairs = _match(messages)
    turns = _find_turns(messages, pairs.orphans)
    order = _order(conversation, pairs, turns, count)
    named, misnamed = _name_calls(messages, pairs)
    if order == list(range(len(messages))) and not misnamed:
        is_same = all(map(is_, named, messages))
        return Outcome(conversation if is_same else conversation.edit(named))
    paired = tuple(named[item] if isinstance(item, int) else item for item in order)
    origins = tuple(conversation.origins[item] if isinstance(item, int) else None for item in order)
    outcome = replace(conversation, messages=paired, origins=origins)
    first = next((at for at, item in enumerate(order) if item != at or at in misnamed), len(order))
    answered = sum(isinstance(item, Message) and item.answers is not None for item in order)
    written = sum(map(len, turns.results.values()))
    # The client's index decreases right after a result that was moved forward.
    moved = sum(right < left for left, right in pairwise(item for item in order if isinstance(item, int)))
    reason = f"{answered} calls answered, {len(pairs.orphans) - written} results dropped, {moved} results moved"
    reason += f", {len(misnamed)} results renamed" if misnamed else ""
    reason += f", {written} results written as text" if written else ""
    touched = answered + len(pairs.orphans) + moved + len(misnamed)
    decision = Decision("pairing", reason, conversation.tokens, outcome.tokens, touched, first)
    return Outcome(outcome, (decision,), ((),))  # who was moved, dropped or written as text, the origins say


class Pairing:
    """Pairs the calls of a transcript that grows. What was paired in an earlier request is not looked at again."""

    __slots__ = ("_stop",)

    def __init__(self) -> None:
        self._stop = 0  # of the messages before it, those behind the leading ones are paired

    def pair(self, conversation: Conversation, leading: int, count: CountTokens) -> Outcome:
        """As `pair_tool_calls`; the `leading` messages may be others than before.

        If the upstream holds earlier messages, a call or a result without its counterpart stays as it is.
        """
        messages = conversation.messages
        if conversation.continues:
            return Outcome(conversation)
        if not (is_paired(messages[:leading]) and is_paired(messages[max(self._stop, leading) :])):
            return pair_tool_calls(conversation, count=count)
        self._stop = len(messages)
        return Outcome(conversation)


def is_paired(messages: Sequence[Message]) -> bool:
    """Whether exactly the results of its calls follow each message, in the calls' order. The usual case."""
    wanted: tuple[ToolCall | None, ...] = (None,)  # the newest calls; None behind the last one
    answered = 0
    for message in messages:
        asked = wanted[answered]
        if message.role is Role.TOOL and message.answers is not None:
            if asked is None or asked.id != message.answers:
                return False
            answered += 1
        elif asked is not None:
            if not _may_answer(message) or message.form != asked.form or message.name not in (None, asked.name):
                return False
            answered += 1
        elif message.tool_calls:
            wanted, answered = (*message.tool_calls, None), 0
    return wanted[answered] is None


def _may_answer(message: Message) -> bool:
    """Whether a message that names no call may be the result of one: it has a legacy role, or one that is not known.

    One with calls of its own is none.
    """
    if message.role is Role.TOOL:
        return message.answers is None and not message.is_written
    return message.role is Role.OTHER and not message.tool_calls


def _match(messages: Sequence[Message]) -> _Pairs:
    """Give each result to an open call with its id: the nearest message's, and in that message the oldest such call.

    A result that has no id, or one that none of the newest calls has, goes to one of these: to the oldest one of the
    tool that it names, or else by its position. Forms must fit. One with the id of an earlier call that was not
    answered is too late.
    """
    # Strategy: one pass. A result takes the call with its id at once, the nearest first. What no id places waits until
    # the model speaks again, or the transcript ends: then the calls that are still open are known, and it is placed by
    # the name of its tool, else in order. So nothing that comes later changes a pair that was closed before.
    pairs = _Pairs()
    calling = _Calling(pairs, messages)
    for index, message in enumerate(messages):
        if message.role is Role.TOOL and message.answers is not None:
            calling.answer(index, message)
        else:
            calling.go_on(index, message)
    calling.place_rest()
    return pairs


class _Calling:
    """The calls that results may answer, while a transcript is read from its first message on."""

    def __init__(self, pairs: _Pairs, messages: Sequence[Message]) -> None:
        self._pairs = pairs
        self._messages = messages
        self._open = defaultdict[str, list[_Asked]](list)  # by id, the newest message last
        self._late: set[str] = set()  # of earlier calls, which were not answered
        self._newest: list[_Asked] = []  # the newest messages of the assistant
        self._rest: list[int] = []  # results behind these that no id has placed
        self._is_answer = False  # whether the last message was one of the assistant
        self._is_behind = False  # whether only results came since then
        self._is_unread = False  # whether they answer calls that were not read

    def go_on(self, index: int, message: Message) -> None:
        """Add a message that is no result. After an answer of the model, no earlier call is answered any more."""
        is_answer = message.role is Role.ASSISTANT
        if is_answer and not self._is_answer:
            self.place_rest()
            slots = [slot for one in self._newest for slot in one.slots]
            self._late.update(slot.call.id for slot in slots if slot.result is None)
            self._newest = []
            self._open.clear()
        if _may_answer(message) and self._is_behind:
            self._is_answer = False
            self._rest.append(index)
            return
        self._is_answer = self._is_behind = is_answer
        self._is_unread = message.has_unread_calls
        if message.tool_calls:
            slots = self._pairs.slots[index] = [_Slot(call) for call in message.tool_calls]
            asked = _Asked(slots, Waiting(message.tool_calls))
            self._newest.append(asked)
            for call_id in dict.fromkeys(call.id for call in message.tool_calls):
                self._open[call_id].append(asked)

    def answer(self, index: int, message: Message) -> None:
        call_id, queues = message.answers or "", self._open.get(message.answers or "")
        self._is_answer = False
        while queues:
            if (at := queues[-1].waiting.take(call_id, message.name)) is not None:
                queues[-1].slots[at].result = index
                return
            queues.pop()
        if self._is_unread:
            return
        self._pairs.orphans.add(index)
        if not call_id or call_id not in self._late:
            self._rest.append(index)

    def place_rest(self) -> None:
        """Place the results that no id has placed, as far as they can be. Nothing else will answer the calls."""
        rest, self._rest = self._rest, []
        if not (rest and self._newest):
            return
        open_slots = [one.slots[at] for one in self._newest for at in one.waiting.list()]
        named, unnamed = defaultdict[_Form, deque[_Slot]](deque), defaultdict[str, list[int]](list)
        for slot in open_slots:
            named[slot.call.form, slot.call.name].append(slot)
        for index in rest:
            message = self._messages[index]
            if alike := named.get((message.form, message.name)):
                self._put(index, alike.popleft())
            else:
                unnamed[message.form].append(index)
        for form, indexes in unnamed.items():
            left = (slot for slot in open_slots if slot.call.form == form and slot.result is None)
            for index, slot in zip(indexes, left, strict=False):
                self._put(index, slot)

    def _put(self, index: int, slot: _Slot) -> None:
        slot.result = index
        self._pairs.orphans.discard(index)


class _Turns(NamedTuple):
    """Turns of the user that begin with results without a call.

    results: their indexes, by the first of them. words: the user's first own message in each turn that has one.
    """

    results: dict[int, list[int]]
    words: set[int]


def _find_turns(messages: Sequence[Message], orphans: AbstractSet[int]) -> _Turns:
    # No turn begins behind calls, or behind what has no words, such as a provider's compaction: some templates do not
    # count these as an answer.
    turns, turn, is_begun = _Turns({}, set()), list[int](), False
    for index, message in enumerate(messages):
        if index in orphans:
            if not is_begun:
                turn.append(index)
                turns.results[turn[0]] = turn
        elif message.role is Role.ASSISTANT:
            turn, is_begun = [], bool(message.tool_calls or message.has_unread_calls or not message.texts)
        elif message.role is not Role.SYSTEM:
            is_begun = True
            if turn and message.speaker is Role.USER:
                turns.words.add(index)
                turn = []
    return turns


def _order(conversation: Conversation, pairs: _Pairs, turns: _Turns, count: CountTokens) -> list[int | Message]:
    """The forwarded order: the index of each message, and in between the messages that are made.

    Those are `aborted` as the result of a call without one, and the results that a turn begins with as one message of
    the user. If the user says more in that turn, a line of the assistant stands between the two.
    """
    order: list[int | Message] = []
    messages, results = conversation.messages, pairs.find_results()
    for index in range(len(messages)):
        if index in turns.results:
            order.append(_write_turn([messages[at] for at in turns.results[index]], count))
        if index in results:
            continue
        if index in turns.words and _may_speak(conversation, index):
            said = Message(Role.ASSISTANT, (ACKNOWLEDGEMENT,), beside=find_beside(messages[:index]))
            order.append(finish_message(said, count))
        order.append(index)
        slots = pairs.slots.get(index, [])
        answered = sorted(slot.result for slot in slots if slot.result is not None)
        order.extend(answered)
        order.extend(_answer(slot.call, count) for slot in slots if slot.result is None)
    return order


def _may_speak(conversation: Conversation, index: int) -> bool:
    """Whether a line of the assistant before this message is needed, and can be written."""
    shape = conversation.shape
    is_sealed = shape.seals_reasoning and any(one.has_reasoning for one in conversation.messages[:index])
    return shape.alternates and not is_sealed


def _answer(call: ToolCall, count: CountTokens) -> Message:
    return finish_message(Message(Role.TOOL, (NO_RESULT,), answers=call.id, answers_json=call.id_json), count)


def _write_turn(results: Sequence[Message], count: CountTokens) -> Message:
    """Results without a call, as a client would write them as text in a message of the user."""
    made = Message(
        Role.TOOL,
        # Of an image only its line: some parts of results are refused in a message of the user.
        tuple(text for one in results for text in (*one.texts, *(part.line for part in one.media if part.line))),
        edited=True,
        taken_in=tuple(one.raw for one in results),
        wire_role="user",
        header=RESULT_HEADER,
        keep=any(one.keep for one in results),
    )
    digest = digest_message(made, (one.digest for one in results))
    return replace(made, tokens=count_message(made.as_said(), count), digest=digest)


def _name_calls(messages: Sequence[Message], pairs: _Pairs) -> tuple[list[Message], set[int]]:
    """The messages with results that have the ids of their calls, and the indexes of those that had the id of no call.

    Results without an id keep their bytes: only the other rules know which calls they answer.
    """
    named, misnamed = list(messages), set[int]()
    for call, index in ((slot.call, slot.result) for slots in pairs.slots.values() for slot in slots):
        if index is None or messages[index].answers in (None, call.id):
            continue
        named[index] = replace(messages[index], answers=call.id)
        if _is_misnamed(messages[index], call):
            named[index] = replace(named[index], answers_json=call.id_json, edited=True)
            misnamed.add(index)
    return named, misnamed
