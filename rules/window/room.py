"""The room that the head leaves.

Law: what is volatile in the head (a timestamp, tools that come and go) must not move a cut, so its size is rounded up.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rules.conversation import Message, Role, count_leading
from rules.window.open_step import bare_tokens

MIN_ROOM_SHARE = 0.25
"""Of the limit. Below it cuts would come at nearly every step: they are made only where nothing else would fit."""
LEAST_ROOM_SHARE = 1 / 16
"""Below it there is no room for a summary and a step, and nothing is cut."""
HEAD_STEPS = 16
"""The head's size is rounded up to limit / 16: a timestamp or a tool more or less does not move a cut."""


@dataclass(frozen=True, slots=True)
class Room:
    """What the head leaves of `limit`: `early` until the first user message has come, `tokens` from then on.

    `spare` is what a request may have beyond the limit before its newest messages are shortened. `task_tokens` is what
    the task statement may cost if the head does not fit by itself; None if it does. `late` is the room behind a
    shortened task, to go over to when a head that fits leaves no room for cuts; None if it leaves enough.
    """

    limit: int
    leading: int
    early: int
    tokens: int
    spare: int = 0
    task_tokens: int | None = None
    late: "Room | None" = None

    @classmethod
    def measure(
        cls, messages: Sequence[Message], fixed_tokens: int, limit: int, *, spare: int = 0, shortens: bool = False
    ) -> "Room":
        """The room behind the head of these messages; `fixed_tokens` is what stands outside them.

        `shortens` says that the task statement may be shortened.
        """
        leading = count_leading(messages)
        head = fixed_tokens + sum(message.tokens for message in messages[:leading])
        task = next((message for message in messages if message.role is Role.USER), None)
        early = _leave(limit, head)
        if task is None:
            return cls(limit, leading, early, early, spare)
        cap = _cap_task(task, head, limit) if shortens else None
        capped = None if cap is None or cap >= task.tokens else cls(limit, leading, early, early - cap, spare, cap)
        if capped is not None and head + task.tokens > limit + spare:
            return capped
        room = _leave(limit, head + task.tokens)
        return cls(limit, leading, early, room, spare, late=capped if room < limit * LEAST_ROOM_SHARE else None)


def _cap_task(task: Message, head: int, limit: int) -> int | None:
    """What a task may cost if it leaves too little behind the rest of the head; None if that is too long by itself.

    It leaves MIN_ROOM_SHARE of the limit to the conversation to come; if the rest of the head is too long for that,
    what the limit holds. The oldest of its images give way if its text alone cannot. The head is rounded up, so that a
    timestamp in it does not change the shortened text.
    """
    left = _leave(limit, head)
    caps = (left - int(limit * MIN_ROOM_SHARE), left)
    return next((cap for cap in caps if cap >= bare_tokens(task)), None)


def _leave(limit: int, head: int) -> int:
    grain = max(limit // HEAD_STEPS, 1)
    return limit - -(-head // grain) * grain
