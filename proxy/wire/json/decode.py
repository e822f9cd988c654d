"""Decodes JSON, and repairs what other decoders accept but msgspec refuses.

Clients that cut texts by UTF-16 units send lone surrogates. Some servers write the ids of calls as numbers.

Law: a replacement has the length of what it replaces, so that every offset stays valid. A value that is not decoded
keeps its bytes, unless its JSON has to be repaired. Ids are compared by value: 1, 1.0 and "1" are equal.
"""

import json  # noqa: TID251 - unlike msgspec, it reads numbers beyond the range of a double, as most upstreams do
import re
from typing import Any

import msgspec

from trimtab.proxy.wire.json.spans import STRIDE_BYTES, STRING, find_tokens, holds

_ESCAPED_REPLACEMENT = rb"\ufffd"
_OTHERS = re.compile(
    rb"(?:[^\\]{1,1024}+|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|\\(?!u[dD][89a-fA-F][0-9a-fA-F]{2}).){1,4096}+",
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
        if run is not None:
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
    return None if raw is None else decode_any(bytes(raw))


def decode_any(text: bytes) -> Any:
    """The value of a JSON text, repaired if need be. A number beyond the range of a double becomes infinite.

    Raises msgspec.DecodeError or RecursionError.
    """
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
decode_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
"""The items of a JSON array. Raises one of DECODE_ERRORS."""


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
