"""A tap on an answer: finds the usage, else collects what the model wrote.

Law: no I/O, and what is fed is a copy; whatever comes in, it neither raises nor keeps more than its bounds.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from proxy.wire.sse import MAX_EVENT_BYTES, EventReader
from proxy.wire.usage import Usage
from rules.conversation import CountTokens

MAX_HELD_BYTES = 16 * 1024 * 1024
"""What is collected of an answer's text, roughly."""
PIECE_BYTES = 128
"""What a piece costs beside its characters."""


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
    """Reads one answer, an event stream or a JSON object, in chunks cut anywhere."""

    def __init__(self, read: ReadAnswer, *, is_stream: bool) -> None:
        self.usage: Usage | None = None
        self._read = read
        self._events = EventReader() if is_stream else None
        self._body = bytearray()
        self._texts: defaultdict[Hashable, list[str]] = defaultdict(list)
        self._chars = 0
        self._reasoning_chars = 0
        self._held = 0

    def feed(self, chunk: bytes) -> None:
        """Take in the next bytes of the body."""
        if self._events is not None:
            for data in self._events.feed(chunk):
                self._read_answer(data)
        elif len(self._body) <= MAX_EVENT_BYTES:
            self._body += chunk

    def finish(self) -> None:
        """The body has ended: read what stands in it without an end."""
        if self._events is not None:
            for data in self._events.finish():
                self._read_answer(data)
        elif len(self._body) <= MAX_EVENT_BYTES:
            self._read_answer(bytes(self._body))
        self._body.clear()

    def count_completion(self, count: CountTokens) -> int:
        """Tokens of all that the model wrote: content, reasoning, refusal and tool calls."""
        return sum(count("".join(pieces)) for pieces in self._texts.values())

    @property
    def text_chars(self) -> int:
        """How much text count_completion would count."""
        return self._chars

    def find_sent_tokens(self, completion_tokens: int) -> int | None:
        """Of the completion's tokens those whose text was collected; None if that cannot be told.

        Upstreams keep reasoning to themselves, or send a summary of it, and report what the whole cost.
        """
        if self._held > MAX_HELD_BYTES:
            return None
        hidden = self.usage.reasoning_tokens if self.usage else 0
        if hidden <= self._reasoning_chars:  # a token has seldom less than a character
            return completion_tokens
        return None if self._reasoning_chars else completion_tokens - hidden

    def _read_answer(self, data: bytes) -> None:
        self.usage, pieces = self._read(data, self.usage)
        for piece in pieces:
            if self._held > MAX_HELD_BYTES:
                return
            self._texts[piece.place].append(piece.text)
            self._chars += len(piece.text)
            self._reasoning_chars += len(piece.text) if piece.is_reasoning else 0
            self._held += len(piece.text) + PIECE_BYTES
