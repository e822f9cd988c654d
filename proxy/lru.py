"""A mapping that forgets what was used longest ago, bounded by bytes."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

ENTRY_BYTES = 200
"""What an entry costs beside its content: the dictionary's slot, the links, the key object."""


class BytesLRU(Generic[K, V]):
    """At most `max_bytes` of entries, each as large as `size(key, value)` says. Thread-safe."""

    def __init__(self, max_bytes: int, size: Callable[[K, V], int]) -> None:
        self._max_bytes = max_bytes
        self._size = size
        self.total_bytes = 0
        """Of all entries that there are now."""
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()

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
                    self.total_bytes -= entry[1]
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

    def __len__(self) -> int:
        return len(self._entries)

    def __setitem__(self, key: K, value: V) -> None:
        size = self._size(key, value) + ENTRY_BYTES
        with self._lock:
            replaced = self._entries.pop(key, None)
            self.total_bytes -= replaced[1] if replaced else 0
            if size > self._max_bytes:
                return
            self.total_bytes += size
            self._entries[key] = (value, size)
            while self.total_bytes > self._max_bytes:
                _, (_, forgotten) = self._entries.popitem(last=False)
                self.total_bytes -= forgotten
