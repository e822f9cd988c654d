"""Repairs JSON that other decoders accept but msgspec refuses.

Law: a replacement has the length of what it replaces, so that every offset stays valid.
"""

import json  # noqa: TID251 - unlike msgspec, it reads numbers beyond the range of a double, as most upstreams do
import re
from typing import Any

import msgspec

from proxy.wire.json.strides import STRIDE_BYTES, STRING, find_tokens, holds
from proxy.wire.json.surrogates import replace_lone_surrogates

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


def try_decode(text: bytes) -> Any:
    """The value of a JSON text; None if it cannot be decoded."""
    try:
        return msgspec.json.decode(text)
    except DECODE_ERRORS:
        return None


def decode_member(raw: msgspec.Raw | None) -> Any:
    """The value of an object's member, decoded by `decode_any`; None if the member is absent."""
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
