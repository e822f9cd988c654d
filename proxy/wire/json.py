"""JSON as bytes: finds the positions of values, takes values out, decodes, and repairs what msgspec refuses.

A text is searched in strides, so that no single call into C holds the interpreter for long. Clients that cut texts by
UTF-16 units send lone surrogates, and some servers write the ids of calls as numbers.

Law: nothing fails on hostile bytes. The result does not depend on the strides, and the time is linear in the length of
the text, whatever it contains. What stays keeps its bytes. A replacement has the length of what it replaces, so that
every offset stays valid. A value that is not decoded keeps its bytes, unless its JSON has to be repaired. Ids are
compared by value: 1, 1.0 and "1" are equal.
"""

import json  # noqa: TID251 - unlike msgspec, it reads numbers beyond the range of a double, as most upstreams do
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from operator import attrgetter
from typing import Any

import msgspec

STRIDE_BYTES = 256 * 1024  # chosen: the slowest pattern used here takes a few milliseconds for it.
STRING = rb'"(?:[^"\\]{1,1024}+|\\.|){0,64}+"'
"""Matches a string that is not very long. In a pattern for `find_tokens`, `|"` must follow it, for the longer ones."""
_INSIDE = re.compile(rb'(?=[^"\\]|\\.)(?:[^"\\]{1,1024}+|\\.|){0,4096}+', re.DOTALL)
_QUOTE = ord('"')


def holds(text: bytes, part: bytes) -> bool:
    """Whether the text contains `part`. It is searched in strides, because a search may be slow on hostile text."""
    reach = STRIDE_BYTES + len(part) - 1
    return any(text.find(part, start, start + reach) >= 0 for start in range(0, len(text), STRIDE_BYTES))


def count_bytes(text: bytes, sign: bytes) -> int:
    if len(text) <= STRIDE_BYTES:
        return text.count(sign)
    return sum(text.count(sign, start, start + STRIDE_BYTES) for start in range(0, len(text), STRIDE_BYTES))


def close_string(text: bytes, at: int) -> int:
    """The offset after the string whose content begins at `at`; the end of the text if the string is not closed."""
    while at < len(text):
        run = _INSIDE.match(text, at)
        if run is None:
            return at + 1 if text[at] == _QUOTE else len(text)
        at = run.end()
    return at


def find_tokens(pattern: re.Pattern[bytes], text: bytes, at: int = 0, *, longest: int = 1) -> Iterator[re.Match[bytes]]:
    """The tokens of a text from `at` on: strings, and the other matches of the pattern, of at most `longest` bytes.

    The pattern must match STRING, or else a bare quotation mark. Such a mark opens a very long string or one that is
    not closed; the mark is yielded, and the search goes on after that string.
    """
    while at < len(text):
        stop = min(at + STRIDE_BYTES, len(text))
        behind = stop if stop == len(text) else stop - longest + 1
        for found in pattern.finditer(text, at, stop):
            yield found
            behind = max(behind, found.end())
            if found.end() - found.start() == 1 and text[found.start()] == _QUOTE:
                behind = close_string(text, found.end())
                break
        at = behind


_SPACE = re.compile(rb"[ \t\n\r]{0,%d}+" % STRIDE_BYTES)
_SEPARATOR = re.compile(rb"[, \t\n\r]{0,%d}+" % STRIDE_BYTES)
_SCALAR = re.compile(rb"[^\s,\]}]{1,%d}+" % STRIDE_BYTES)
_PART = re.compile(STRING + rb'|"|,', re.DOTALL)
_BRACKETS = frozenset({b"{", b"["})
_STRUCTURE = re.compile(STRING + rb'|"|[\[{]|[\]}]', re.DOTALL)


class Span(msgspec.Struct, frozen=True):
    """Half-open range of bytes. A request needs hundreds of them, and a named tuple takes two calls."""

    start: int
    stop: int


BY_PLACE = attrgetter("start", "stop")


class Array(msgspec.Struct, frozen=True):
    start: int
    stop: int
    elements: list[Span]


def find_array(body: bytes, key: bytes, elements: Sequence[bytes], others: Iterable[bytes] = ()) -> Array | None:
    """The last member `key` of the JSON object `body`, an array of `elements`; None if it has another value.

    Also None if the last one writes its key with escapes.
    `body` must be valid JSON; a byte order mark may precede it. `elements` are those that a decoder found under `key`.
    `others` are values under other keys; they are skipped without a scan. `key` includes its quotes.
    """
    # Strategy: walk over the top level only. Known values are skipped by a comparison, which is a memcmp; of all others
    # only the nesting is followed. The walk goes on behind a match: of equal keys, decoders take the last one.
    skipped = [other for other in others if other[:1] in _BRACKETS]
    found: Array | None = None
    spellings = _spell(key)
    at = _skip(body, body.index(b"{") + 1)
    while at < len(body) and body[at] != ord("}"):
        if body[at] != ord('"'):
            return None
        name, at = at, close_string(body, at + 1)
        spelled = spellings.fullmatch(body, name, at)
        is_key = at - name == len(key) and body.startswith(key, name)
        at = _skip(body, _skip(body, at) + 1)
        array = match_array(body, at, elements) if is_key else None
        found = array if spelled else found
        if array is None:
            known = next((other for other in skipped if body.startswith(other, at)), None)
            at = end_value(body, at) if known is None else at + len(known)
        at = _skip(body, array.stop if array else at)
        if body[at : at + 1] == b",":
            at = _skip(body, at + 1)
    return found


def find_member(body: bytes, key: bytes, *skipped: Span) -> Span | None:
    """The value of the last member `key` of a JSON object; None if there is none, or if a key is not a plain string.

    `body` must be valid JSON; a byte order mark may precede it. `key` includes its quotes. `skipped` are the positions
    of values that need not be searched.
    """
    stops = {span.start: span.stop for span in skipped}
    found: Span | None = None
    at = _skip(body, body.index(b"{") + 1)
    while at < len(body) and body[at] == ord('"'):
        name, at = at, close_string(body, at + 1)
        is_key = at - name == len(key) and body.startswith(key, name)
        at = _skip(body, _skip(body, at) + 1)
        stop = stops.get(at) or end_value(body, at)
        found = Span(at, stop) if is_key else found
        at = _skip(body, stop, _SEPARATOR)
    return found


def find_members(body: bytes, known: Iterable[bytes], *skipped: Span) -> list[tuple[bytes, Span, Span]]:
    """The members of a JSON object: the key as it is written, the span from its key on, and the span of its value.

    `known` are values that need not be searched; `skipped` are the positions of others. For `body`, see `find_member`.
    """
    stops, values = {span.start: span.stop for span in skipped}, [value for value in known if value[:1] in _BRACKETS]
    found: list[tuple[bytes, Span, Span]] = []
    at = _skip(body, body.index(b"{") + 1)
    while at < len(body) and body[at] == ord('"'):
        name, at = at, close_string(body, at + 1)
        key = body[name:at]
        at = _skip(body, _skip(body, at) + 1)
        stop = stops.get(at) or next((at + len(one) for one in values if body.startswith(one, at)), None)
        stop = stop or end_value(body, at)
        found.append((key, Span(name, stop), Span(at, stop)))
        at = _skip(body, stop, _SEPARATOR)
    return found


@lru_cache(maxsize=8)
def _spell(key: bytes) -> re.Pattern[bytes]:
    """A key of ASCII characters in all its spellings: each character as it is, or as an escape."""
    spellings = (rb"(?:%s|\\u00(?i:%02x))" % (re.escape(b"%c" % each), each) for each in key.strip(b'"'))
    return re.compile(b'"' + b"".join(spellings) + b'"')


def count_parts(text: bytes) -> int:
    """An upper bound for the strings and the commas between values in a piece of JSON."""
    if len(text) <= STRIDE_BYTES:
        return text.count(b",") + text.count(b'"') // 2
    return count_bytes(text, b",") + count_bytes(text, b'"') // 2


def has_more_parts(body: bytes, most: int) -> bool:
    """Whether a JSON text has more than `most` strings and commas between values. Commas in strings do not count.

    The search ends as soon as that is certain. Other threads can run in the meantime.
    """
    if count_parts(body) <= most:
        return False
    return sum(1 for _ in islice(find_tokens(_PART, body), most + 1)) > most


def match_array(body: bytes, start: int, elements: Sequence[bytes]) -> Array | None:
    """The array that begins at `start`; None if there is no array with exactly these elements."""
    if body[start : start + 1] != b"[":
        return None
    spans: list[Span] = []
    at = start + 1
    for number, element in enumerate(elements):
        at += 1 if number else 0  # fast path: only a comma between two elements
        if not body.startswith(element, at):
            at = _skip(body, at - 1 if number else at, _SEPARATOR)
            if not body.startswith(element, at):
                return None
        start_of_element, at = at, at + len(element)
        spans.append(Span(start_of_element, at))
    at = _skip(body, at)
    return Array(start, at + 1, spans) if body[at : at + 1] == b"]" else None


def _skip(body: bytes, at: int, what: re.Pattern[bytes] = _SPACE) -> int:
    while (run := what.match(body, at)) is not None:
        start, at = at, run.end()
        if at - start < STRIDE_BYTES:
            break
    return at


def end_value(body: bytes, at: int) -> int:
    if body[at] == ord('"'):
        return close_string(body, at + 1)
    if body[at] not in b"[{":
        stop = _skip(body, at, _SCALAR)
        return stop if stop > at else len(body)
    depth = 0
    for token in find_tokens(_STRUCTURE, body, at):
        character = body[token.start()]
        if character in b"[{":
            depth += 1
        elif character in b"]}":
            depth -= 1
            if depth == 0:
                return token.end()
    return len(body)


Edit = tuple[Span, bytes]  # A range of bytes, and what replaces it


def find_cuts(text: bytes, spans: Sequence[Span], gone: Sequence[int]) -> Iterator[Span]:
    """What to take out: each item, and the comma after it; the comma before it if no item stays after it.

    spans: all items, in order. gone: the indexes of those that are taken out, in order.
    """
    removed = frozenset(gone)
    last = next((at for at in range(len(spans) - 1, -1, -1) if at not in removed), -1)
    for at in gone:
        comma = at if at < last else at - 1
        found = [] if comma < 0 else [text.index(b",", spans[comma].stop)]
        yield from sorted((spans[at], *(Span(place, place + 1) for place in found)), key=BY_PLACE)


def splice(text: bytes, edits: Iterable[Edit]) -> bytes:
    pieces: list[bytes] = []
    stop = 0
    for span, new in sorted(edits, key=lambda edit: (BY_PLACE(edit[0]), edit[1])):
        pieces += (text[stop : span.start], new)
        stop = span.stop
    return b"".join((*pieces, text[stop:]))


def cut(text: bytes, spans: Sequence[Span], gone: Sequence[int]) -> bytes:
    return splice(text, ((span, b"") for span in find_cuts(text, spans, gone)))


_ESCAPED_REPLACEMENT = rb"\ufffd"
_OTHERS = re.compile(
    rb"(?:[^\\]{1,1024}+|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|\\(?!u[dD][89a-fA-F][0-9a-fA-F]{2}).|){0,4096}+",
    re.DOTALL,
)
"""Everything except a lone surrogate: other bytes, surrogate pairs, other escapes. One match is bounded, so that it
does not hold the interpreter for long."""
_CANDIDATES = (rb"\ud", rb"\uD")


def replace_lone_surrogates(json: bytes) -> bytes:
    r"""The same JSON with `\ufffd` for the escape of each lone surrogate; both have six bytes."""
    if not any(holds(json, candidate) for candidate in _CANDIDATES):
        return json
    mended = bytearray(json)
    at = 0
    while at < len(json):
        run = _OTHERS.match(json, at)
        if run is not None and run.end() > at:
            at = run.end()
        elif at + len(_ESCAPED_REPLACEMENT) <= len(json):
            mended[at : at + len(_ESCAPED_REPLACEMENT)] = _ESCAPED_REPLACEMENT
            at += len(_ESCAPED_REPLACEMENT)
        else:
            break  # a backslash that ends the text
    return bytes(mended)


DECODE_ERRORS = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
"""The errors that a decoder raises on hostile bytes."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_REPLACEMENT = b"\xef\xbf\xbd"
_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
_NUMBERS = (b"NaN", b"Infinity")
_STRING_OR_NUMBER = re.compile(STRING + rb'|"|(?P<number>NaN|Infinity)', re.DOTALL)


def mend(text: bytes) -> bytes:
    """The same JSON with U+FFFD for each lone surrogate, 0 for NaN and Infinity, blanks for a byte order mark."""
    text = replace_lone_surrogates(text)
    if text.startswith(BYTE_ORDER_MARK):
        text = b" " * len(BYTE_ORDER_MARK) + text[len(BYTE_ORDER_MARK) :]
    if b"\xed" in text:
        text = _replace_encoded(text)
    return _write_zeros(text) if any(holds(text, number) for number in _NUMBERS) else text


def describe_no_json(text: bytes) -> str:
    """What in a text that can be decoded is no JSON all the same, and at which byte; empty if it is all JSON."""
    if any(holds(text, number) for number in _NUMBERS):
        for token in find_tokens(_STRING_OR_NUMBER, text, longest=max(map(len, _NUMBERS))):
            if token["number"]:
                return f"{token['number'].decode()} at byte {token.start()} is no JSON"
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return f"it is not UTF-8 at byte {error.start}"
    return ""


def describe_fault(error: Exception) -> str:
    """Why a text could not be decoded, in words and without any of it."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    return "a value has the wrong type" if isinstance(error, msgspec.ValidationError) else "it is no valid JSON"


def try_decode(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except DECODE_ERRORS:
        return None


def decode_member(raw: msgspec.Raw | None) -> Any:
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return decode_any(bytes(raw))


def decode_any(text: bytes) -> Any:
    """The value of a JSON text, repaired; a number beyond a double is infinite. Raises DecodeError, RecursionError."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        return json.loads(mend(text))
    except ValueError as error:
        raise msgspec.DecodeError(type(error).__name__) from error


def _replace_encoded(text: bytes) -> bytes:
    # In pieces, so that no call holds the interpreter for long. 0xED occurs in a surrogate only as its first byte, so
    # it is enough to end each piece before such a byte.
    mended = bytearray()
    start = 0
    while start < len(text):
        stop = start + STRIDE_BYTES // 8
        if text[stop - 1 : stop] == b"\xed":
            stop -= 1
        elif text[stop - 2 : stop - 1] == b"\xed":
            stop -= 2
        mended += _ENCODED_SURROGATE.sub(_REPLACEMENT, text[start:stop])
        start = stop
    return bytes(mended)


def _write_zeros(text: bytes) -> bytes:
    mended = bytearray(text)
    for token in find_tokens(_STRING_OR_NUMBER, text, longest=max(map(len, _NUMBERS))):
        if token["number"]:
            mended[token.start() : token.end()] = b"0".ljust(token.end() - token.start())
    return bytes(mended)


decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
"""The members of a JSON object; of a repeated name, the last one. Raises one of DECODE_ERRORS."""
decode_items = msgspec.json.Decoder(list[msgspec.Raw]).decode  # The items of a JSON array. Raises one of DECODE_ERRORS.


def read_members(raw: bytes) -> dict[str, msgspec.Raw]:
    """The members of an object, repaired if need be: a lone surrogate becomes U+FFFD. Raises one of DECODE_ERRORS."""
    try:
        if b"\xed" not in raw:
            return decode_members(raw)
    except msgspec.DecodeError:
        pass
    return decode_members(mend(raw))


def read_id(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    return str(int(value)) if value % 1 == 0 else str(value)


def write_id(value: Any) -> bytes:
    return msgspec.json.encode(value) if isinstance(value, int | float) and read_id(value) else b""


def decode_or_none(raw: msgspec.Raw | None) -> Any:
    if raw is None:
        return None
    try:
        return decode_any(bytes(raw))
    except DECODE_ERRORS:
        return None


def write_compact(value: Any) -> str:
    return msgspec.json.encode(value).decode()
