"""Calls that an agent makes again and again because their results are removed each time.

Law: append-only. A call counts if the result of the last equal call was removed when it was made. Sessions in which no
call is repeated after a removal have none.
"""

from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import islice

from rules.conversation import Message

REMOVALS = 3
"""A call that was made this many times after its result was removed is a loop. Source: the design of the ladder: the
same call three times after a cut."""
MAX_LOOPS = 16
"""Number of newest loops whose results are kept. Chosen: bounds the work of each decision."""
CALL_BYTES = 120
"""Memory of one call: a number of eight bytes as an object, and its entry. An estimate for CPython, rounded up."""


class Repeats:
    """The newest step of each different call, and the loops. Calls are equal if name and arguments are."""

    __slots__ = ("_loops", "_newest", "_times")

    def __init__(self) -> None:
        self._newest: dict[int, int] = {}
        self._times: dict[int, int] = {}
        self._loops: dict[int, int] = {}  # the step of the newest call, the newest loop last

    @property
    def size_bytes(self) -> int:
        """Approximate memory of this object in bytes."""
        return CALL_BYTES * (len(self._newest) + len(self._times) + len(self._loops))

    def add(self, index: int, message: Message, is_removed: Callable[[int], bool]) -> None:
        """Add the calls of message `index`; `is_removed` tells whether the results of an earlier step were removed."""
        for call in message.tool_calls:
            named = f"{len(call.name)}:{call.name}{call.arguments}".encode("utf-8", "surrogatepass")
            key = int.from_bytes(sha256(named).digest()[:8])
            before = self._newest.get(key, index)
            self._newest[key] = index
            if before < index and is_removed(before):
                self._times[key] = self._times.get(key, 0) + 1
            if self._times.get(key, 0) >= REMOVALS:
                self._loops.pop(key, None)
                self._loops[key] = index

    def list(self) -> Iterator[int]:
        """The steps of the newest loops, newest first, each once."""
        return iter(dict.fromkeys(islice(reversed(self._loops.values()), MAX_LOOPS)))
