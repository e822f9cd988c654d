"""Compressed request bodies: read within bounds.

Law: what comes out never exceeds the bound that was given, whatever was sent; what cannot be read is said, not raised.
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
"""One upon another; nobody needs more."""
MAX_MEMBERS = 16
"""Compressed files behind each other in one body; a body of a million empty ones would take minutes."""
WINDOW_LOG_MAX = 23
"""Of zstd: 8 MB of memory. Source: RFC 9659, which holds for HTTP."""


class Decoded(NamedTuple):
    """What a body says. Where it is `damaged` or `too_large`, `body` is only its beginning."""

    body: bytes
    damaged: bool = False
    too_large: bool = False


class _Decoder(Protocol):
    """One compressed member; zlib's and zstd's objects agree on this much."""

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
    """What `Content-Encoding` says, in the order in which it was applied."""
    tokens = (token.strip().lower() for value in values for token in value.split(","))
    return tuple(token for token in tokens if token not in {"", "identity"})


def decode_body(body: bytes, codings: Sequence[str], max_bytes: int) -> Decoded:
    """The body without its codings, at most `max_bytes` of it; codings that are not known leave it unread."""
    if len(codings) > MAX_CODINGS or any(coding not in _DECODERS for coding in codings):
        return Decoded(b"", damaged=True)
    decoded = Decoded(body)
    for coding in reversed(codings):
        inner = _decode(decoded.body, _DECODERS[coding], max_bytes)
        too_large = decoded.too_large or inner.too_large
        decoded = Decoded(inner.body, (decoded.damaged or inner.damaged) and not too_large, too_large)
    return decoded


def _decode(body: bytes, make_decoder: Callable[[], _Decoder], max_bytes: int) -> Decoded:
    """One coding taken off."""
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
