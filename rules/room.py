"""The room that the head leaves.

Law: what is volatile in the head (a timestamp, tools that come and go) must not move a cut, so its size is rounded up.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rules.conversation import Message, count_leading

MIN_ROOM_SHARE = 0.25
"""Of the limit. Below it cuts would come at nearly every step: they are made only where nothing else would fit."""
LEAST_ROOM_SHARE = 1 / 16
"""Below it there is no room for a summary and a step, and nothing is cut."""
HEAD_STEPS = 16
"""The head's size is rounded up to limit / 16: a timestamp or a tool more or less does not move a cut."""


@dataclass(frozen=True, slots=True)
class Room:
    """What the head leaves of `limit`: `early` until the first user message has come, `tokens` from then on."""

    limit: int
    leading: int
    early: int
    tokens: int

    @classmethod
    def measure(cls, messages: Sequence[Message], fixed_tokens: int, limit: int) -> "Room":
        """The room behind the head of these messages; `fixed_tokens` is what stands outside them."""
        leading = count_leading(messages)
        task = next((message.tokens for message in messages if message.role == "user"), 0)
        head = fixed_tokens + sum(message.tokens for message in messages[:leading])
        return cls(limit, leading, _leave(limit, head), _leave(limit, head + task))


def _leave(limit: int, head: int) -> int:
    grain = max(limit // HEAD_STEPS, 1)
    return limit - -(-head // grain) * grain
