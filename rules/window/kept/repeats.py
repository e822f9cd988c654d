"""Calls that an agent makes again and again because their results are removed each time.

Law: append-only. A call counts if the result of the last equal call was just removed when it was made, and it has the
same result again. Sessions in which no call is repeated after a removal have none.
"""

from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import islice

from rules.conversation import Message

REMOVALS = 3
"""A call that was made this many times in a row right after its result was removed is a loop. Source: the design of the
ladder: the same call three times after a cut."""
MAX_LOOPS = 16
"""Number of newest loops whose results are kept. Chosen: bounds the work of each decision."""
CALL_BYTES = 120
"""Memory of one call: a number of eight bytes as an object, and its entry. An estimate for CPython, rounded up."""


class Repeats:
    """The newest step and result of each different call, and the loops.

    Calls are equal if name and arguments are. A call that was made before and now has another result is no loop: a test
    run, for example, is made again because something has changed.
    """

    __slots__ = ("_loops", "_newest", "_open", "_step", "_times")

    def __init__(self) -> None:
        self._newest: dict[int, tuple[int, int]] = {}  # by call: the step, and the result
        self._open: dict[str, tuple[int, int | None]] = {}  # by id: the call, and its result that was removed
        self._step = 0
        self._times: dict[int, int] = {}
        self._loops: dict[int, int] = {}  # the step of the newest call, the newest loop last

    @property
    def size_bytes(self) -> int:
        """Approximate memory of this object in bytes."""
        return CALL_BYTES * (len(self._newest) + len(self._times) + len(self._loops))

    def add(self, index: int, message: Message, is_just_removed: Callable[[int], bool]) -> None:
        """Add the calls of message `index`.

        `is_just_removed` tells whether the last removal took the results of an earlier step. If it was one before, the
        agent did without them for a while: that is no loop.
        """
        self._open, self._step = {}, index
        for call in message.tool_calls:
            key = _hash(f"{len(call.name)}:{call.name}{call.arguments}")
            step, result = self._newest.get(key, (index, 0))
            self._open[call.id] = key, result if step < index and is_just_removed(step) else None

    def answer(self, message: Message) -> None:
        """Add a result of the newest calls. A result that names no call by its id is left out."""
        key, removed = self._open.pop(message.answers or "", (None, None))
        if key is None:
            return
        result = _hash("\n".join(message.texts))
        self._newest[key] = self._step, result
        self._times[key] = self._times.get(key, 0) + 1 if result == removed else 0
        if self._times[key] >= REMOVALS:
            self._loops.pop(key, None)
            self._loops[key] = self._step

    def list(self) -> Iterator[int]:
        """The steps of the newest loops, newest first, each once."""
        return iter(dict.fromkeys(islice(reversed(self._loops.values()), MAX_LOOPS)))


def _hash(text: str) -> int:
    return int.from_bytes(sha256(text.encode("utf-8", "surrogatepass")).digest()[:8])
