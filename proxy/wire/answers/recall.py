"""The tool with which a model searches what was cut, and a model's answer without the calls of it.

Law: the declaration is constant, because tools stand before the messages in the upstream's cache. Until a model calls
the tool, its answer passes byte for byte, event by event. From the call on, the client gets the same answer without the
call and without its end: what the model says next continues it, until an answer comes that asks for nothing of ours.
"""

import re
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from trimtab.proxy.wire.answers.sse import MAX_EVENT_BYTES, write_event
from trimtab.proxy.wire.json import DECODE_ERRORS, decode_any

NAME = "trimtab_recall"
DESCRIPTION = (
    "Search the part of this conversation that was removed or shortened to fit the context window: earlier messages,"
    " tool results and tool calls. Use it when an exact name, number, path or decision from earlier is missing."
    " It returns the passages that match best, quoted."
)
PARAMETERS = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "Exact names and rare words to look for, separated by blanks."},
        "range": {
            "type": "array",
            "items": {"type": "integer"},
            "description": "Optional: the first and the last message to search, as [first, last], counted from 1.",
        },
    },
    "required": ["query"],
}
MAX_ROUND_BYTES = 8 * 1024 * 1024
"""A longer one passes unread, a continued one without our calls. Chosen: 40,000 tokens of chat completions."""
MAX_ASKED = 64  # More calls in one answer get no further one. Chosen: far more than a model asks; bounds a round.
MAX_QUERY_CHARS = 1000  # Part of a query that is read. Chosen: more than the names of one question.
_BYTES = NAME.encode()
_END = re.compile(rb"\n\r?\n|\r\r\n?|\n\r(?=[^\n])")  # LF, CRLF or CR ends a line; a last CR may be half of a CRLF
_DATA = re.compile(rb"(?:\A\xef\xbb\xbf|^|(?<=\r))data:[ ]?([^\r\n]*)", re.MULTILINE)
_NAMED = re.compile(rb"(?:\A\xef\xbb\xbf|^|(?<=\r))event:", re.MULTILINE)


class RecallCall(NamedTuple):
    """A call of the tool. `first`, `last`: the messages to search, counted from 0; `last` is not searched."""

    id: str
    query: str
    first: int = 0
    last: int | None = None


class Round(NamedTuple):
    """What a model answered that has called the tool. own: the ids of the calls that the client must answer."""

    elements: tuple[bytes, ...]
    asked: tuple[RecallCall, ...]
    own: tuple[str, ...]


def read_object(text: bytes) -> dict[str, Any] | None:
    """A JSON object, repaired if need be; None for anything else."""
    try:
        value = decode_any(text)
    except DECODE_ERRORS:
        return None
    return value if isinstance(value, dict) else None


def mend_arguments(arguments: object) -> object:
    """A call's arguments as they can be sent again: some servers refuse a transcript in which they are no object."""
    is_readable = not isinstance(arguments, str) or read_object(arguments.encode("utf-8", "replace")) is not None
    return arguments if is_readable else "{}"


def read_recall_call(call_id: str, arguments: object) -> RecallCall:
    """A call by its arguments, as JSON or decoded; one that cannot be read asks for nothing."""
    members = read_object(arguments.encode("utf-8", "replace")) if isinstance(arguments, str) else arguments
    query = members.get("query") if isinstance(members, dict) else None
    span = members.get("range") if isinstance(members, dict) else None
    first, last = 0, None
    if isinstance(span, list) and len(span) == 2 and all(type(each) is int for each in span):
        first, last = max(span[0] - 1, 0), max(span[1], 0)
    return RecallCall(call_id, query[:MAX_QUERY_CHARS] if isinstance(query, str) else "", first, last)


class Sifter:
    """Takes our calls out of the answers of one exchange, round by round.

    is_last: nothing more will be asked, so the client gets the end of the answer in any case.
    is_over: this round's answer has ended in calls of ours, so that the client does not get its end.
    is_beside: it has ended in such calls and in the client's own.
    is_full: it is too long to be said again; what comes still passes without our calls.
    most_bytes: of an answer that is said again.
    rounds: how many answers were sifted before this one.
    """

    def __init__(self) -> None:
        self.is_last = self.is_over = self.is_beside = self.is_full = False
        self.rounds = 0
        self.most_bytes = MAX_ROUND_BYTES
        self._rest = b""
        self._passed: list[bytes] = []  # the events of this round that were not read
        self._bytes = 0
        self._is_reading = False
        self._is_blind = False
        self._held_raw = b""  # unread events that must not pass yet
        self.begin()

    @abstractmethod
    def begin(self) -> None:
        """A round begins."""

    @abstractmethod
    def calls(self, event: dict[str, Any]) -> bool:
        """Whether an event begins a call of our tool."""

    @abstractmethod
    def sift(self, event: dict[str, Any]) -> list[dict[str, Any]]:
        """The events that the client gets for this one. The same object may be changed."""

    @abstractmethod
    def finish_round(self) -> Round | None:
        """What was answered; None if the tool was not called."""

    @abstractmethod
    def sift_body(self, answer: dict[str, Any]) -> Round | None:
        """An answer in one piece, without our calls, after what the rounds said. None if the tool was not called."""

    @abstractmethod
    def write_results(self, said: Round, texts: list[str]) -> tuple[bytes, ...]:
        """The elements that answer the calls, in their order."""

    def close_calls(self, ours: int, own: int) -> bool:
        """The answer's calls have ended. Returns whether another answer will continue it."""
        self.is_over = 0 < ours <= MAX_ASKED and not own and not self.is_last and not self.is_full
        self.is_beside = ours > 0 and own > 0 and not self.is_full
        return self.is_over

    def weigh(self, chunk: bytes) -> int:
        """The bytes that `feed` may have to decode for these: all so far, if a call may begin with them."""
        if self._is_reading:
            return len(self._rest) + len(chunk)
        return 0 if _BYTES not in self._rest + chunk else self._bytes + len(chunk)

    @property
    def kept_bytes(self) -> int:
        return 0 if self._is_blind else self._bytes + len(self._rest)

    @property
    def said_bytes(self) -> int:
        """The bytes that `end` and `finish_round` may have to write."""
        return self._bytes if self._is_reading else 0

    def feed(self, chunk: bytes) -> bytes:
        if self._is_blind:
            return chunk
        start = max(len(self._rest) - 2, 0)
        self._rest += chunk
        end = max((found.end() for found in _END.finditer(self._rest, start)), default=0)
        ready = self._rest[:end]
        self._bytes += end
        self.is_full = self.is_full or self._bytes > self.most_bytes
        if self.is_full and not self._is_reading:
            return self.go_blind()
        self._rest = self._rest[end:]
        passed = self._take(ready) if ready else b""
        is_long = len(self._rest) > (MAX_ROUND_BYTES if self._is_reading else MAX_EVENT_BYTES)
        return passed + self.go_blind() if is_long else passed

    @property
    def held(self) -> bytes:
        return self._held_raw + self._rest

    def go_blind(self) -> bytes:
        """The rest of the answer passes unread, with what is returned."""
        held, self._rest, self._held_raw, self._passed, self._is_blind = self.held, b"", b"", [], True
        return held

    def end(self) -> tuple[bytes, Round | None]:
        """The stream has ended: what is left for the client, and what was answered. Then the next round may begin."""
        left = self._take(self._rest) if not self._is_blind else b""
        left, self._held_raw = left + self._held_raw, b""
        said = self.finish_round() if self._is_reading and not self._is_blind and not self.is_full else None
        self._rest, self._passed, self._bytes = b"", [], 0
        self.is_over = self.is_beside = self.is_full = False
        self.rounds += 1
        self.begin()
        return left, said

    def adopt(self, events: bytes) -> bytes:
        """Events that end the answer, with the names and the numbers that go on."""
        return b"".join(self._write(raw, event) for raw, event in _read(events)) if self._is_reading else events

    def hold(self, ready: bytes) -> tuple[bytes, bytes]:
        """Of unread events, those that may pass, and those at the end that wait for the next one."""
        return ready, b""

    def _take(self, ready: bytes) -> bytes:
        ready, self._held_raw = self._held_raw + ready, b""
        if not self._is_reading:
            # Mostly no text has the name, so that no event is decoded.
            if _BYTES not in ready or not any(event and self.calls(event) for _, event in _read(ready)):
                ready, self._held_raw = self.hold(ready)
                self._passed.append(ready)
                return ready
            self._is_reading = True
            for _, event in _read(b"".join(self._passed)):
                if event is not None:
                    self.sift(event)
        return b"".join(self._write(raw, event) for raw, event in _read(ready))

    def _write(self, raw: bytes, event: dict[str, Any] | None) -> bytes:
        if event is None:
            return b"" if self.is_over and b"[DONE]" in raw else raw
        is_named = _NAMED.search(raw) is not None
        sifted = ((each, str(each.get("type")).encode() if is_named else b"") for each in self.sift(event))
        return b"".join(write_event(msgspec.json.encode(each), name) for each, name in sifted)


def _read(events: bytes) -> Iterator[tuple[bytes, dict[str, Any] | None]]:
    """Each event, and its data; None if that is no object."""
    for raw in split_events(events):
        yield raw, read_object(b"\n".join(_DATA.findall(raw)))


def split_events(events: bytes) -> Iterator[bytes]:
    start = 0
    for found in _END.finditer(events):
        yield events[start : found.end()]
        start = found.end()
    if start < len(events):
        yield events[start:]
