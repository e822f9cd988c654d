"""Bodies that begin with the bytes of an earlier one: an agent's next request repeats its last one and adds to it.

Law: only a matter of speed. What stands before the end of a common element was read once and means the same; all of a
body behind it is read. What was forgotten is read again.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol

from proxy.wire.elements import Written
from proxy.wire.json.spans import Array
from rules.conversation import Message

MIN_BYTES = 16 * 1024
"""A shorter body is read whole: that takes some 20 microseconds."""
HEAD_BYTES = 4 * 1024
"""By the first of its bytes an earlier body is found."""
MAX_ALIKE = 64
"""Bodies that begin with the same HEAD_BYTES: sessions of one agent, and branches of one session."""
MAX_COMPARED = 4
"""So many of them, the newest, are compared element by element if a body goes on from none of them."""
COPIES = 4
"""A body is held as it is, as its elements, as their texts, and as it was forwarded."""
ELEMENT_BYTES = 250
"""What an element costs in memory beside its characters."""


@dataclass(slots=True, eq=False)
class Beginning:
    """A body that was split into its elements, and what was made of these.

    `array` is where they stand, `raws` are their bytes, `parts` how many strings and commas there are at most up to the
    end of the last one. `decoded` are the messages of the first of them, one each, for each way of counting. `written`
    is what was last forwarded in their place. `is_grown`: the body goes on from an earlier one, or most of its
    elements were known: so others may go on from it.
    """

    body: bytes
    array: Array
    raws: tuple[bytes, ...]
    parts: int
    decoded: dict[int, tuple[Message, ...]] = field(default_factory=dict)
    written: Written | None = None
    is_grown: bool = False

    @property
    def size_bytes(self) -> int:
        """What it holds in memory, about."""
        return COPIES * len(self.body) + ELEMENT_BYTES * len(self.raws)

    def stop_of(self, number: int) -> int:
        """Where the first `number` elements end."""
        return self.array.elements[number - 1].stop

    def holds(self, body: bytes, number: int) -> bool:
        """Whether another body has the same bytes up to the end of the first `number` elements."""
        return body.startswith(memoryview(self.body)[: self.stop_of(number)])

    def count_common(self, body: bytes) -> int:
        """How many elements another body begins with."""
        low, high = 0, len(self.raws)
        while low < high:
            middle = (low + high + 1) // 2
            if self.holds(body, middle):
                low = middle
            else:
                high = middle - 1
        return low


@dataclass(frozen=True, slots=True)
class Begun:
    """A body has its first `number` elements in common with an earlier one; they end at `stop`."""

    beginning: Beginning
    number: int

    @property
    def stop(self) -> int:
        """How many bytes the two have in common, at least."""
        return self.beginning.stop_of(self.number)

    @property
    def is_whole(self) -> bool:
        """Whether the body goes on from all elements of the earlier one."""
        return self.number == len(self.beginning.raws)


class Kept(Protocol):
    """Where beginnings are kept by the dialect and their first bytes, the newest first, until they are forgotten."""

    def get(self, key: tuple[str, bytes], /) -> tuple[Beginning, ...] | None:
        """Those that are kept under a key."""

    def __setitem__(self, key: tuple[str, bytes], value: tuple[Beginning, ...], /) -> None:
        """Keep them."""


class Beginnings:
    """The bodies that were read last, of one client; those that begin alike have `most_bytes` at most.

    Bodies from which none has gone on have a quarter of that, so that what comes once drives out no session.
    """

    def __init__(self, kept: Kept, most_bytes: int) -> None:
        self._kept = kept
        self.most_bytes = most_bytes

    def find(self, dialect: str, body: bytes) -> Begun | None:
        """The earlier body that has most elements in common with this one; None if none has any."""
        alike = self._kept.get((dialect, body[:HEAD_BYTES])) or ()
        for each in sorted(alike, key=_tell_length, reverse=True):
            if each.holds(body, len(each.raws)):
                return Begun(each, len(each.raws))
        common = [Begun(each, each.count_common(body)) for each in alike[:MAX_COMPARED]]
        best = max(common, key=lambda begun: begun.stop if begun.number else 0, default=None)
        return best if best is not None and best.number else None

    def keep(self, dialect: str, beginning: Beginning, begun: Begun | None) -> None:
        """Keep what a body begins with, in the place of those that it begins with itself."""
        if not beginning.raws:
            return
        key = dialect, beginning.body[:HEAD_BYTES]
        gone = begun.beginning if begun is not None and begun.is_whole else None
        alike, left_bytes, left_new_bytes = [beginning], self.most_bytes - beginning.size_bytes, self.most_bytes // 4
        for each in self._kept.get(key) or ():
            if each is gone or each is beginning or each.holds(beginning.body, len(each.raws)):
                continue
            left_bytes -= each.size_bytes
            left_new_bytes -= 0 if each.is_grown else each.size_bytes
            if left_bytes >= 0 and (each.is_grown or left_new_bytes >= 0):
                alike.append(each)
        self._kept[key] = tuple(alike[:MAX_ALIKE])


def _tell_length(beginning: Beginning) -> int:
    return beginning.array.stop


def weigh_beginnings(key: tuple[str, bytes], kept: Iterable[Beginning]) -> int:
    """What beginnings of one key hold in memory, about, in bytes."""
    return sum(chain((len(key[1]),), (each.size_bytes for each in kept)))
