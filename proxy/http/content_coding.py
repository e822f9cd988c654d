"""Decompression of request bodies, within bounds.

Law: the output never exceeds the given bound, whatever was sent. A damaged body is reported, not raised.
"""

import sys
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAX_CODINGS = 2
"""Content codings of one body, applied one after another. Chosen: real clients use one."""
MAX_MEMBERS = 16
"""Compressed members in one body, one after another. Chosen: real bodies have one; a million empty members would take
minutes."""
WINDOW_LOG_MAX = 23
"""Base-2 logarithm of the largest zstd window: 8 MiB of memory. Source: RFC 9659, the limit for HTTP."""


class Decoded(NamedTuple):
    """A decompressed body. If it is `damaged` or `too_large`, `body` is only its beginning."""

    body: bytes
    damaged: bool = False
    too_large: bool = False


class _Decoder(Protocol):
    """Decompressor of one member: the interface that zlib and zstd share."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


_DECODERS: dict[str, Callable[[], _Decoder]] = {
    "gzip": partial(zlib.decompressobj, zlib.MAX_WBITS | 16),
    "x-gzip": partial(zlib.decompressobj, zlib.MAX_WBITS | 16),
    "deflate": partial(zlib.decompressobj, zlib.MAX_WBITS),
    "zstd": partial(zstd.ZstdDecompressor, options={zstd.DecompressionParameter.window_log_max: WINDOW_LOG_MAX}),
}


def read_codings(values: Sequence[str]) -> tuple[str, ...]:
    """The codings in `Content-Encoding` headers, in the order in which they were applied; `identity` is left out."""
    tokens = (token.strip().lower() for value in values for token in value.split(","))
    return tuple(token for token in tokens if token not in {"", "identity"})


def decode_body(body: bytes, codings: Sequence[str], max_bytes: int) -> Decoded:
    """Undo the codings, up to `max_bytes` of output. A body with an unknown coding is `damaged` and empty."""
    if len(codings) > MAX_CODINGS or any(coding not in _DECODERS for coding in codings):
        return Decoded(b"", damaged=True)
    decoded = Decoded(body)
    for coding in reversed(codings):
        inner = _decode(decoded.body, _DECODERS[coding], max_bytes)
        too_large = decoded.too_large or inner.too_large
        decoded = Decoded(inner.body, (decoded.damaged or inner.damaged) and not too_large, too_large)
    return decoded


def _decode(body: bytes, make_decoder: Callable[[], _Decoder], max_bytes: int) -> Decoded:
    pieces: list[bytes] = []
    left_bytes = max_bytes
    for _ in range(MAX_MEMBERS):
        decoder = make_decoder()
        try:
            piece = decoder.decompress(body, left_bytes + 1)
        except (zlib.error, zstd.ZstdError):
            break
        pieces.append(piece[:left_bytes])
        if len(piece) > left_bytes:
            return Decoded(b"".join(pieces), too_large=True)
        if not decoder.eof:
            break
        left_bytes -= len(piece)
        body = decoder.unused_data
        if not body:
            return Decoded(b"".join(pieces))
    return Decoded(b"".join(pieces), damaged=True)
