"""Decompression of requests and answers, within bounds.

Law: the output never exceeds the given bound, whatever was sent. A damaged body is reported, not raised.
"""

import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import brotli
from multidict import CIMultiDictProxy

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAX_CODINGS = 2  # Content codings of one body, applied one after another. Chosen: real clients use one.
MAX_MEMBERS = 16  # Of one body, one after another. Chosen: real bodies have one; a million would take minutes.
WINDOW_LOG_MAX = 23  # Of the largest zstd window, base 2: 8 MiB. Source: RFC 9659, the limit for HTTP.

STEP_BYTES = 256 * 1024  # Output of one step of a `Reader`. Chosen: it takes about a millisecond.
MAX_BEHIND_BYTES = 1024 * 1024  # Input that a `Reader` keeps. Chosen: far above what one step leaves.
MAX_READ_BYTES = 64 * 1024 * 1024  # Output of a whole `Reader`. Chosen: far above answers of models.


class Decoded(NamedTuple):
    """A decompressed body. If it is `damaged` or `too_large`, `body` is only its beginning."""

    body: bytes
    damaged: bool = False
    too_large: bool = False


class _Decoder:
    """Decompressor of one member. eof: it has ended. is_full: it holds something back, and takes no more input then."""

    eof = is_full = False
    unused_data = b""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def decompress(self, data: bytes, max_length: int) -> bytes:
        raise NotImplementedError


class _Zlib(_Decoder):
    def decompress(self, data: bytes, max_length: int) -> bytes:
        inner = self._inner
        piece: bytes = inner.decompress(inner.unconsumed_tail + data, max_length)
        self.eof, self.is_full, self.unused_data = inner.eof, bool(inner.unconsumed_tail), inner.unused_data
        return piece


class _Deflate(_Zlib):
    """Most servers send the form of zlib, some a bare stream. Source: RFC 9110, section 8.4.1.2."""

    _start: bytes | None = b""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        if self._start is not None:
            data = self._start + data
            self._start = data if len(data) < 2 else None
            if self._start is not None:
                return b""
            if data[0] & 15 != zlib.DEFLATED or int.from_bytes(data[:2], "big") % 31:
                self._inner = zlib.decompressobj(-zlib.MAX_WBITS)
        return super().decompress(data, max_length)


class _Zstd(_Decoder):
    def decompress(self, data: bytes, max_length: int) -> bytes:
        inner = self._inner
        piece: bytes = inner.decompress(data, max_length)
        self.eof, self.is_full, self.unused_data = inner.eof, not (inner.needs_input or inner.eof), inner.unused_data
        return piece


class _Brotli(_Decoder):
    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Up to about twice `max_length`: brotli grows its buffer in blocks."""
        piece: bytes = self._inner.process(data, output_buffer_limit=max_length)
        self.eof, self.is_full = self._inner.is_finished(), len(piece) >= max_length
        return piece


_ZSTD_OPTIONS: dict[int, int] = {zstd.DecompressionParameter.window_log_max: WINDOW_LOG_MAX}
_DECODERS: dict[str, Callable[[], _Decoder]] = {
    "gzip": lambda: _Zlib(zlib.decompressobj(zlib.MAX_WBITS | 16)),
    "x-gzip": lambda: _Zlib(zlib.decompressobj(zlib.MAX_WBITS | 16)),
    "deflate": lambda: _Deflate(zlib.decompressobj()),
    "zstd": lambda: _Zstd(zstd.ZstdDecompressor(options=_ZSTD_OPTIONS)),
    "br": lambda: _Brotli(brotli.Decompressor()),
}
_FAULTS = (zlib.error, zstd.ZstdError, brotli.error)


def read_codings(values: Sequence[str]) -> tuple[str, ...]:
    """The codings in `Content-Encoding` headers, in the order in which they were applied; `identity` is left out."""
    tokens = (token.strip().lower() for value in values for token in value.split(","))
    return tuple(token for token in tokens if token not in {"", "identity"})


def can_decode(codings: Sequence[str]) -> bool:
    return len(codings) <= MAX_CODINGS and all(coding in _DECODERS for coding in codings)


def read_along(headers: CIMultiDictProxy[str]) -> "Reader | None":
    """A reader for the codings of a response; None if it has none. Some upstreams compress although asked not to."""
    codings = read_codings(headers.getall("Content-Encoding", ()))
    return Reader(codings) if codings else None


def decode_body(body: bytes, codings: Sequence[str], max_bytes: int) -> Decoded:
    """Undo the codings, up to `max_bytes` of output. A body with an unknown coding is `damaged` and empty."""
    if not can_decode(codings):
        return Decoded(b"", damaged=True)
    damaged = too_large = False
    for coding in reversed(codings):
        stage = _Stage(_DECODERS[coding])
        body = stage.feed(body, max_bytes + 1)
        too_large = too_large or len(body) > max_bytes
        damaged = not too_large and (damaged or not stage.has_ended)
        body = body[:max_bytes]
    return Decoded(body, damaged, too_large)


class _Stage:
    """One coding of a body. After damage it gives nothing more. has_ended: a member has, and nothing follows it."""

    def __init__(self, make_decoder: Callable[[], _Decoder]) -> None:
        self._make_decoder = make_decoder
        self._decoder: _Decoder | None = make_decoder()
        self._waiting: list[bytes] = []
        self._members = 1
        self.has_ended = False

    @property
    def is_lost(self) -> bool:
        return self._decoder is None

    @property
    def is_behind(self) -> bool:
        return self._decoder is not None and (bool(self._waiting) or self._decoder.is_full)

    def feed(self, data: bytes, max_bytes: int) -> bytes:
        if data:
            self._waiting.append(data)
            self.has_ended = False
        pieces: list[bytes] = []
        while max_bytes > 0 and (piece := self._step(max_bytes)) is not None:
            pieces.append(piece)
            max_bytes -= len(piece)
        if sum(map(len, self._waiting)) > MAX_BEHIND_BYTES:
            self._decoder = None
        return b"".join(pieces)

    def _step(self, max_bytes: int) -> bytes | None:
        decoder = self._decoder
        if decoder is None or not self.is_behind:
            return None
        data = b""
        if not decoder.is_full:
            data = b"".join(self._waiting)
            self._waiting.clear()
        try:
            piece = decoder.decompress(data, max_bytes)
            if decoder.eof:
                self._waiting[:0] = [decoder.unused_data] if decoder.unused_data else []
                self.has_ended = not self._waiting
                self._members += 1
                self._decoder = self._make_decoder() if self._members <= MAX_MEMBERS else None
        except _FAULTS:
            self._decoder = None
            return None
        return piece


class Reader:
    """Decodes an answer piece by piece, within bounds. Of a damaged one or a bomb, what was decoded before comes."""

    def __init__(self, codings: Sequence[str]) -> None:
        self._stages = [_Stage(_DECODERS[coding]) for coding in reversed(codings)] if can_decode(codings) else None
        self._left_bytes = MAX_READ_BYTES

    @property
    def is_lost(self) -> bool:
        return not self._left_bytes or self._stages is None or any(stage.is_lost for stage in self._stages)

    @property
    def is_behind(self) -> bool:
        """Whether there is more to come: call `feed` with no bytes."""
        return bool(self._left_bytes) and any(stage.is_behind for stage in self._stages or ())

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes; returns at most STEP_BYTES, roughly, of what they say."""
        if self._stages is None:
            return b""
        for stage in self._stages:
            chunk = stage.feed(chunk, STEP_BYTES)
        chunk = chunk[: self._left_bytes]
        self._left_bytes -= len(chunk)
        return chunk

    def read_in_steps(self, chunk: bytes) -> Iterator[bytes]:
        """Take the next bytes; yields all of what they say."""
        yield self.feed(chunk)
        while self.is_behind:
            yield self.feed(b"")
