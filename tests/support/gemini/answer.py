"""Answers of Gemini's generateContent: usage, texts, refusals, errors."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from trimtab.proxy.wire.answering import PROMPT_TOO_LONG, Completion, ErrorText
from trimtab.proxy.wire.answers.sse import write_event
from trimtab.proxy.wire.answers.tap import Piece
from trimtab.proxy.wire.answers.usage import Usage
from trimtab.proxy.wire.codec import UndecodableError
from trimtab.proxy.wire.json import DECODE_ERRORS, try_decode
from trimtab.proxy.wire.overflow import Overflow, read_overflow

_STATUSES = {PROMPT_TOO_LONG: "INVALID_ARGUMENT", "overloaded": "UNAVAILABLE"}


class Part(msgspec.Struct):
    text: str | None = None
    thought: bool = False
    function_call: dict[str, Any] | None = msgspec.field(default=None, name="functionCall")


class Content(msgspec.Struct):
    parts: list[Part] = []


class Candidate(msgspec.Struct):
    content: Content = msgspec.field(default_factory=Content)
    finish_reason: str | None = msgspec.field(default=None, name="finishReason")
    index: int = 0


class Spent(msgspec.Struct, rename="camel"):
    prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    cached_content_token_count: int | None = None
    thoughts_token_count: int = 0


class Answer(msgspec.Struct):
    candidates: list[Candidate]
    spent: Spent | None = msgspec.field(default=None, name="usageMetadata")

    @property
    def usage(self) -> Usage | None:
        """Thoughts are beside the candidates' tokens, and are part of the completion."""
        spent = self.spent
        if spent is None:
            return None
        completion = spent.candidates_token_count
        completion = None if completion is None else completion + spent.thoughts_token_count
        cached, thoughts = spent.cached_content_token_count, spent.thoughts_token_count
        return Usage(spent.prompt_token_count, completion, cached, thoughts)


_decode = msgspec.json.Decoder(Answer).decode


def read_answer(data: bytes, usage: Usage | None) -> tuple[Usage | None, Sequence[Piece] | None]:
    try:
        answer = _decode(data)
    except DECODE_ERRORS:
        return usage, None
    return answer.usage or usage, [*_read_pieces(answer)]


def _read_pieces(answer: Answer) -> Iterator[Piece]:
    for candidate in answer.candidates:
        for part in candidate.content.parts:
            if part.text:
                yield Piece((candidate.index, part.thought), part.text, is_reasoning=part.thought)
            if part.function_call:
                yield Piece((candidate.index, "call"), msgspec.json.encode(part.function_call).decode())


def is_end(data: bytes) -> bool:
    with suppress(*DECODE_ERRORS):
        return any(candidate.finish_reason for candidate in _decode(data).candidates)
    return False


def is_part_of_answer(line: bytes) -> bool:
    return b'"candidates"' in line and b'"error"' not in line


def read_empty_answer(body: bytes) -> Overflow | None:
    """The overflow in an error that came as an event."""
    answer = try_decode(body)
    return read_overflow(200, body) if isinstance(answer, dict) and "error" in answer else None


def describe_error(error: ErrorText) -> dict[str, Any]:
    status = _STATUSES.get(error.code, "INTERNAL")
    return {"code": error.code, "message": error.message, "status": status, **error.more}


def write_answer(status: int, body: bytes) -> bytes | None:
    answer = try_decode(body)
    return write_event(body) if status == 200 or (isinstance(answer, dict) and "error" in answer) else None


def join(events: list[bytes]) -> Completion:
    """The first candidate. Raises UndecodableError without one."""
    answers = [_decode(data) for data in events]
    first = [one for answer in answers for one in answer.candidates if one.index == 0]
    if not first:
        message = "no candidate"
        raise UndecodableError(message)
    parts = [part for candidate in first for part in candidate.content.parts]
    reason = next((one.finish_reason for one in reversed(first) if one.finish_reason), None)
    return Completion(
        "".join(part.text or "" for part in parts if not part.thought),
        next((usage for answer in reversed(answers) if (usage := answer.usage)), Usage()),
        calls_tool=any(part.function_call for part in parts),
        was_cut=reason == "MAX_TOKENS",
        was_filtered=reason in {"SAFETY", "RECITATION", "PROHIBITED_CONTENT"},
    )
