"""JSON that other decoders read and ours refuse, made readable.

Law: what is put in the place of something has its length, so that every offset stays true.
"""

import json  # noqa: TID251 - it reads numbers beyond a double's range, as most upstreams do
import re
from typing import Any

import msgspec

from proxy.wire.json.strides import STRIDE_BYTES, STRING, find_tokens, holds
from proxy.wire.json.surrogates import replace_lone_surrogates

DECODE_ERRORS = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
"""What a decoder raises on hostile bytes."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_REPLACEMENT = b"\xef\xbf\xbd"
_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
_NUMBERS = (b"NaN", b"Infinity")
_STRING_OR_NUMBER = re.compile(STRING + rb'|"|(?P<number>NaN|Infinity)', re.DOTALL)


def mend(text: bytes) -> bytes:
    """The same JSON, U+FFFD for every lone surrogate, 0 for NaN and Infinity, blanks for a byte order mark."""
    text = replace_lone_surrogates(text)
    if text.startswith(BYTE_ORDER_MARK):
        text = b" " * len(BYTE_ORDER_MARK) + text[len(BYTE_ORDER_MARK) :]
    if b"\xed" in text:
        text = _replace_encoded(text)
    return _write_zeros(text) if any(holds(text, number) for number in _NUMBERS) else text


def try_decode(text: bytes) -> Any:
    """The value of some JSON; None where it defies decoding."""
    try:
        return msgspec.json.decode(text)
    except DECODE_ERRORS:
        return None


def decode_member(raw: msgspec.Raw | None) -> Any:
    """The value of an object's member, as `decode_any` has it; None where there is none."""
    return None if raw is None else decode_any(bytes(raw))


def decode_any(text: bytes) -> Any:
    """The value of some JSON; out of a double's range is infinite. Raises msgspec.DecodeError or RecursionError."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        return json.loads(mend(text))
    except ValueError as error:
        raise msgspec.DecodeError(type(error).__name__) from error


def _replace_encoded(text: bytes) -> bytes:
    """Piece by piece; no piece ends within a surrogate, which begins with its only byte 0xED."""
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
