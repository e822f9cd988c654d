"""What codecs have decoded and counted before, in memos of the caller's.

Law: only a matter of speed. What was forgotten is decoded and counted again.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import count
from sys import getsizeof
from typing import NamedTuple, Protocol, TypeVar

from rules.conversation import Message

OBJECT_BYTES = 150
"""What a message, a text, a part or a call costs in memory beside its characters."""

Decode = Callable[[bytes], tuple[Message, ...]]


K = TypeVar("K")
V = TypeVar("V")


class Memo(Protocol[K, V]):
    """Where something is kept until it is forgotten."""

    def get(self, key: K, /) -> V | None:
        """What is kept under a key, if anything."""

    def get_many(self, keys: Iterable[K], /) -> list[V | None]:
        """The same for each key."""

    def find_missing(self, keys: Iterable[K], /) -> list[K]:
        """The keys under which nothing is kept."""

    def __setitem__(self, key: K, value: V, /) -> None:
        """Keep a value."""


class FixedTokens(NamedTuple):
    """What stands outside the messages: response format and frame, tools, and whether functions are among them."""

    format_tokens: int
    tools_tokens: int
    has_functions: bool = False


class KnownView:
    """What is known of one dialect's requests, counted one way."""

    __slots__ = ("_elements", "_fixed", "number")

    def __init__(self, elements: "Elements", fixed: "Fixed", number: int) -> None:
        self._elements = elements
        self._fixed = fixed
        self.number = number

    def count_unknown_bytes(self, raws: Sequence[bytes], fixed: tuple[bytes, ...] = (), fixed_factor: int = 1) -> int:
        """How many bytes are not known of these elements, and of what stands outside them, which count for more."""
        number = self.number
        unknown = sum([len(raw) for _, raw in self._elements.find_missing([(number, raw) for raw in raws])])
        return unknown + sum(map(len, fixed)) * fixed_factor * len(self._fixed.find_missing([(number, fixed)]))

    def decode(self, raws: Sequence[bytes], decode: Decode) -> list[tuple[Message, ...]]:
        """The messages of each element; those that are not known as `decode` has them. Raises what it raises.

        Elements that are alike have the same messages.
        """
        number = self.number
        found = self._elements.get_many([(number, raw) for raw in raws])
        decoded = [messages for messages in found if messages]
        if len(decoded) == len(raws):
            return decoded  # the usual case: all of a transcript but its end was seen before
        new: dict[bytes, tuple[Message, ...]] = {}
        decoded = []
        for raw, known in zip(raws, found, strict=True):
            messages = new.get(raw) if known is None else known
            if messages is None:
                messages = new[raw] = self._elements[number, raw] = decode(raw)
            decoded.append(messages)
        return decoded

    def count_fixed(
        self, raws: tuple[bytes, ...], count_fixed: Callable[[tuple[bytes, ...]], FixedTokens]
    ) -> FixedTokens:
        """The tokens of what stands outside the messages."""
        fixed = self._fixed.get((self.number, raws))
        if fixed is None:
            fixed = self._fixed[self.number, raws] = count_fixed(raws)
        return fixed


class Known:
    """The messages of elements, and the tokens of what stands outside them; each dialect's and family's apart."""

    def __init__(self, elements: "Elements", fixed: "Fixed") -> None:
        self._elements = elements
        self._fixed = fixed
        self._views: dict[tuple[str, int], KnownView] = {}
        self._numbers = count()

    def view(self, dialect: str, number: int) -> KnownView:
        """What is known of a dialect's requests, counted one way, which `number` names."""
        view = self._views.get((dialect, number))
        if view is None:
            made = KnownView(self._elements, self._fixed, next(self._numbers))
            view = self._views.setdefault((dialect, number), made)
        return view


Elements = Memo[tuple[int, bytes], tuple[Message, ...]]
Fixed = Memo[tuple[int, tuple[bytes, ...]], FixedTokens]


def weigh_element(key: tuple[int, bytes], messages: tuple[Message, ...]) -> int:
    """What a cached element holds: its bytes, its texts, its objects."""
    return len(key[1]) + sum(map(_message_size, messages))


def _message_size(message: Message) -> int:
    texts = sum(map(getsizeof, message.texts)) + sum(getsizeof(call.arguments) for call in message.tool_calls)
    objects = 4 + len(message.texts) + len(message.media) + 4 * len(message.tool_calls)
    return texts + sum(len(part.raw) for part in message.media) + OBJECT_BYTES * objects
