"""Rung 0: every tool call has exactly one result right after it, and no result is without a call.

Law: a valid transcript stays unchanged. An assistant message that does not follow another assistant message closes all
earlier calls: a late result is dropped. So a longer transcript never changes anything before its last open calls.
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from rules.conversation import Conversation, CountTokens, Decision, Message, Origin, Outcome, Role, ToolCall
from rules.text.markers import NO_RESULT
from rules.tokens.messages import finish_message

MAX_NAMED = 10
"""Elements that a description names of each kind. Chosen: enough to find the mistake; a message stays readable."""


@dataclass(slots=True, eq=False)
class _Slot:
    """A call, and the index of the message that answers it."""

    call: ToolCall
    result: int | None = None


_OpenSlots = defaultdict[str, list[deque[_Slot]]]
"""Calls without a result, by id: one queue for each assistant message, newest message last; in a queue, oldest call
first."""


@dataclass(slots=True)
class _Pairs:
    """Which result answers which call.

    slots: the calls of each assistant message, by its index.
    orphans: indexes of the results that answer no call.
    """

    slots: dict[int, list[_Slot]] = field(default_factory=dict)
    orphans: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Unpaired:
    """What is wrong with the tool calls and results of a transcript, by the indexes of its messages.

    calls: of the message of each call without a result.
    results: of each result without a call.
    misplaced: of each result that is not right after the message of its call.
    """

    calls: tuple[int, ...]
    results: tuple[int, ...]
    misplaced: tuple[int, ...]


def find_unpaired(messages: Sequence[Message]) -> Unpaired | None:
    """What is wrong with the calls and results; None if every call has one result right after it."""
    if _is_paired(messages):
        return None
    pairs, run_starts, start = _match(messages), dict[int, int](), 0
    for index, message in enumerate(messages):
        if message.role is Role.TOOL and message.answers is not None:
            run_starts[index] = start
        else:
            start = index + 1
    slots = [(index, slot) for index, own in pairs.slots.items() for slot in own]
    found = Unpaired(
        calls=tuple(index for index, slot in slots if slot.result is None),
        results=tuple(sorted(pairs.orphans)),
        misplaced=tuple(
            sorted(slot.result for at, slot in slots if slot.result is not None and run_starts[slot.result] != at + 1)
        ),
    )
    return found if found.calls or found.results or found.misplaced else None


def describe_unpaired(unpaired: Unpaired, origins: Sequence[Origin | None], member: str) -> str:
    """What is wrong and what to do, in words for the client, without any text of the conversation.

    `origins`: those of the messages. `member`: the name of the request's list of elements.
    """
    kinds = (
        (unpaired.calls, "call has no result", "calls have no result"),
        (unpaired.results, "result has no call", "results have no call"),
        (unpaired.misplaced, "result is not right after its call", "results are not right after their calls"),
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
    """Answer open calls with `aborted`, drop results without a call, and move results right after their call.

    A transcript that consists only of results without calls stays unchanged.
    """
    messages = conversation.messages
    if _is_paired(messages):
        return Outcome(conversation)
    pairs = _match(messages)
    order = _order(messages, pairs)
    if order == list(range(len(messages))) or not order:
        return Outcome(conversation)  # no order: only orphans; an empty transcript would be no better than these
    paired = tuple(messages[item] if isinstance(item, int) else _answer(item, count) for item in order)
    origins = tuple(conversation.origins[item] if isinstance(item, int) else None for item in order)
    first = next((index for index, item in enumerate(order) if item != index), len(order))
    outcome = replace(conversation, messages=paired, origins=origins)
    answered = sum(1 for item in order if not isinstance(item, int))
    # The client's index decreases right after a result that was moved forward.
    moved = sum(right < left for left, right in pairwise(item for item in order if isinstance(item, int)))
    reason = f"{answered} calls answered, {len(pairs.orphans)} results dropped, {moved} results moved"
    touched = answered + len(pairs.orphans) + moved
    decision = Decision("pairing", reason, conversation.tokens, outcome.tokens, touched, first)
    return Outcome(outcome, (decision,))


def _is_paired(messages: Sequence[Message]) -> bool:
    """Whether exactly the results of its calls follow each message, in the calls' order. The usual case."""
    wanted: Sequence[ToolCall] = ()
    answered = 0
    for message in messages:
        if message.role is Role.TOOL and message.answers is not None:
            if answered == len(wanted) or wanted[answered].id != message.answers:
                return False
            answered += 1
        elif answered < len(wanted):
            return False
        elif message.tool_calls:
            wanted, answered = message.tool_calls, 0
    return answered == len(wanted)


def _match(messages: Sequence[Message]) -> _Pairs:
    """Give each result to an open call with its id: the nearest message's, and in that message the oldest such call."""
    pairs = _Pairs()
    open_slots: _OpenSlots = defaultdict(list)
    previous_role: Role | None = None
    for index, message in enumerate(messages):
        if message.role is Role.ASSISTANT and previous_role is not Role.ASSISTANT:
            open_slots.clear()
        if message.role is Role.TOOL and message.answers is not None:
            slot = _take_slot(open_slots, message.answers)
            if slot is None:
                pairs.orphans.add(index)
            else:
                slot.result = index
        elif message.tool_calls:
            pairs.slots[index] = _open_slots(open_slots, message.tool_calls)
        previous_role = message.role
    return pairs


def _open_slots(open_slots: _OpenSlots, calls: Sequence[ToolCall]) -> list[_Slot]:
    """Make a slot for each call of one message. Results take these before the slots of earlier messages."""
    slots = [_Slot(call) for call in calls]
    own: defaultdict[str, deque[_Slot]] = defaultdict(deque)
    for slot in slots:
        own[slot.call.id].append(slot)
    for call_id, queue in own.items():
        open_slots[call_id].append(queue)
    return slots


def _take_slot(open_slots: _OpenSlots, call_id: str) -> _Slot | None:
    queues = open_slots.get(call_id)
    if not queues:
        return None
    slot = queues[-1].popleft()
    if not queues[-1]:
        queues.pop()
    return slot


def _order(messages: Sequence[Message], pairs: _Pairs) -> list[int | ToolCall]:
    """The forwarded order: the index of each message, and in between the calls that get `ABORTED` as their result."""
    order: list[int | ToolCall] = []
    for index, message in enumerate(messages):
        if message.role is Role.TOOL and message.answers is not None:
            continue
        order.append(index)
        slots = pairs.slots.get(index, [])
        answered = sorted(slot.result for slot in slots if slot.result is not None)
        order.extend(answered)
        order.extend(slot.call for slot in slots if slot.result is None)
    return order


def _answer(call: ToolCall, count: CountTokens) -> Message:
    return finish_message(Message(Role.TOOL, (NO_RESULT,), answers=call.id), count)
