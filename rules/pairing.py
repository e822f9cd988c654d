"""Rung 0: every tool call has exactly one result right behind it, and there is no result without a call.

Law: a transcript that was valid stays as it is. What was settled stays settled: once the model has answered (an
assistant message behind anything but another assistant message), calls before that answer are closed, so a longer
transcript changes nothing before its last, open stretch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rules.conversation import Conversation, CountTokens, Decision, Message, Outcome, ToolCall
from rules.prefix import digest_message
from rules.tokens import count_message

ABORTED = "aborted"
"""The result of a call that has none. Source: the wording of Codex, which models know."""


@dataclass(slots=True)
class _Slot:
    """A call and the index of the result that answers it."""

    call: ToolCall
    result: int | None = None


@dataclass(slots=True)
class _Pairs:
    """Slots by the index of the assistant message that makes the calls; results that answer nothing."""

    slots: dict[int, list[_Slot]] = field(default_factory=dict)
    orphans: set[int] = field(default_factory=set)


def pair_tool_calls(conversation: Conversation, *, count: CountTokens) -> Outcome:
    """Answer open calls with `aborted`, drop results without a call, move results right behind their call."""
    messages = conversation.messages
    if _is_paired(messages):
        return Outcome(conversation)
    pairs = _match(messages)
    order = _order(messages, pairs)
    if order == list(range(len(messages))) or not order:
        return Outcome(conversation)
    paired = tuple(messages[item] if isinstance(item, int) else _abort(item, count) for item in order)
    first = next((index for index, item in enumerate(order) if item != index), len(order))
    outcome = Conversation(paired, conversation.fixed_tokens)
    answered = sum(1 for item in order if not isinstance(item, int))
    moved = _count_moved(order)
    reason = f"{answered} calls answered, {len(pairs.orphans)} results dropped, {moved} results moved"
    touched = answered + len(pairs.orphans) + moved
    decision = Decision("pairing", reason, conversation.tokens, outcome.tokens, touched, first)
    return Outcome(outcome, (decision,))


def _is_paired(messages: Sequence[Message]) -> bool:
    """Whether every call's results stand right behind it in the calls' order, and no others: the usual case."""
    wanted: list[str] = []
    for message in messages:
        if message.role == "tool":
            if not wanted or wanted[0] != (message.answers or ""):
                return False
            del wanted[0]
        elif wanted:
            return False
        elif message.tool_calls:
            wanted = [call.id for call in message.tool_calls]
    return not wanted


def _match(messages: Sequence[Message]) -> _Pairs:
    """Give each result to the nearest open call with its id; the oldest where several calls share it."""
    pairs = _Pairs()
    open_slots: list[_Slot] = []
    previous_role = ""
    for index, message in enumerate(messages):
        if message.role == "assistant" and previous_role != "assistant":
            open_slots = []
        if message.tool_calls:
            slots = [_Slot(call) for call in message.tool_calls]
            pairs.slots[index] = slots
            open_slots = [*slots, *open_slots]
        elif message.role == "tool":
            slot = next((slot for slot in open_slots if slot.call.id == (message.answers or "")), None)
            if slot is None:
                pairs.orphans.add(index)
            else:
                slot.result = index
                open_slots.remove(slot)
        previous_role = message.role
    return pairs


def _order(messages: Sequence[Message], pairs: _Pairs) -> list[int | ToolCall]:
    """The forwarded order: indexes of messages, and the calls that need a made-up result."""
    order: list[int | ToolCall] = []
    for index, message in enumerate(messages):
        if message.role == "tool":
            continue
        order.append(index)
        slots = pairs.slots.get(index, [])
        answered = sorted(slot.result for slot in slots if slot.result is not None)
        order.extend(answered)
        order.extend(slot.call for slot in slots if slot.result is None)
    return order


def _abort(call: ToolCall, count: CountTokens) -> Message:
    message = Message("tool", (ABORTED,), answers=call.id)
    return Message(
        "tool", (ABORTED,), answers=call.id, digest=digest_message(message), tokens=count_message(message, count)
    )


def _count_moved(order: list[int | ToolCall]) -> int:
    """Results that stand elsewhere than the client put them: each place where the order goes back."""
    kept = [item for item in order if isinstance(item, int)]
    return sum(1 for left, right in pairwise(kept) if right < left)
