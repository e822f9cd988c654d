"""Reminders: system and developer messages after the beginning. A cut keeps the newest of equal ones.

Law: append-only. Equal reminders have the same digest (`Message.digest`: role, name and texts), so white space in the
JSON or a cache marker does not make two of them differ.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator

from rules.conversation import Message

DIGEST_BYTES = 150
"""Memory of one digest: an entry of a dictionary, and an object of 32 bytes. An estimate for CPython, rounded up."""


class Reminders:
    """The reminders added so far, and which of them are the newest of their kind.

    The tokens of the newest ones are in a Fenwick tree: position p (from 1) holds the sum of the positions
    (p - (p & -p), p]. So a reminder that comes again, and any sum, costs O(log n).
    """

    __slots__ = ("_at", "_is_newest", "_newest", "_tree")

    def __init__(self) -> None:
        self._at = array("q")  # indexes of the messages
        self._is_newest = bytearray()  # 1 for a reminder that did not come again
        self._newest: dict[bytes, tuple[int, int]] = {}  # by digest: position, and tokens
        self._tree = array("q", (0,))

    @property
    def size_bytes(self) -> int:
        """Approximate memory of this object in bytes."""
        return 17 * len(self._at) + DIGEST_BYTES * len(self._newest)

    @property
    def newest(self) -> int:
        """Index of the newest reminder; -1 if there is none."""
        return self._at[-1] if self._at else -1

    def add(self, index: int, message: Message) -> None:
        """Add the next reminder."""
        self._at.append(index)
        self._is_newest.append(1)
        position = len(self._at)
        below, tokens = position - 1, message.tokens
        while below > position - (position & -position):
            tokens += self._tree[below]
            below -= below & -below
        self._tree.append(tokens)
        before, before_tokens = self._newest.get(message.digest, (0, 0))
        self._newest[message.digest] = position, message.tokens
        if before:
            self._is_newest[before - 1] = 0
            while before < len(self._tree):
                self._tree[before] -= before_tokens
                before += before & -before

    def fit(self, at: int, budget: int) -> tuple[int, int]:
        """Which reminders before message `at` are kept: the index of the oldest one, and the tokens of all of them.

        They are the newest of their kind, counted from the newest on, until the next one does not fit `budget`. A
        reminder that came again behind `at` is not kept before it.
        """
        stop = bisect_left(self._at, at)
        whole = self._sum(stop)
        # Find the most positions whose sum leaves more than the budget behind them: those are not kept.
        position, left = 0, whole - budget
        stride = 1 << len(self._at).bit_length()
        while stride and left > 0:
            if position + stride <= stop and self._tree[position + stride] < left:
                position += stride
                left -= self._tree[position]
            stride >>= 1
        # The message at this position does not fit. There may be none, if the budget is less than nothing.
        first = min(position + (left > 0), stop)
        tokens = whole - self._sum(first)
        return (self._at[first] if first < stop else at), tokens

    def list(self, start: int, at: int) -> Iterator[int]:
        """The indexes of the reminders in messages [start, at) that are the newest of their kind, oldest first."""
        for position in range(bisect_left(self._at, start), bisect_left(self._at, at)):
            if self._is_newest[position]:
                yield self._at[position]

    def _sum(self, position: int) -> int:
        tokens = 0
        while position:
            tokens += self._tree[position]
            position -= position & -position
        return tokens
