"""Finds the earlier body that a body continues: an agent's next request repeats its last one and adds to it.

Law: this only saves time and never changes a result. The bytes up to the end of the last common element were read
before and mean the same; everything after them is read. What was forgotten is read again.

An element is an item of the JSON array that holds the transcript.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, TypeVar

from trimtab.proxy.wire.json import Array, Span
from trimtab.proxy.wire.transcript.elements import Written
from trimtab.rules.conversation import Message, Origin
from trimtab.rules.tokens.sections import Counted

MIN_BYTES = 16 * 1024
"""A shorter body is always read whole. Chosen: that takes about 20 microseconds."""
HEAD_BYTES = 4 * 1024
"""Earlier bodies are looked up by this many of their first bytes. Chosen: they tell different agents apart."""
MAX_ALIKE = 64
"""How many bodies with the same HEAD_BYTES are kept: sessions of one agent, and branches of one session. Chosen: bounds
the search."""
MAX_COMPARED = 4
"""If a body continues none of them whole, this many of the newest are compared element by element. Chosen: bounds the
work."""
COPIES = 4
"""Times that a body's bytes are held: the body, its elements, their texts, and the forwarded body."""
ELEMENT_BYTES = 250
"""Memory of an element, in bytes, in addition to its characters. An estimate."""


T = TypeVar("T")


class Decoded(NamedTuple):
    """Messages in the order of the elements that they come from, and the position of each."""

    messages: tuple[Message, ...] = ()
    origins: tuple[Origin, ...] = ()

    @property
    def elements(self) -> int:
        return self.origins[-1].stop if self.origins else 0

    def first(self, elements: int) -> "Decoded":
        if elements >= self.elements:
            return self
        number = bisect_right(self.origins, elements, key=lambda origin: origin.stop)
        return Decoded(self.messages[:number], self.origins[:number])


class Noted(NamedTuple):
    """What was found in some of the first `elements` of a body, with their numbers."""

    elements: int = 0
    found: tuple[tuple[int, Any], ...] = ()

    def first(self, elements: int) -> "Noted":
        return Noted(min(self.elements, elements), tuple(each for each in self.found if each[0] < elements))


@dataclass(slots=True, eq=False)
class Beginning:
    """A body that was split into its elements, and what was derived from them.

    array: positions of the elements.
    raws: bytes of each element.
    parts: upper bound for the strings and commas up to the end of the last element.
    decoded: for each way of counting, the messages of the first elements.
    written: what was last forwarded in place of the transcript.
    noted: what was looked for in the elements, by the function that has looked.
    counted: what the sections of its messages are added up from, by who has counted; also of an earlier body.
    is_grown: the body continues an earlier one, or most of its elements were known. So later ones may continue it.
    """

    body: bytes
    array: Array
    raws: tuple[bytes, ...]
    parts: int
    decoded: dict[int, Decoded] = field(default_factory=dict)
    written: Written | None = None
    is_grown: bool = False
    noted: dict[Callable[[bytes], Any], Noted] = field(default_factory=dict)
    counted: dict[tuple[int, tuple[str, ...]], Counted] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        return COPIES * len(self.body) + ELEMENT_BYTES * len(self.raws)

    def stop_of(self, number: int) -> int:
        """The offset at which the first `number` elements end; `number` is at least 1."""
        return self.array.elements[number - 1].stop

    def holds(self, body: bytes, number: int) -> bool:
        """Whether another body begins with the same bytes, up to the end of the first `number` elements."""
        return body.startswith(memoryview(self.body)[: self.stop_of(number)])

    def count_common(self, body: bytes) -> int:
        """How many of these elements another body begins with. Found by bisection."""
        low, high = 0, len(self.raws)
        while low < high:
            middle = (low + high + 1) // 2
            if self.holds(body, middle):
                low = middle
            else:
                high = middle - 1
        return low


def find_transcript(beginning: Beginning | None) -> Span | None:
    """The position of the transcript in a body; None if it is not known."""
    return None if beginning is None else Span(beginning.array.start, beginning.array.stop)


@dataclass(frozen=True, slots=True)
class PrefixMatch:
    """A body shares its first `number` elements with an earlier one; they end at `stop`."""

    beginning: Beginning
    number: int

    @property
    def stop(self) -> int:
        return self.beginning.stop_of(self.number)

    @property
    def is_whole(self) -> bool:
        return self.number == len(self.beginning.raws)


class Kept(Protocol):
    """A cache of beginnings, by their dialect and their first bytes."""

    def get(self, key: tuple[str, bytes], /) -> tuple[Beginning, ...] | None: ...

    def __setitem__(self, key: tuple[str, bytes], value: tuple[Beginning, ...], /) -> None:
        """Keep beginnings, newest first; the cache may forget them at any time."""


class Beginnings:
    """The newest bodies of one client. Bodies with the same first bytes take at most `most_bytes` together.

    Bodies that no other body has continued get a quarter of that, so that one-time requests do not push out sessions.
    """

    def __init__(self, kept: Kept, most_bytes: int) -> None:
        self._kept = kept
        self.most_bytes = most_bytes

    def find(self, dialect: str, body: bytes) -> PrefixMatch | None:
        """The earlier body that shares the longest beginning with this one; None if none shares an element."""
        alike = self._kept.get((dialect, body[:HEAD_BYTES])) or ()
        for each in sorted(
            alike, key=attrgetter("array.stop"), reverse=True
        ):  # the longest that the body continues is best
            if each.holds(body, len(each.raws)):
                return PrefixMatch(each, len(each.raws))
        common = [PrefixMatch(each, each.count_common(body)) for each in alike[:MAX_COMPARED]]
        best = max(common, key=lambda match: match.stop if match.number else 0, default=None)
        return best if best is not None and best.number else None

    def keep(self, dialect: str, beginning: Beginning, match: PrefixMatch | None) -> None:
        """Keep a beginning. It replaces those that it continues, among them that of `match`."""
        if not beginning.raws:
            return
        key = dialect, beginning.body[:HEAD_BYTES]
        gone = match.beginning if match is not None and match.is_whole else None
        alike, left_bytes, left_new_bytes = [beginning], self.most_bytes - beginning.size_bytes, self.most_bytes // 4
        for each in self._kept.get(key) or ():
            if each is gone or each is beginning or each.holds(beginning.body, len(each.raws)):
                continue
            left_bytes -= each.size_bytes
            left_new_bytes -= 0 if each.is_grown else each.size_bytes
            if left_bytes >= 0 and (each.is_grown or left_new_bytes >= 0):
                alike.append(each)
        self._kept[key] = tuple(alike[:MAX_ALIKE])


def weigh_beginnings(key: tuple[str, bytes], kept: Iterable[Beginning]) -> int:
    """Memory that the beginnings of one key take, in bytes, roughly."""
    return sum(chain((len(key[1]),), (each.size_bytes for each in kept)))


def look_through(
    raws: Sequence[bytes], beginning: Beginning | None, look: Callable[[bytes], T]
) -> tuple[tuple[int, T], ...]:
    """The elements in which `look` finds something, by their numbers. What it finds must depend on their bytes alone.

    Each element is looked at once, and not again in a body that continues this one.
    """
    known = Noted() if beginning is None else beginning.noted.get(look, Noted())
    new = ((at, look(raws[at])) for at in range(known.elements, len(raws)))
    found = (*known.found, *(each for each in new if each[1]))
    if beginning is not None:
        beginning.noted[look] = Noted(len(raws), found)
    return found


def find_all(
    body: bytes, raws: Sequence[bytes], beginning: Beginning | None, find: Callable[[bytes], list[bytes]]
) -> list[bytes]:
    """All that is found in a body. What was read before is not read again.

    find: searches a part of the body; it finds nothing beyond the end of an element. Measured: to search 400 kB by a
        pattern takes as long as all else.
    """
    if beginning is None:
        return find(body)
    start, stop, _ = beginning.array
    within = look_through(raws, beginning, find)
    return [*find(body[:start]), *chain(*(found for _, found in within)), *find(body[stop:])]
