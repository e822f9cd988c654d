"""Where tool results stand, each with its own call and its treatment.

Law: what a result's call is, is decided by what stands before it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from rules.conversation import RESULT_ROLES, Message, ToolCall, count_leading
from rules.policy import Policy
from rules.treatment import Treatment


class Place(NamedTuple):
    """Where a tool result stands; the call that it answers, where there is one; and how its tool's are treated.

    `treatment_name` tells treatments apart as their equality does, and is hashed once.
    """

    at: int
    call: ToolCall | None
    treatment: Treatment
    treatment_name: str


def find_results(messages: Sequence[Message], policy: Policy, start: int = 0) -> list[Place]:
    """Each tool result from `start` on, oldest first, with the last call before it that has the id it answers.

    Of several calls with one id in one message, results get the oldest that has none yet. Results of the legacy kind
    answer no id: their call is the last one of that name. Leading system messages make none.
    """
    places: list[Place] = []
    calls: dict[str, list[ToolCall]] = {}
    by_name: dict[str, ToolCall] = {}
    treatments: dict[str, tuple[Treatment, str]] = {}
    leading = count_leading(messages)
    for index, message in enumerate(messages[max(start, leading) :], max(start, leading)):
        if message.role not in RESULT_ROLES:
            calls |= _line_up(message.tool_calls)
            by_name |= {call.name: call for call in message.tool_calls}
            continue
        if message.role != "tool":
            found = by_name.get(message.name or "")
        else:
            found = _take_call(calls.get(message.answers or ""))
        if found is None and start > leading:  # its call may stand before
            return [place for place in find_results(messages, policy) if place.at >= start]
        name = found.name if found is not None else message.name or ""
        known = treatments.get(name)
        if known is None:
            treatment = policy.find_treatment(name)
            known = treatments[name] = treatment, repr(treatment)
        places.append(Place(index, found, *known))
    return places


def _line_up(calls: Sequence[ToolCall]) -> dict[str, list[ToolCall]]:
    """One message's calls by their ids, the newest first."""
    lined_up: dict[str, list[ToolCall]] = {}
    for call in reversed(calls):
        lined_up.setdefault(call.id, []).append(call)
    return lined_up


def _take_call(waiting: list[ToolCall] | None) -> ToolCall | None:
    """The next call to be answered; the last one is for all results that are left."""
    if not waiting:
        return None
    return waiting.pop() if len(waiting) > 1 else waiting[0]
