"""Calls that a server answers itself in a later message. Everything from such a call to its result is one unit.

Law: append-only. Whether a message belongs to the unit of those before it depends on these alone.
"""

from rules.conversation import Message, Role


class Spans:
    """The server's calls that wait for their results after the messages added so far.

    A call that the model no longer speaks of, once the user has said something else, is not waited for any more.
    """

    __slots__ = ("_heard", "_waiting")

    def __init__(self) -> None:
        self._waiting: set[str] = set()
        self._heard = False  # whether the user has spoken since the newest of them

    def add(self, message: Message) -> bool:
        """Add the next message; return whether it belongs to the unit of those before it."""
        served = message.served
        if not (self._waiting or served.opens):
            return False
        if message.role is Role.ASSISTANT and self._heard:
            self._waiting.intersection_update((*served.closes, *served.goes_on))
        is_bound = bool(self._waiting)
        self._waiting.difference_update(served.closes)
        self._waiting.update(served.opens)
        self._heard = (self._heard or message.role is Role.USER) and not served.opens and bool(self._waiting)
        return is_bound

    def give_up(self) -> None:
        """Wait for no result any more."""
        self._waiting.clear()
        self._heard = False
