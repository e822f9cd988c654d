"""Reads a copy of a response: its usage, and the text that the model wrote.

Law: no I/O. Whatever the input is, nothing is raised and no more is kept than the bounds allow. Of a long text, an even
sample is kept, from which the tokens of the whole are estimated.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import Protocol, Self

import msgspec

from trimtab.proxy.wire.answers.sse import EventReader
from trimtab.proxy.wire.answers.usage import Usage, UsageScan
from trimtab.rules.conversation import CountTokens

MAX_HELD_BYTES = 256 * 1024  # Text that is kept of one response, roughly. Chosen: enough for a sample.
MAX_BODY_BYTES = 256 * 1024
"""A longer non-stream response is not kept whole: only its beginning is kept, and its usage read. Chosen for the same
reason."""
SCANNED_BYTES = 64 * 1024  # Of a longer whole response, the usage is sought while it arrives. Chosen: one stride.
MAX_UNREAD_BYTES = 16 * 1024  # Bytes of a stream that are read together. Chosen: about 80 events, which take 0.3 ms.
MAX_SKIPPED_BYTES = 32 * 1024
"""As MAX_UNREAD_BYTES, for a stream that will end with its usage. Chosen: a short stream that breaks off is still read
whole."""
SAMPLE_BYTES = 1024
"""Part of each MAX_UNREAD_BYTES that is read to estimate the rest, about four events. Chosen: estimates within 10 %
(tests/proxy/wire/answers/test_tap.py)."""
MAX_EVENTS = 500
"""Of more events that are read together, those in the middle are sampled. Chosen: 80 KB of usual ones, which take 1 to
3 ms on the event loop."""
EDGE_EVENTS = MAX_EVENTS // 4  # At each end of so many, which are all read: usage stands at the ends of a stream
LAST_CHUNKS = 5
"""Are read one by one. Chosen: a stream ends with a finish event, its usage and [DONE], or some ends, a chunk each."""
PIECE_BYTES = 128  # Memory of a piece of text, in bytes, in addition to its characters. An estimate.
MAX_PIECE_CHARS = 16 * 1024  # A longer piece is sampled in parts of this size. Chosen: small against MAX_HELD_BYTES.
_CALL = re.compile(rb'"tool_calls"\s*:\s*\[\s*[^\s\]]|"type"\s*:\s*"\w*_(?:call|use)"')
"""A tool call in any dialect; never a part of a text, for the same reason."""
CALL_BYTES = 64  # The end of a chunk that is searched again with the next one. Chosen: above what `_CALL` matches.
_USAGE = re.compile(rb'"usage"\s*:\s*\{')
"""Matches only a member, never part of a text, because quotes in a text are escaped. It may be anybody's member."""
_WRITTEN = re.compile(rb'"(?:choices|output|content)"\s*:\s*\[')
"""The member of a non-stream response, in any dialect, that holds what the model wrote."""


class Piece(msgspec.Struct, frozen=True):
    """A piece of what the model wrote. The pieces of one `place`, such as the content of a choice, form one text."""

    place: Hashable
    text: str
    is_reasoning: bool = False


ReadAnswer = Callable[[bytes, Usage | None], tuple[Usage | None, Sequence[Piece] | None]]
"""Reads the JSON of a response or of one event, given the usage so far: returns the new usage, and the pieces of text.

None instead of pieces if it cannot be decoded. It never raises.
"""
IsEnd = Callable[[bytes], bool]  # Whether the data of an event says that the answer is complete. It never raises.


class Dialect(Protocol):
    """What a codec knows of its answers. `carries`: as in `Tap`."""

    @property
    def read_answer(self) -> ReadAnswer: ...
    @property
    def is_end(self) -> IsEnd: ...
    @property
    def carries(self) -> bool: ...


class Tap:
    """Reads one response, an event stream or a JSON object, from chunks that may be cut anywhere.

    Each chunk of a stream is read at once until one has text. After that, many chunks are read together: an event then
    costs 2 us instead of 5 (bench/README.md). A stream that `asks_usage` is only sampled after its first text, because
    its end reports the tokens. If the end does not report them, the chunks not read yet are read in full.

    first_at: seconds at which the first chunk with text arrived; 0.0 before.
    first_chars: characters of text in that chunk.
    calls_tools: a tool call was seen so far. All of what was read is searched, also what is not sampled.
    unread, room: chunks of a stream that are kept to be read with others, with the times at which they arrived; and the
        bytes that may still be added. Whoever passes chunks on may add them here; it costs no call.
    is_cut: it has ended although the answer was not complete.
    carries: the events of a stream carry the response; its usage is not their own.
    has_partial_usage: the usage may be that of a part of the answer, because a stream was cut off.
    """

    def __init__(
        self,
        read: ReadAnswer,
        *,
        is_stream: bool,
        asks_usage: bool = False,
        is_end: IsEnd = lambda _: False,
        carries: bool = False,
    ) -> None:
        self.first_at = 0.0
        self.first_chars = 0
        self.calls_tools = False
        self.size_bytes = 0
        self.is_cut = self.has_partial_usage = False
        self._edge = b""  # the end of what was searched for tool calls
        self._usage: Usage | None = None
        self._last_at = 0.0
        self.unread: list[tuple[bytes, float]] = []
        self.room = -1
        self._read = read
        self._is_end = is_end
        self._last_event = b""
        self._carries = carries and is_stream
        self._scan: UsageScan | None = None
        self._events = EventReader(self._search) if is_stream else None
        self._asks_usage = asks_usage
        self._most_unread_bytes = MAX_SKIPPED_BYTES if asks_usage else MAX_UNREAD_BYTES
        self._body = bytearray()
        self._sample = _Sample()
        self._reasoning_chars = 0

    @classmethod
    def of(cls, dialect: Dialect, *, is_stream: bool, asks_usage: bool = False) -> Self:
        read, is_end, carries = dialect.read_answer, dialect.is_end, dialect.carries
        return cls(read, is_stream=is_stream, asks_usage=asks_usage, is_end=is_end, carries=carries)

    def feed(self, chunk: bytes, arrived_at: float = 0.0) -> None:
        if self._events is not None:
            self.unread.append((chunk, arrived_at))
            self.room -= len(chunk)
            if self.room < 0:
                self._catch_up(skips=self._asks_usage and self.first_chars > 0)
            return
        before, self.size_bytes = self.size_bytes, self.size_bytes + len(chunk)
        self._seek_call(chunk)
        if self.size_bytes > SCANNED_BYTES:
            self._search(chunk if before > SCANNED_BYTES else bytes(self._body) + chunk)
        self._body += chunk[: max(MAX_BODY_BYTES - len(self._body), 0)]

    def finish(self, *, is_cut: bool = False) -> None:
        """The body has ended, or nothing more of it will be read: read everything that is left."""
        if self._events is not None:
            self._catch_up()
            for data in self._events.finish():
                self._read_answer(data)
            self.is_cut = self.has_partial_usage = is_cut and not self.has_ended
        else:
            self._finish_body(is_cut=is_cut)
        self._body.clear()

    def count_completion(self, count: CountTokens) -> int:
        """Tokens of everything that the model wrote: content, reasoning, refusal, tool calls; an estimate if long."""
        self._catch_up()
        return self._sample.count(count)

    @property
    def has_ended(self) -> bool:
        self._catch_up()
        return self._is_end(self._last_event)

    @property
    def usage(self) -> Usage | None:
        if self.unread:
            self._catch_up()
        return self._usage

    @property
    def text_chars(self) -> int:
        """Characters of text that the model wrote; estimated if the stream was sampled."""
        if self.unread:
            self._catch_up()
        return self._sample.chars

    @property
    def last_at(self) -> float:
        """Seconds at which the last chunk with text arrived; 0.0 if there was none."""
        if self.unread:
            self._catch_up()
        return self._last_at

    def _catch_up(self, *, skips: bool = False) -> None:
        # Strategy: join what waits and decode it in one go, since an event alone costs more than twice as much. If the
        # end of the stream reports the usage, only a sample of the events is decoded. But the last chunks are read one
        # by one, to learn which of them has the last text, and when it arrived.
        unread, self.unread = self.unread, []
        self.size_bytes += sum([len(chunk) for chunk, _ in unread])
        skips = skips or (self._asks_usage and any(_USAGE.search(chunk) for chunk, _ in unread[-LAST_CHUNKS:]))
        if len(unread) > LAST_CHUNKS:
            early, unread = unread[:-LAST_CHUNKS], unread[-LAST_CHUNKS:]
            self._read_chunk(b"".join([chunk for chunk, _ in early]), early[-1][1], skips=skips)
        for chunk, arrived_at in unread:
            self._read_chunk(chunk, arrived_at, skips=skips)
        self.room = self._most_unread_bytes if self.first_chars else -1

    def _read_chunk(self, chunk: bytes, arrived_at: float, *, skips: bool) -> None:
        before = self._sample.chars
        self._seek_call(chunk)
        self._read_events(self._skip(chunk) if skips else chunk)
        if self._sample.chars > before:
            self._last_at = arrived_at
            if not before:
                self.first_at, self.first_chars = arrived_at, self._sample.chars

    def _skip(self, chunk: bytes) -> bytes:
        """Read a sample of a chunk; returns what to read in full: from the first usage on, and an open event."""
        # Strategy: jump from part to part, and decode of each part only the events at its beginning, whose text then
        # counts for the whole part. All cuts are at blank lines, so no event is decoded in halves.
        usage = _USAGE.search(chunk)
        stop = chunk.rfind(b"\n\n", 0, len(chunk) if usage is None else usage.start()) + 2
        start = chunk.find(b"\n\n") + 2  # the chunk may begin within an event
        self._read_events(chunk[:start])
        while start < stop:
            sampled = chunk.find(b"\n\n", start + SAMPLE_BYTES, stop) + 2
            part = chunk.find(b"\n\n", start + MAX_UNREAD_BYTES, stop) + 2
            part = stop if part < 2 else part
            if sampled < 2:
                break
            self._read_events(chunk[start:sampled], (part - start) / (sampled - start))
            start = part
        return chunk[start:]

    def _read_events(self, chunk: bytes, stands_for: float = 1.0) -> None:
        """Read the events of a chunk. Their text counts `stands_for` times its length."""
        events = [] if self._events is None else self._events.feed(chunk)
        if len(events) > MAX_EVENTS:
            middle = events[EDGE_EVENTS:-EDGE_EVENTS]
            sampled = middle[:: -(-len(middle) // (MAX_EVENTS - 2 * EDGE_EVENTS))]
            for data in events[:EDGE_EVENTS]:
                self._read_answer(data, stands_for)
            for data in sampled:
                self._read_answer(data, stands_for * len(middle) / len(sampled))
            events = events[-EDGE_EVENTS:]
        for data in events:
            self._read_answer(data, stands_for)

    def find_sent_tokens(self, completion_tokens: int) -> int | None:
        """How many of the completion's tokens were sent as text; None if unknown: upstreams may hide reasoning."""
        usage = self.usage
        hidden = usage.reasoning_tokens if usage else 0
        if hidden <= self._reasoning_chars:  # all of it was sent: a token rarely has less than one character
            return completion_tokens
        return None if self._reasoning_chars else completion_tokens - hidden

    def _seek_call(self, chunk: bytes) -> None:
        """Look for a tool call in the next bytes, until there is one."""
        if not self.calls_tools:
            seen = self._edge + chunk
            has_hint = b"_call" in seen or b"_use" in seen  # a plain search is much faster
            self.calls_tools = has_hint and _CALL.search(seen) is not None
            self._edge = seen[-CALL_BYTES:]

    def _finish_body(self, *, is_cut: bool) -> None:
        if self.size_bytes <= MAX_BODY_BYTES and not is_cut:
            self._read_answer(bytes(self._body))
            return
        self.is_cut = not self._search(bytes(self._body) if self.size_bytes <= SCANNED_BYTES else b"", is_end=True)
        if self.size_bytes <= MAX_BODY_BYTES and not self.is_cut:
            self._read_answer(bytes(self._body))
        elif self._usage is None or self._usage.completion_tokens is None:
            self._estimate_body()

    def _estimate_body(self) -> None:
        """Take what the model wrote from a body of which only the beginning is kept, or arrived."""
        written = _WRITTEN.search(self._body)
        if written is not None or not self.is_cut:
            start = 0 if written is None else written.end()
            text = self._body[start:].decode("utf-8", "replace")
            self._sample.add(Piece("body", text), len(text), self.size_bytes - start)

    def _search(self, piece: bytes, *, is_end: bool = False) -> bool:
        """Seek the usage in the next bytes of what is not decoded. Returns whether its JSON has ended."""
        scan = self._scan = self._scan or UsageScan(is_event=self._carries)
        scan.feed(piece)
        if is_end:
            scan.finish()
            self._scan = None
            if scan.value not in {None, b"{}"}:
                self._usage, _ = self._read(b'{"usage":%b}' % scan.value, self._usage)
        return scan.is_whole

    def _read_answer(self, data: bytes, stands_for: float = 1.0) -> None:
        self._last_event = data
        self._usage, pieces = self._read(data, self._usage)
        if pieces is None and self._scan is not None:  # a long body, which was searched as it arrived
            self._search(b"", is_end=True)
        elif pieces is None and len(data) <= 2 * SCANNED_BYTES and _USAGE.search(data):
            self._search(data, is_end=True)
        for piece in pieces or ():
            size = len(piece.text)
            chars = size if stands_for == 1 else round(size * stands_for)
            self._sample.add(piece, size, chars)
            self._reasoning_chars += chars if piece.is_reasoning else 0


class _Sample:
    """A sample of a text within MAX_HELD_BYTES: all of its pieces, or one in `_one_in`. chars: of the whole text."""

    def __init__(self) -> None:
        self.chars = 0
        self._pieces: list[tuple[Hashable, str]] = []
        self._held = 0
        self._kept_chars = 0
        self._one_in = 1

    def add(self, piece: Piece, size: int, chars: int) -> None:
        """Add a piece of this size in characters, which stands for `chars` characters of the whole text."""
        self.chars += chars
        for start in range(0, size, MAX_PIECE_CHARS):
            if self._kept_chars * self._one_in > self.chars:  # the sample has its share of the text already
                return
            text, kept = piece.text, size
            if size > MAX_PIECE_CHARS:
                text = text[start : start + MAX_PIECE_CHARS]
                kept = len(text)
            self._pieces.append((piece.place, text))
            self._kept_chars += kept
            self._held += kept + PIECE_BYTES
            if self._held > MAX_HELD_BYTES:
                self._thin_out()

    def count(self, count: CountTokens) -> int:
        texts: defaultdict[Hashable, list[str]] = defaultdict(list)
        for place, text in self._pieces:
            texts[place].append(text)
        tokens = sum(count("".join(pieces)) for pieces in texts.values())
        return tokens if self._kept_chars >= self.chars else round(tokens * self.chars / max(self._kept_chars, 1))

    def _thin_out(self) -> None:
        self._one_in *= 2
        self._pieces = self._pieces[::2]
        self._kept_chars = sum(len(text) for _, text in self._pieces)
        self._held = self._kept_chars + PIECE_BYTES * len(self._pieces)
