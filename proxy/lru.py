"""A mapping bounded by bytes that drops the least recently used entries, and shares of it for several holders.

Law: no holder finds the entries of another. If the bound is exceeded, the holder with the most bytes drops first.
"""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable
from operator import attrgetter
from typing import Any, Generic, Self, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

ENTRY_BYTES = 200
"""The cost of an entry in addition to its content: dictionary slot, links, key object. Chosen: a rough upper bound."""
SLACK = 64
"""With several shares, the largest one drops 1/64 of the bound at once.

Chosen: the search for the largest share then runs rarely, even if thousands of entries are written in a row.
"""
UNUSED_SLACK = 32  # 1/32 of the bound for unused entries is dropped at once. Chosen for the same reason.


_tell_bytes, _tell_unused_bytes = attrgetter("total_bytes"), attrgetter("unused_bytes")


class _Bound:
    """The bound of all shares together, with their common lock. `filled` are the shares with entries.

    `total_bytes` counts all entries, `unused_bytes` those that were never read.
    """

    def __init__(self, max_bytes: int, unused_share: float) -> None:
        self.usual_bytes, self.unused_share = max_bytes, unused_share
        self.tells_unused = unused_share < 1
        self.scale(1.0)
        self.total_bytes = 0
        self.unused_bytes = 0
        self.filled: set[BytesLRU[Any, Any]] = set()
        self.lock = threading.Lock()

    def scale(self, scale: float) -> None:
        self.max_bytes = int(scale * self.usual_bytes)
        self.max_unused_bytes = int(self.unused_share * self.max_bytes)

    def keep(self) -> None:
        slack_bytes = 0 if len(self.filled) == 1 else self.max_bytes // SLACK
        if self.tells_unused and self.unused_bytes > self.max_unused_bytes:
            self._keep_unused(self.max_unused_bytes - self.max_unused_bytes // UNUSED_SLACK)
        while self.total_bytes > self.max_bytes:
            largest = max(self.filled, key=_tell_bytes)
            largest.shrink(largest.total_bytes - max(self.total_bytes - self.max_bytes, slack_bytes, 1))

    def _keep_unused(self, most_bytes: int) -> None:
        before_bytes = 0
        # Each share keeps its newest entry, so this may end above `most_bytes`.
        while self.unused_bytes > most_bytes and self.unused_bytes != before_bytes:
            before_bytes = self.unused_bytes
            largest = max(self.filled, key=_tell_unused_bytes)
            largest.shrink_unused(largest.unused_bytes - (before_bytes - most_bytes))


class BytesLRU(Generic[K, V]):
    """A mapping of at most `max_bytes`; `size(key, value)` is the size of an entry in bytes. Thread-safe.

    Entries that were never read have at most `unused_share` of the bytes, except the newest one. So entries that come
    once do not displace entries that are read again and again. `is_used` says that a value was read under another key.
    """

    def __init__(
        self,
        max_bytes: int,
        size: Callable[[K, V], int],
        *,
        unused_share: float = 1.0,
        is_used: Callable[[V], bool] | None = None,
        bound: _Bound | None = None,
    ) -> None:
        self._size = size
        self._is_used = is_used
        self._bound = bound or _Bound(max_bytes, unused_share)
        self.total_bytes = 0
        """The bytes of all entries of this share."""
        self.unused_bytes = 0
        """The bytes of those that were never read."""
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._unused: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = self._bound.lock
        self._is_closed = False

    def share(self) -> Self:
        return type(self)(self._bound.max_bytes, self._size, is_used=self._is_used, bound=self._bound)

    def scale(self, scale: float) -> None:
        """Bound all shares by this share of the first bound, at once."""
        with self._lock:
            self._bound.scale(scale)
            self._bound.keep()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self.shrink(0)

    def get(self, key: K) -> V | None:
        """The value, which counts as used now; None if there is none."""
        entries, entry = self._entries, None
        if key not in entries:
            if key not in self._unused:
                return None
            with self._lock:
                return self._use_first(key)
        # Without the lock: each operation is whole, and only between them may another thread drop the entry.
        try:
            entry = entries[key]
            entries.move_to_end(key)
        except KeyError:
            pass
        return None if entry is None else entry[0]

    def get_many(self, keys: Iterable[K]) -> list[V | None]:
        """The value of each key, as from `get`. The lock is taken once at most."""
        entries, keys = self._entries, list(keys)
        found = list(map(entries.get, keys))  # no call of ours for each
        if None not in found:
            try:  # noqa: SIM105
                deque(map(entries.move_to_end, keys), 0)
            except KeyError:  # as in `get`
                pass
            return [entry[0] for entry in found if entry is not None]
        with self._lock:
            unused = self._unused
            return [
                self._use(key) if key in entries else self._use_first(key) if key in unused else None for key in keys
            ]

    def _use(self, key: K) -> V:
        # The caller holds the lock.
        self._entries.move_to_end(key)
        return self._entries[key][0]

    def _use_first(self, key: K) -> V | None:
        # The caller holds the lock.
        entry = self._unused.pop(key, None)
        if entry is None:
            return None
        self._entries[key] = entry
        self.unused_bytes -= entry[1]
        self._bound.unused_bytes -= entry[1]
        return entry[0]

    def pop(self, key: K) -> V | None:
        return self.pop_first((key,))

    def pop_first(self, keys: Iterable[K]) -> V | None:
        """Remove and return the value of the first key that has one; None if none has. The lock is taken once."""
        with self._lock:
            for key in keys:
                entry = self._take(key)
                if entry is not None:
                    return entry[0]
            return None

    def items(self) -> list[tuple[K, V]]:
        """All entries: those that were never read, then the others, least recently used first."""
        with self._lock:
            return [(key, value) for entries in (self._unused, self._entries) for key, (value, _) in entries.items()]

    def find_missing(self, keys: Iterable[K]) -> list[K]:
        entries, unused = self._entries, self._unused
        return [key for key in keys if key not in entries and key not in unused]

    def __contains__(self, key: K) -> bool:
        return key in self._entries or key in self._unused

    def __setitem__(self, key: K, value: V) -> None:
        size = self._size(key, value) + ENTRY_BYTES
        bound, entries = self._bound, self._entries
        with self._lock:
            if key in entries and size <= bound.max_bytes:  # the usual case: it takes the place of one like it
                known = entries[key]
                entries[key] = (value, size)
                entries.move_to_end(key)
                self.total_bytes -= known[1]
                bound.total_bytes -= known[1]
            else:
                if key in entries or key in self._unused:
                    self._take(key)
                if size > bound.max_bytes or self._is_closed:
                    return
                if not self.total_bytes:  # the first entry
                    bound.filled.add(self)
                if not bound.tells_unused or (self._is_used is not None and self._is_used(value)):
                    entries[key] = (value, size)
                else:
                    self._unused[key] = (value, size)
                    self.unused_bytes += size
                    bound.unused_bytes += size
            self.total_bytes += size
            bound.total_bytes += size
            if bound.total_bytes > bound.max_bytes or (
                bound.tells_unused and bound.unused_bytes > bound.max_unused_bytes
            ):
                bound.keep()

    def shrink(self, most_bytes: int) -> None:
        """Drop entries until at most that is left, least recently used first. The caller holds the lock.

        Entries that were never read go last: they have a bound of their own, and need time to be read.
        """
        while self._entries and self.total_bytes > most_bytes:
            _, (_, forgotten) = self._entries.popitem(last=False)
            self._shrink_by(forgotten)
        while self._unused and self.total_bytes > most_bytes:
            self._take(next(iter(self._unused)))

    def shrink_unused(self, most_bytes: int) -> None:
        """Drop entries that were never read, except the newest, to at most that size. The caller holds the lock."""
        while len(self._unused) > 1 and self.unused_bytes > most_bytes:
            self._take(next(iter(self._unused)))

    def _take(self, key: K) -> tuple[V, int] | None:
        # The caller holds the lock.
        entry = self._entries.pop(key, None)
        if entry is None:
            entry = self._unused.pop(key, None)
            if entry is None:
                return None
            self.unused_bytes -= entry[1]
            self._bound.unused_bytes -= entry[1]
        self._shrink_by(entry[1])
        return entry

    def _shrink_by(self, size_bytes: int) -> None:
        self.total_bytes -= size_bytes
        self._bound.total_bytes -= size_bytes
        if not self.total_bytes:
            self._bound.filled.discard(self)
