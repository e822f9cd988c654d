"""A mapping that forgets what was used longest ago, bounded by bytes, and its shares for several holders.

Law: what one holder keeps is found by nobody else. If the bound is passed, whoever holds most forgets first.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, Self, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

ENTRY_BYTES = 200
"""What an entry costs beside its content: the dictionary's slot, the links, the key object."""
SLACK = 64
"""Of several shares, whoever holds most forgets one part in so many of the bound at once.

It is looked for each time, and thousands of entries may be written in a row.
"""


class _Bound:
    """What all shares hold together. `filled` are the shares that hold anything; the lock is that of all of them."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.total_bytes = 0
        self.filled: set[BytesLRU[Any, Any]] = set()
        self.lock = threading.Lock()

    def keep(self) -> None:
        """Forget until the bound holds. The lock is held."""
        if len(self.filled) == 1:
            (only,) = self.filled
            only.shrink(self.max_bytes)
            return
        slack_bytes = self.max_bytes // SLACK
        while self.total_bytes > self.max_bytes:
            largest = max(self.filled, key=_tell_bytes)
            largest.shrink(largest.total_bytes - max(slack_bytes, 1))


class BytesLRU(Generic[K, V]):
    """At most `max_bytes` of entries, each as large as `size(key, value)` says. Thread-safe."""

    def __init__(self, max_bytes: int, size: Callable[[K, V], int], *, bound: _Bound | None = None) -> None:
        self._size = size
        self._bound = bound or _Bound(max_bytes)
        self.total_bytes = 0
        """Of all entries that there are now, without those of other shares."""
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = self._bound.lock
        self._is_closed = False

    def share(self) -> Self:
        """Another mapping, empty at first, within the same bound."""
        return type(self)(self._bound.max_bytes, self._size, bound=self._bound)

    def close(self) -> None:
        """Forget everything, and keep nothing from now on."""
        with self._lock:
            self._is_closed = True
            self.shrink(0)

    def get(self, key: K) -> V | None:
        """The value, which counts as used now; None where there is none."""
        with self._lock:
            return self._use(key)

    def get_many(self, keys: Iterable[K]) -> list[V | None]:
        """The value of each key, as `get` has it; the lock is taken once for all."""
        with self._lock:
            return [self._use(key) for key in keys]

    def _use(self, key: K) -> V | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def pop(self, key: K) -> V | None:
        """Take the value out; None where there is none."""
        return self.pop_first((key,))

    def pop_first(self, keys: Iterable[K]) -> V | None:
        """Take out the value of the first key that has one; None if none has. The lock is taken once for all."""
        with self._lock:
            for key in keys:
                entry = self._entries.pop(key, None)
                if entry is not None:
                    self._grow(-entry[1])
                    return entry[0]
            return None

    def items(self) -> list[tuple[K, V]]:
        """What there is now, the least recently used first."""
        with self._lock:
            return [(key, value) for key, (value, _) in self._entries.items()]

    def find_missing(self, keys: Iterable[K]) -> list[K]:
        """The keys that have no value."""
        with self._lock:
            return [key for key in keys if key not in self._entries]

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def __setitem__(self, key: K, value: V) -> None:
        size = self._size(key, value) + ENTRY_BYTES
        with self._lock:
            replaced = self._entries.pop(key, None)
            if size > self._bound.max_bytes or self._is_closed:
                self._grow(-replaced[1] if replaced else 0)
                return
            self._entries[key] = (value, size)
            self._grow(size - (replaced[1] if replaced else 0))
            if self._bound.total_bytes > self._bound.max_bytes:
                self._bound.keep()

    def shrink(self, most_bytes: int) -> None:
        """Forget until no more than that is left, what was used longest ago first. The lock is held."""
        while self._entries and self.total_bytes > most_bytes:
            _, (_, forgotten) = self._entries.popitem(last=False)
            self._grow(-forgotten)

    def _grow(self, size_bytes: int) -> None:
        self.total_bytes += size_bytes
        self._bound.total_bytes += size_bytes
        if self._entries:
            self._bound.filled.add(self)
        else:
            self._bound.filled.discard(self)


def _tell_bytes(share: BytesLRU[Any, Any]) -> int:
    return share.total_bytes
