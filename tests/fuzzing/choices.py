"""Reads the bytes of an input as decisions. The same bytes make the same input for every fuzzing engine.

Law: total. After the last byte every decision is the first option, so that short inputs are small cases.
"""

import json  # noqa: TID251 - writes what msgspec and orjson refuse: lone surrogates, NaN, integers of any size
from collections.abc import Sequence
from typing import Any, TypeVar

T = TypeVar("T")

TEXTS = (
    "ok", "", " ", "a", "é", "中", "\U0001f600", "\ud800", "x\udfff", "\x00", "\x7f", "\u2028", "\ufeff", '"', "\\",
    "\\u0041", "{", "</s>", "<|im_end|>", "<think>", "error: no such file\n", "\r\n", "\t", "all of this came out ",
    "1234567890", "=" * 20, "messages", "role", "tool", "../", "%00", "${HOME}", "data: [DONE]\n\n", "\U0001d54f\u0301",
)  # fmt: skip
"""Texts on which programs are known to fail, and plain ones."""
NUMBERS = (
    0,
    1,
    -1,
    2,
    7,
    1023,
    1024,
    4096,
    10**6,
    2**31,
    2**53 + 1,
    2**63,
    2**64,
    -(2**63) - 1,
    10**30,
    1.5,
    -0.0,
    1e308,
)


class Choices:
    """A sequence of decisions."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def byte(self) -> int:
        """The next byte."""
        at = self._at
        self._at += 1
        return self._data[at] if at < len(self._data) else 0

    def below(self, stop: int) -> int:
        """A number from 0 up to, not including, `stop`."""
        number = self.byte()
        if stop > 256:
            number = number << 8 | self.byte()
        if stop > 65_536:
            number = number << 8 | self.byte()
        return number % stop

    def happens(self, chances_of_256: int) -> bool:
        """Whether a rare event happens. Never after the last byte."""
        return self.byte() >= 256 - chances_of_256

    def pick(self, options: Sequence[T]) -> T:
        """One of the options."""
        return options[self.below(len(options))]

    def take(self, size: int) -> bytes:
        """The next bytes, unchanged; fewer if not enough are left."""
        at = self._at
        self._at += size
        return self._data[at : at + size]

    def rest(self) -> bytes:
        """All bytes that are left."""
        return self.take(len(self._data))

    def text(self, max_repeats: int = 1) -> str:
        """An odd text or a plain one, often repeated."""
        text = self.pick(TEXTS) + (self.pick(TEXTS) if self.happens(64) else "")
        return text * (1 + self.below(max_repeats))

    def value(self, depth: int = 2) -> Any:
        """Any JSON value, as a Python value."""
        kind = self.below(8 if depth else 5)
        if kind < 2:
            return self.text(3)
        if kind < 5:
            return (self.pick(NUMBERS), None, self.pick((True, False)))[kind - 2]
        if kind == 5:
            return [self.value(depth - 1) for _ in range(self.below(4))]
        return {self.text(): self.value(depth - 1) for _ in range(self.below(4))}

    def mutate(self, text: bytes) -> bytes:
        """The text with damage in one to four places: bytes changed, removed, repeated, inserted, or cut off."""
        damaged = bytearray(text)
        for _ in range(1 + self.below(4)):
            at = self.below(len(damaged) + 1) if damaged else 0
            kind, size = self.below(5), 1 + self.below(8)
            if kind == 0:
                damaged[at : at + 1] = self.take(1)
            elif kind == 1:
                del damaged[at : at + size]
            elif kind == 2:
                damaged[at:at] = damaged[at : at + size]
            elif kind == 3:
                damaged[at:at] = self.pick(DAMAGES)
            else:
                del damaged[at + 8 * size :]
        return bytes(damaged)


DAMAGES = (
    b"\\", b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\ud800", b"\\udc00", b"\\u0000", b"\xff", b"\xed\xa0\x80",
    b"\x00", b"\n", b"\r", b"NaN", b"-", b"1e999", b"0" * 30, b"[" * 600, b'{"a":' * 600, b"null", b"true",
    b'"messages":[]', b'"\\u006dessages":[],',
)  # fmt: skip


def dump(value: Any, choices: Choices) -> bytes:
    """JSON in one of the forms that clients write. Lone surrogates become escapes, or bytes that are not UTF-8."""
    form = choices.below(8)
    if form == 1:
        return json.dumps(value, separators=(" ,\n", "\t: ")).encode()
    if form == 2:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return json.dumps(value, separators=(",", ":") if form % 2 else None).encode()
