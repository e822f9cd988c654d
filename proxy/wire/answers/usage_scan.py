"""Finds the usage in an answer that is not decoded as a whole: the answer's own member, never one that it quotes.

Law: no I/O. Only a member of the answer itself, or of the `response` that an event carries, is found. The time is
linear in the length, whatever it contains, in steps that C takes; what is held does not depend on the length.
"""

import re
from itertools import accumulate, islice

from trimtab.proxy.wire.json.spans import end_value

STRIDE_BYTES = 64 * 1024
"""Bytes that are searched at once. Chosen: at most 5 ms for the worst of them."""
MAX_USAGE_BYTES = 4 * 1024
"""Longest usage that is read. Chosen: real ones are below 1 KiB."""
MAX_DEPTH = 100_000
"""An answer that is nested deeper is not searched any further. Chosen: no decoder reads one, and the numbers stay
small."""
MAX_KEY_BYTES = 64
"""The end of a stride that is searched again with the next one. Chosen: longer than what `_KEY` matches."""

_KEY = re.compile(rb'"(?<!\\")(?:usage|response)"[ \t\n\r]{0,16}:[ \t\n\r]{0,16}(?=\{)')
"""The key of an object. It matches no part of a text, because each quotation mark of a text is escaped."""
_USAGE_KEY = re.compile(_KEY.pattern.replace(b"usage|response", b"usage"))
_HINTS = (b'"usage"', b'"response"')
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_OPENS, _CLOSES, _USAGE, _OWNER = b"\x01", b"\xff", b"\x02", b"\x03"
_SYMBOLS = bytes.maketrans(b"{[}]", 2 * _OPENS + 2 * _CLOSES)
_OTHERS = bytes(set(range(256)) - set(b"{[}]" + _USAGE + _OWNER))
_STEPS = bytes.maketrans(_USAGE + _OWNER, b"\0\0")
_MARKS = re.compile(b"[" + _USAGE + _OWNER + b"]")


class UsageScan:
    """Reads one answer, or one event, in pieces that may be cut anywhere.

    is_event: the usage is that of the `response` in an event.
    is_whole: the object that the answer is has ended.
    """

    def __init__(self, *, is_event: bool = False) -> None:
        self.is_whole = False
        self._is_event = is_event
        self._rest = b""
        self._depth = 0
        self._in_string = False
        self._is_owned = False  # in the object of the event's `response`
        self._value: bytearray | None = None

    @property
    def value(self) -> bytes | None:
        """The last usage so far, an object in JSON; None if there is none, or if it is too long or has not ended."""
        found = bytes(self._value or b"")
        stop = end_value(found, 0) if found else 0
        return found[:stop] if found[stop - 1 : stop] == b"}" else None

    def feed(self, piece: bytes) -> None:
        if self._value is not None:
            self._value += piece[: max(MAX_USAGE_BYTES - len(self._value), 0)]
        text = self._rest + piece
        at, stop = -1, 0
        while at < stop < len(text) - MAX_KEY_BYTES and not self.is_whole and self._depth <= MAX_DEPTH:
            at, stop = stop, _find_stop(text, stop, min(len(text), stop + STRIDE_BYTES) - MAX_KEY_BYTES)
            self._scan(text, at, stop)
        self._rest = text[max(stop, len(text) - 2 * MAX_KEY_BYTES) :]

    def finish(self) -> None:
        if self._rest and not self.is_whole:
            self._scan(self._rest, 0, len(self._rest))
        self._rest = b""

    def _scan(self, text: bytes, start: int, stop: int) -> None:
        """Follow the nesting through a part of the text."""
        # Strategy: let C do the work. Strings are deleted, so that only brackets and the sought keys are left, one byte
        # each; these bytes are read as +1, -1 and 0, and their running sum is the depth at each of them. A usage is the
        # answer's own only at depth 1 (or 2, in the event's `response`); deeper ones are quoted by somebody.
        part = text[start:stop]
        symbols = self._read_symbols(part)
        depths = list(accumulate(memoryview(symbols.translate(_STEPS)).cast("b"), initial=self._depth))
        if symbols.count(_CLOSES) >= self._depth and 0 in depths[1:]:
            last = depths.index(0, 1)
            symbols, depths, self.is_whole = symbols[:last], depths[: last + 1], True
        found, since = -1, 0
        for number, mark in enumerate(_MARKS.finditer(symbols)):
            at = mark.start()
            if depths[at] == 1 and mark[0] == _OWNER:
                self._is_owned, since = self._is_event, at + 2
            elif depths[at] == 2 and self._is_owned and mark[0] == _USAGE:
                self._is_owned, since = min(depths[since : at + 1]) == 2, at
                found = number if self._is_owned else found
            elif depths[at] == 1 and mark[0] == _USAGE and not self._is_event:
                found = number
        self._is_owned = self._is_owned and min(depths[since:]) >= 2
        self._depth = depths[-1]
        if found >= 0:
            for key in islice(_KEY.finditer(part), found, found + 1):
                self._value = bytearray(text[start + key.end() : start + key.end() + MAX_USAGE_BYTES])

    def _read_symbols(self, part: bytes) -> bytes:
        """The brackets of a part of the text, and the keys that are sought; nothing from within its strings."""
        if any(hint in part for hint in _HINTS):
            part = _KEY.sub(_OWNER, _USAGE_KEY.sub(_USAGE, part))
        # The mark at the end closes a string that goes on; if there is none, it stays.
        bare = _STRING.sub(b"", b'%b%b"' % (b'"' if self._in_string else b"", part))
        self._in_string = not bare.endswith(b'"')
        return bare.translate(_SYMBOLS, _OTHERS)


def _find_stop(text: bytes, start: int, stop: int) -> int:
    """Where to end a part of the text, at `stop` at the latest: not within a key that is sought, nor in an escape."""
    for key in _KEY.finditer(text, max(stop - MAX_KEY_BYTES, start), stop + MAX_KEY_BYTES):
        if key.start() < stop <= key.end():
            stop = key.start()
    part = text[start:stop]
    return stop - (len(part) - len(part.rstrip(b"\\"))) % 2
