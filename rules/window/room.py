"""The room: the tokens of the limit that the head leaves for the conversation.

Law: small changes of the head (a timestamp, a tool that comes or goes) must not move a cut. So the head's size is
rounded up.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rules.conversation import Message, Role, count_leading
from rules.window.open_step import bare_tokens

MIN_ROOM_SHARE = 0.25
"""Share of the limit. With less room, cuts would come at nearly every step. Then a cut is made only if the request
would not fit otherwise. Chosen: in a smaller room, high and low water are about one tool result apart."""
LEAST_ROOM_SHARE = 1 / 16
"""Share of the limit. With less room nothing is cut. Chosen: less room cannot hold a summary and one step."""
HEAD_STEPS = 16
"""The head's size is rounded up to a multiple of limit / 16. Chosen: larger than a timestamp or one small tool."""


@dataclass(frozen=True, slots=True)
class Room:
    """The tokens that the head leaves of `limit`: `early` before the first user message, `tokens` from then on.

    leading: number of leading messages, which always stay.
    spare: tokens that a request may have over the limit before its newest messages are shortened.
    task_tokens: what the task statement may cost if the head alone exceeds the limit; None if the head fits.
    late: the room after the task statement is shortened. The fold changes to it once the window is full, if the head
        fits but leaves no room for cuts. None if the head leaves enough room.
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
        """Measure the room that the head of these messages leaves.

        `fixed_tokens` is the cost of tools and other parts outside the messages. If `shortens` is true, the task
        statement may be shortened.
        """
        leading = count_leading(messages)
        head = fixed_tokens + sum(message.tokens for message in messages[:leading])
        task = next((message for message in messages[leading:] if message.role is Role.USER), None)
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
    """The most that the task statement may cost, in tokens; None if the rest of the head is too long by itself.

    It leaves MIN_ROOM_SHARE of the limit to the conversation. If the rest of the head is too long for that, the task
    gets all that is left of the limit. Its oldest images are removed if shortening its text is not enough. The head is
    rounded up, so a timestamp in it does not change the shortened text.
    """
    left = _leave(limit, head)
    caps = (left - int(limit * MIN_ROOM_SHARE), left)
    return next((cap for cap in caps if cap >= bare_tokens(task)), None)


def _leave(limit: int, head: int) -> int:
    grain = max(limit // HEAD_STEPS, 1)
    return limit - -(-head // grain) * grain
