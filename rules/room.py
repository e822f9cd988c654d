"""The room that the head leaves.

Law: what is volatile in the head (a timestamp, tools that come and go) must not move a cut, so its size is rounded up.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rules.conversation import Message, count_leading
from rules.open_step import least_tokens

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
    the task statement may cost if the head is too long by itself; None if it is not.
    """

    limit: int
    leading: int
    early: int
    tokens: int
    spare: int = 0
    task_tokens: int | None = None

    @classmethod
    def measure(
        cls, messages: Sequence[Message], fixed_tokens: int, limit: int, *, spare: int = 0, shortens: bool = False
    ) -> "Room":
        """The room behind the head of these messages; `fixed_tokens` is what stands outside them.

        `shortens` says that the task statement may be shortened.
        """
        leading = count_leading(messages)
        head = fixed_tokens + sum(message.tokens for message in messages[:leading])
        task = next((message for message in messages if message.role == "user"), None)
        if task is None:
            return cls(limit, leading, _leave(limit, head), _leave(limit, head), spare)
        cap = _cap_task(task, head, limit, spare) if shortens else None
        room = _leave(limit, head + (task.tokens if cap is None else cap))
        return cls(limit, leading, _leave(limit, head), room, spare, cap)


def _cap_task(task: Message, head: int, limit: int, spare: int) -> int | None:
    """What a task may cost that does not fit behind the rest of the head; None if it fits, or cannot be made to.

    It leaves MIN_ROOM_SHARE of the limit to the conversation to come; if the rest of the head is too long for that,
    what the limit holds. The head is rounded up, so that a timestamp in it does not change the shortened text.
    """
    if head + task.tokens <= limit + spare:
        return None
    left = _leave(limit, head)
    caps = (left - int(limit * MIN_ROOM_SHARE), left)
    return next((cap for cap in caps if cap >= least_tokens(task)), None)


def _leave(limit: int, head: int) -> int:
    grain = max(limit // HEAD_STEPS, 1)
    return limit - -(-head // grain) * grain
