"""What all dialects share to read answers and to write errors.

Law: no I/O. Whatever an upstream sends, only what reads a completion or a note raises. No name of a dialect's field
stands here.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
import orjson

from trimtab.proxy.wire.answers.sse import FirstEvent, read_events, write_event
from trimtab.proxy.wire.answers.tap import ReadAnswer, Tap
from trimtab.proxy.wire.answers.usage import Usage, read_usage
from trimtab.proxy.wire.json import BYTE_ORDER_MARK, DECODE_ERRORS, describe_fault
from trimtab.proxy.wire.overflow import Overflow, read_overflow
from trimtab.proxy.wire.transcript.body import UndecodableError

PROMPT_TOO_LONG = "context_length_exceeded"
"""Error code that makes clients compact by themselves. Source: OpenAI's API; agents look for it."""


MAX_REASON_BYTES = 2000
"""Part of an error in another form than the dialect's that is quoted. Chosen: as MAX_TEXT_CHARS in overflow.py."""


@dataclass(frozen=True, slots=True)
class Completion:
    """The completion that a model wrote for a question.

    usage: as the upstream reports it; its fields are None if they are not reported.
    calls_tool: the model called a tool.
    was_cut: the completion ended at its limit.
    was_filtered: the upstream's content filter ended the completion.
    note: of a provider that compacts: the JSON of the elements that stand for the transcript, joined by commas.
    """

    text: str
    usage: Usage
    calls_tool: bool = False
    was_cut: bool = False
    was_filtered: bool = False
    note: bytes = b""


@dataclass(frozen=True, slots=True)
class ErrorText:
    """An error that the proxy sends to a client. `code` and `type` are for programs; `param` is the field at fault.

    tokens, limit_tokens: of a prompt that is too long, and the most that it may have; None if they are not known.
    more: further members of the error object.
    """

    message: str
    code: str
    type: str = "invalid_request_error"
    param: str | None = None
    tokens: int | None = None
    limit_tokens: int | None = None
    more: Mapping[str, object] = field(default_factory=dict)


NULL = msgspec.Raw(b"null")


def try_usage(raw: msgspec.Raw, before: Usage | None = None) -> Usage | None:
    try:
        return read_usage(raw, before)
    except DECODE_ERRORS:
        return before


class _Counted(msgspec.Struct):
    usage: msgspec.Raw = NULL


_decode_counted = msgspec.json.Decoder(_Counted | None).decode


def try_inner_usage(raw: msgspec.Raw, before: Usage | None) -> Usage | None:
    """As `try_usage`, of an object that has the usage."""
    with suppress(*DECODE_ERRORS):
        counted = _decode_counted(raw)
        return before if counted is None else read_usage(counted.usage, before)
    return before


class Answers:
    """The part of a codec that is about answers; see codec.py.

    carries: the events of a stream carry the response; its usage is not their own.
    error_type: the type of an error that had another form than the dialect's.
    """

    transcript: str
    error_type = "upstream_error"
    carries = False
    read_answer: ReadAnswer
    """The usage and the texts of a response or of one event. Other JSON gives the usage so far and no texts."""
    is_end: Callable[[bytes], bool]
    """Whether the data of an event says that the answer is complete."""
    is_part_of_answer: Callable[[bytes], bool]
    """Whether a line of a stream is certainly part of a completion, not of an error."""
    is_greeting: Callable[[bytes], bool] | None = None
    is_ping: Callable[[bytes], bool] | None = None
    """For both see `FirstEvent`."""
    read_empty_answer: Callable[[bytes], Overflow | None]
    """As `read_refusal`, for a response with status 200 or one event of it."""

    def tap(self, *, is_stream: bool, asks_usage: bool = False) -> Tap:
        """A reader for the usage and the text of a response. It samples the text if the request `asks_usage`."""
        return Tap(
            self.read_answer, is_stream=is_stream, asks_usage=asks_usage, is_end=self.is_end, carries=self.carries
        )

    def hold_first_event(self, *, keeps_all: bool) -> FirstEvent:
        return FirstEvent(
            self.is_part_of_answer, keeps_all=keeps_all, is_greeting=self.is_greeting, is_ping=self.is_ping
        )

    def read_refusal(self, status: int, body: bytes) -> Overflow | None:
        """What a response says about exceeding the context window; None if it is about something else.

        `body` may also be one event of a stream with status 200.
        """
        return read_overflow(status, body) if status != 200 else self.read_empty_answer(body)

    def write_error(self, error: ErrorText, *, as_event: bool) -> bytes:
        described = self.describe_error(error)
        return self.write_failure(described) if as_event else self.write_error_body(described)

    def describe_error(self, error: ErrorText, /) -> dict[str, Any]:
        param = self.transcript if error.code == PROMPT_TOO_LONG else error.param
        return {"message": error.message, "type": error.type, "param": param, "code": error.code, **error.more}

    def write_error_body(self, described: dict[str, Any]) -> bytes:
        return orjson.dumps({"error": described})

    def write_failure(self, described: dict[str, Any]) -> bytes:
        """An error as what ends a stream."""
        return write_event(self.write_error_body(described))

    write_answer: Callable[[int, bytes], bytes | None]
    """As `write_event`; None for an error in another form than the dialect's."""

    def write_event(self, status: int, body: bytes) -> bytes:
        """A non-stream response of the upstream as events of a stream. An error in another form names the status."""
        written = self.write_answer(status, body)
        if written is not None:
            return written
        reason = body[:MAX_REASON_BYTES].decode("utf-8", "replace").strip() or "no reason given"
        return self.write_error(ErrorText(f"status {status}: {reason}", str(status), self.error_type), as_event=True)

    join: Callable[[list[bytes]], Completion]
    """The completion in the events of a stream, or in a whole response. Raises UndecodableError or DECODE_ERRORS."""

    def read_completion(self, answer: bytes) -> Completion:
        """The completion in the response to a question, streamed or not. Raises UndecodableError."""
        return _read_whole(self.join, answer)


@dataclass(frozen=True, slots=True)
class ProviderNote:
    """How a dialect's provider compacts by itself: how it is asked, and its note, which goes in place of the messages.

    Nothing in a note is changed, since the provider has signed or encrypted it. A note has only elements that need no
    others, so it can stand before any transcript.

    path: follows that of the client's request.
    headers: of the question, and of each request that has a note. Their values are lists.
    finish: what the members of a question and its parameters become, with the operator's own instructions; None if they
        do not allow it.
    join: the note in the events of a stream, or in a whole answer; without `note` if there is none. Raises
        UndecodableError or one of DECODE_ERRORS.
    """

    path: str
    headers: tuple[tuple[str, str], ...]
    finish: Callable[[dict[str, msgspec.Raw], dict[str, Any], str], dict[str, Any] | None]
    join: Callable[[list[bytes]], Completion]

    def read(self, answer: bytes) -> Completion:
        """The note in an answer, streamed or not. Raises UndecodableError."""
        return _read_whole(self.join, answer)


def _read_whole(join: Callable[[list[bytes]], Completion], answer: bytes) -> Completion:
    try:
        events = read_events(answer)
        completion = join([answer.removeprefix(BYTE_ORDER_MARK)] if events is None else events)
        completion.note.decode()  # what is stored and forwarded must be UTF-8
    except DECODE_ERRORS as error:
        raise UndecodableError(describe_fault(error)) from error
    return completion
