"""Retrieved memory: how much of it a transcript still carries. Under pressure it goes first, the oldest first.

Law: the fold counts every message without its memory, and the memory on top of that until it is dropped. A cut never
leaves memory from before it.
"""

from array import array
from bisect import bisect_left


class MemorySums:
    """Which messages hold retrieved memory, and what dropping it saves. Append-only."""

    __slots__ = ("_places", "_saved")

    def __init__(self) -> None:
        self._places = array("q")  # indexes of the messages that hold memory
        self._saved = array("q", (0,))

    def add(self, index: int, tokens: int) -> None:
        """Note that dropping the memory of message `index` saves this many tokens."""
        if tokens > 0:
            self._places.append(index)
            self._saved.append(self._saved[-1] + tokens)

    @property
    def size_bytes(self) -> int:
        """Approximate memory of this object in bytes."""
        return 16 * len(self._places)

    def saved(self, start: int, stop: int) -> int:
        """Tokens saved by dropping the memory of messages [start, stop)."""
        if not self._places or stop <= start:
            return 0
        return self._saved[bisect_left(self._places, stop)] - self._saved[bisect_left(self._places, start)]

    def behind(self, start: int) -> int:
        """Tokens saved by dropping the memory of all messages from `start` on."""
        return self._saved[-1] - self._saved[bisect_left(self._places, start)]

    def find_stop(self, start: int, tokens: int) -> int:
        """Index up to which memory must be dropped, from `start` on, to save this many tokens.

        If all memory together saves less, one past the last message that holds memory.
        """
        if not self._places:
            return 0
        rank = bisect_left(self._saved, self._saved[bisect_left(self._places, start)] + tokens)
        return self._places[min(max(rank, 1), len(self._places)) - 1] + 1
