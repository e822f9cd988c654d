"""What codecs have decoded and counted before, bounded by bytes. Thread-safe.

Law: only a matter of speed. What was forgotten is decoded and counted again.
"""

from collections.abc import Callable, Sequence
from itertools import count
from sys import getsizeof
from typing import NamedTuple

from proxy.lru import BytesLRU
from rules.conversation import Message

CACHE_BYTES = 64 * 1024 * 1024
"""Decoded messages kept; a message seen before is not decoded or counted again."""
OBJECT_BYTES = 150
"""What a message, a text, a part or a call costs in memory beside its characters."""

Decode = Callable[[bytes], tuple[Message, ...]]


class FixedTokens(NamedTuple):
    """What stands outside the messages: response format and frame, tools, and whether functions are among them."""

    format_tokens: int
    tools_tokens: int
    has_functions: bool = False


class KnownView:
    """What is known of one dialect's requests, counted one way."""

    __slots__ = ("_elements", "_fixed", "_number")

    def __init__(self, elements: "_Elements", fixed: "_Fixed", number: int) -> None:
        self._elements = elements
        self._fixed = fixed
        self._number = number

    def count_unknown_bytes(self, raws: Sequence[bytes]) -> int:
        """How many bytes of these elements are not known."""
        number = self._number
        return sum([len(raw) for _, raw in self._elements.find_missing([(number, raw) for raw in raws])])

    def decode(self, raws: Sequence[bytes], decode: Decode) -> list[tuple[Message, ...]]:
        """The messages of each element; those that are not known as `decode` has them. Raises what it raises.

        Elements that are alike have the same messages.
        """
        number = self._number
        found = self._elements.get_many([(number, raw) for raw in raws])
        new: dict[bytes, tuple[Message, ...]] = {}
        decoded: list[tuple[Message, ...]] = []
        for raw, known in zip(raws, found, strict=True):
            messages = new.get(raw) if known is None else known
            if messages is None:
                messages = new[raw] = self._elements[number, raw] = decode(raw)
            decoded.append(messages)
        return decoded

    def knows_fixed(self, raws: tuple[bytes, ...]) -> bool:
        """Whether the tokens of what stands outside the messages are known."""
        return (self._number, raws) in self._fixed

    def count_fixed(
        self, raws: tuple[bytes, ...], count_fixed: Callable[[tuple[bytes, ...]], FixedTokens]
    ) -> FixedTokens:
        """The tokens of what stands outside the messages."""
        fixed = self._fixed.get((self._number, raws))
        if fixed is None:
            fixed = self._fixed[self._number, raws] = count_fixed(raws)
        return fixed


class Known:
    """The messages of elements, and the tokens of what stands outside them; each dialect's and family's apart."""

    def __init__(self) -> None:
        self._elements: _Elements = BytesLRU(CACHE_BYTES, _element_size)
        self._fixed: _Fixed = BytesLRU(CACHE_BYTES // 8, lambda key, _: sum(map(len, key[1])))
        self._views: dict[tuple[str, int], KnownView] = {}
        self._numbers = count()

    def view(self, dialect: str, number: int) -> KnownView:
        """What is known of a dialect's requests, counted one way, which `number` names."""
        view = self._views.get((dialect, number))
        if view is None:
            made = KnownView(self._elements, self._fixed, next(self._numbers))
            view = self._views.setdefault((dialect, number), made)
        return view


_Elements = BytesLRU[tuple[int, bytes], tuple[Message, ...]]
_Fixed = BytesLRU[tuple[int, tuple[bytes, ...]], FixedTokens]


def _element_size(key: tuple[int, bytes], messages: tuple[Message, ...]) -> int:
    """What a cached element holds: its bytes, its texts, its objects."""
    return len(key[1]) + sum(map(_message_size, messages))


def _message_size(message: Message) -> int:
    texts = sum(map(getsizeof, message.texts)) + sum(getsizeof(call.arguments) for call in message.tool_calls)
    objects = 4 + len(message.texts) + len(message.media) + 4 * len(message.tool_calls)
    return texts + sum(len(part.raw) for part in message.media) + OBJECT_BYTES * objects
