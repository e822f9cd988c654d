"""Remembers what codecs have decoded and counted, in caches that the caller provides.

Law: this only saves time and never changes a result. What was forgotten is decoded and counted again.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import count
from sys import getsizeof
from typing import NamedTuple, Protocol, TypeVar

from rules.conversation import Message

OBJECT_BYTES = 150
"""Memory of a message, a text, a part or a call, in bytes, in addition to its characters. An estimate."""

Decode = Callable[[bytes], tuple[Message, ...]]


K = TypeVar("K")
V = TypeVar("V")


class Memo(Protocol[K, V]):
    """A cache, which may forget a value at any time."""

    def get(self, key: K, /) -> V | None:
        """The value of a key; None if there is none."""

    def get_many(self, keys: Iterable[K], /) -> list[V | None]:
        """The result of `get` for each key, in order."""

    def find_missing(self, keys: Iterable[K], /) -> list[K]:
        """The keys that have no value."""

    def __setitem__(self, key: K, value: V, /) -> None:
        """Keep a value."""


class FixedTokens(NamedTuple):
    """Tokens of what is outside the messages.

    format_tokens: of the response format and the frame of the prompt.
    tools_tokens: of the tools.
    has_functions: whether there are functions among the tools.
    """

    format_tokens: int
    tools_tokens: int
    has_functions: bool = False


class KnownView:
    """What is remembered of one dialect's requests, for one way of counting."""

    __slots__ = ("_elements", "_fixed", "number")

    def __init__(self, elements: "Elements", fixed: "Fixed", number: int) -> None:
        self._elements = elements
        self._fixed = fixed
        self.number = number

    def count_unknown_bytes(self, raws: Sequence[bytes], fixed: tuple[bytes, ...] = (), fixed_factor: int = 1) -> int:
        """The bytes of the elements that are not known. `fixed`, if not known, counts `fixed_factor` times."""
        number = self.number
        unknown = sum([len(raw) for _, raw in self._elements.find_missing([(number, raw) for raw in raws])])
        return unknown + sum(map(len, fixed)) * fixed_factor * len(self._fixed.find_missing([(number, fixed)]))

    def decode(self, raws: Sequence[bytes], decode: Decode) -> list[tuple[Message, ...]]:
        """The messages of each element, in order. Unknown elements are decoded by `decode`, whose errors are raised.

        Equal elements get the same message objects.
        """
        number = self.number
        found = self._elements.get_many([(number, raw) for raw in raws])
        decoded = [messages for messages in found if messages]
        if len(decoded) == len(raws):
            return decoded  # fast path: every element is known
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
        """The tokens of what is outside the messages, by `count_fixed` if they are not known."""
        fixed = self._fixed.get((self.number, raws))
        if fixed is None:
            fixed = self._fixed[self.number, raws] = count_fixed(raws)
        return fixed


class Known:
    """The messages of elements, and the tokens of what is outside them, for each dialect and way of counting."""

    def __init__(self, elements: "Elements", fixed: "Fixed") -> None:
        self._elements = elements
        self._fixed = fixed
        self._views: dict[tuple[str, int], KnownView] = {}
        self._numbers = count()

    def view(self, dialect: str, number: int) -> KnownView:
        """What is remembered of a dialect's requests for the way of counting with this `number`."""
        view = self._views.get((dialect, number))
        if view is None:
            made = KnownView(self._elements, self._fixed, next(self._numbers))
            view = self._views.setdefault((dialect, number), made)
        return view


Elements = Memo[tuple[int, bytes], tuple[Message, ...]]
Fixed = Memo[tuple[int, tuple[bytes, ...]], FixedTokens]


def weigh_element(key: tuple[int, bytes], messages: tuple[Message, ...]) -> int:
    """Memory that a cached element takes, in bytes, roughly: its own bytes, its texts and its objects."""
    return len(key[1]) + sum(map(_message_size, messages))


def _message_size(message: Message) -> int:
    texts = sum(map(getsizeof, message.texts)) + sum(getsizeof(call.arguments) for call in message.tool_calls)
    objects = 4 + len(message.texts) + len(message.media) + 4 * len(message.tool_calls)
    return texts + sum(len(part.raw) for part in message.media) + OBJECT_BYTES * objects
