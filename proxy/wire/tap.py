"""A tap on an answer: finds the usage, else collects what the model wrote.

Law: no I/O, and what is fed is a copy; whatever comes in, it neither raises nor keeps more than its bounds. Of a long
text it keeps an even sample, from which the whole is reckoned.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from proxy.wire.sse import EventReader
from proxy.wire.usage import Usage
from rules.conversation import CountTokens

MAX_HELD_BYTES = 256 * 1024
"""What is kept of an answer's text, roughly."""
MAX_BODY_BYTES = 256 * 1024
"""Of an answer in one piece that is kept whole; of a longer one, its beginning, and what it tells of its usage."""
MAX_USAGE_BYTES = 4 * 1024
MAX_UNREAD_BYTES = 16 * 1024
"""Of a stream, read together: some 80 events, which take 0.3 ms."""
MAX_SKIPPED_BYTES = 32 * 1024
"""The same of a stream whose end will tell the usage: what breaks off before is counted to the last word."""
SAMPLE_BYTES = 1024
"""Of each MAX_UNREAD_BYTES: some four events, by which the others are reckoned."""
LAST_CHUNKS = 8
"""Behind its text a stream has an end, its usage and [DONE], each in a chunk of its own mostly."""
PIECE_BYTES = 128
"""What a piece costs beside its characters."""
MAX_PIECE_CHARS = 16 * 1024
"""A longer piece is sampled in parts of this size."""
_USAGE = re.compile(rb'"usage"\s*:\s*\{')
"""A member, and never a part of a text: its quotes would be escaped there."""


class Piece(NamedTuple):
    """A piece of what the model wrote; those of one `place` (the second call's arguments, say) are one text."""

    place: Hashable
    text: str
    is_reasoning: bool = False


ReadAnswer = Callable[[bytes, Usage | None], tuple[Usage | None, Sequence[Piece]]]
"""What a dialect reads in an answer's JSON, or in an event's: the usage, going on from that before, and the pieces.

It never raises.
"""


class Tap:
    """Reads one answer, an event stream or a JSON object, in chunks cut anywhere.

    A stream is read at once until there is text in it, and from then on many chunks together: an event costs 2 us then,
    and 5 each for itself. One that `asks_usage` is hardly read behind its first text: its end tells the tokens, and how
    much text there was is reckoned from a share of it. If its end tells nothing, what is there yet is read after all.
    `first_at` is when the first chunk with text had arrived, of which `first_chars` were; 0.0 before.
    """

    def __init__(self, read: ReadAnswer, *, is_stream: bool, asks_usage: bool = False) -> None:
        self.first_at = 0.0
        self.first_chars = 0
        self._usage: Usage | None = None
        self._last_at = 0.0
        self._unread: list[tuple[bytes, float]] = []
        self._unread_bytes = 0
        self._read = read
        self._events = EventReader() if is_stream else None
        self._asks_usage = asks_usage
        self._body = bytearray()
        self._tail = b""
        self._body_bytes = 0
        self._sample = _Sample()
        self._reasoning_chars = 0

    def feed(self, chunk: bytes, arrived_at: float = 0.0) -> None:
        """Take in the next bytes of the body, and when they had come."""
        if self._events is not None:
            self._unread.append((chunk, arrived_at))
            self._unread_bytes += len(chunk)
            if not self.first_chars:
                self._catch_up()
            elif self._unread_bytes > (MAX_SKIPPED_BYTES if self._asks_usage else MAX_UNREAD_BYTES):
                self._catch_up(skips=self._asks_usage)
            return
        self._body_bytes += len(chunk)
        self._body += chunk[: max(MAX_BODY_BYTES - len(self._body), 0)]
        if self._body_bytes > MAX_BODY_BYTES:
            self._seek_usage(chunk)

    def finish(self) -> None:
        """The body has ended: read what stands in it without an end."""
        if self._events is not None:
            self._catch_up()
            for data in self._events.finish():
                self._read_answer(data)
        elif self._body_bytes <= MAX_BODY_BYTES:
            self._read_answer(bytes(self._body))
        else:
            self._seek_usage(b"", is_end=True)
            if self._usage is None or self._usage.completion_tokens is None:
                text = self._body.decode("utf-8", "replace")
                self._sample.add(Piece("body", text), self._body_bytes)
        self._body.clear()
        self._tail = b""

    def count_completion(self, count: CountTokens) -> int:
        """Tokens of all that the model wrote: content, reasoning, refusal and tool calls; of long text, an estimate."""
        self._catch_up()
        return self._sample.count(count)

    @property
    def usage(self) -> Usage | None:
        """What the upstream has reported so far."""
        self._catch_up()
        return self._usage

    @property
    def text_chars(self) -> int:
        """How much text the model wrote."""
        self._catch_up()
        return self._sample.chars

    @property
    def last_at(self) -> float:
        """When the last chunk with text had arrived; 0.0 if there was none."""
        self._catch_up()
        return self._last_at

    def _catch_up(self, *, skips: bool = False) -> None:
        """Read what has not been read yet. The last chunks are read one by one: text ends with one of them."""
        unread, self._unread, self._unread_bytes = self._unread, [], 0
        skips = skips or (self._asks_usage and any(_USAGE.search(chunk) for chunk, _ in unread[-LAST_CHUNKS:]))
        if len(unread) > LAST_CHUNKS:
            early, unread = unread[:-LAST_CHUNKS], unread[-LAST_CHUNKS:]
            self._read_chunk(b"".join([chunk for chunk, _ in early]), early[-1][1], skips=skips)
        for chunk, arrived_at in unread:
            self._read_chunk(chunk, arrived_at, skips=skips)

    def _read_chunk(self, chunk: bytes, arrived_at: float, *, skips: bool) -> None:
        """Read what has arrived of a stream, and note when, if there is text in it."""
        before = self._sample.chars
        self._read_events(self._skip(chunk) if skips else chunk)
        if self._sample.chars > before:
            self._last_at = arrived_at
            if not before:
                self.first_at, self.first_chars = arrived_at, self._sample.chars

    def _skip(self, chunk: bytes) -> bytes:
        """Read the first events of each part of a chunk for all in that part; what is left is to be read whole.

        Left are the event that tells the usage, what comes behind it, and an event that has not ended.
        """
        usages = [found.start() for found in _USAGE.finditer(chunk)]
        stop = chunk.rfind(b"\n\n", 0, usages[-1] if usages else len(chunk)) + 2
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
        """Read the events of a chunk, whose text stands for so many times its own length."""
        for data in () if self._events is None else self._events.feed(chunk):
            self._read_answer(data, stands_for)

    def find_sent_tokens(self, completion_tokens: int) -> int | None:
        """Of the completion's tokens those whose text was read; None if that cannot be told.

        Upstreams keep reasoning to themselves, or send a summary of it, and report what the whole cost.
        """
        hidden = self.usage.reasoning_tokens if self.usage else 0
        if hidden <= self._reasoning_chars:  # a token has seldom less than a character
            return completion_tokens
        return None if self._reasoning_chars else completion_tokens - hidden

    def _seek_usage(self, chunk: bytes, *, is_end: bool = False) -> None:
        """Read the usage in an answer that is not kept whole: it stands behind the texts with most upstreams."""
        seen = self._tail + chunk if self._tail else bytes(self._body) + chunk
        start = 0
        for found in _USAGE.finditer(seen):
            start = found.start()
            stop = len(seen) if not is_end and len(seen) - start < MAX_USAGE_BYTES else start + MAX_USAGE_BYTES
            self._read_usage(seen[start:stop])
        self._tail = seen[max(start, len(seen) - MAX_USAGE_BYTES) :]

    def _read_usage(self, member: bytes) -> None:
        """The usage that a member begins with: its value ends with the first brace that closes it."""
        for end in re.finditer(rb"\}", member):
            usage, _ = self._read(b"{" + member[: end.end()] + b"}", self._usage)
            if usage != self._usage:
                self._usage = usage
                return

    def _read_answer(self, data: bytes, stands_for: float = 1.0) -> None:
        self._usage, pieces = self._read(data, self._usage)
        for piece in pieces:
            chars = round(len(piece.text) * stands_for)
            self._sample.add(piece, chars)
            self._reasoning_chars += chars if piece.is_reasoning else 0


class _Sample:
    """Text within MAX_HELD_BYTES: all of it, or one in so many of its pieces.

    `chars` is how much there was of it.
    """

    def __init__(self) -> None:
        self.chars = 0
        self._pieces: list[tuple[Hashable, str]] = []
        self._held = 0
        self._kept_chars = 0
        self._one_in = 1

    def add(self, piece: Piece, chars: int) -> None:
        """A piece, which stands for so many characters."""
        self.chars += chars
        for start in range(0, len(piece.text), MAX_PIECE_CHARS):
            if self._kept_chars * self._one_in > self.chars:
                return
            text = piece.text[start : start + MAX_PIECE_CHARS]
            self._pieces.append((piece.place, text))
            self._kept_chars += len(text)
            self._held += len(text) + PIECE_BYTES
            if self._held > MAX_HELD_BYTES:
                self._thin_out()

    def count(self, count: CountTokens) -> int:
        """Tokens of all the text."""
        texts: defaultdict[Hashable, list[str]] = defaultdict(list)
        for place, text in self._pieces:
            texts[place].append(text)
        tokens = sum(count("".join(pieces)) for pieces in texts.values())
        return tokens if self._kept_chars >= self.chars else round(tokens * self.chars / max(self._kept_chars, 1))

    def _thin_out(self) -> None:
        """Every second piece goes."""
        self._one_in *= 2
        self._pieces = self._pieces[::2]
        self._kept_chars = sum(len(text) for _, text in self._pieces)
        self._held = self._kept_chars + PIECE_BYTES * len(self._pieces)
