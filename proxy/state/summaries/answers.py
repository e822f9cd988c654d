"""What a model's upstream answers to the question for a summary.

Law: an answer is a note, or an error that says what it is in its place.
"""

from contextlib import suppress
from dataclasses import dataclass

import aiohttp
import msgspec

from proxy.state.summaries.calls import NoSummaryError, Result
from proxy.wire.chat.answer import UNKNOWN_FORM, Usage, read_usage
from rules.conversation import CountTokens
from rules.summary import handoff

REFUSED = frozenset({400, 413, 422, 500})
"""Statuses with which servers answer a prompt that is too long or a parameter that they do not know."""
MAX_ANSWER_BYTES = 4 * 1024 * 1024


class _Part(msgspec.Struct):
    text: str | None = None


class _Content(msgspec.Struct):
    content: str | list[_Part] | None = None
    tool_calls: list[msgspec.Raw] | None = None


class _Choice(msgspec.Struct):
    message: _Content = msgspec.field(default_factory=_Content)
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    usage: msgspec.Raw = msgspec.Raw(b"null")


class _Error(msgspec.Struct):
    param: str | None = None


class _ErrorAnswer(msgspec.Struct):
    error: _Error


@dataclass(frozen=True, slots=True)
class Completion:
    """What a model has written, why it stopped, and what that cost as far as it is reported."""

    written: str
    calls_tool: bool
    finish_reason: str | None
    usage: Usage


class RefusedError(NoSummaryError):
    """The upstream refused; `param` is what it names as the reason, if it names one.

    `is_final` says that no other request would be answered otherwise.
    """

    result: Result = "refused"

    def __init__(self, status: int, param: str | None, *, is_final: bool) -> None:
        super().__init__(f"status {status}")
        self.param = param
        self.is_final = is_final


class NoNoteError(NoSummaryError):
    """The model answered, but not with a note. `was_cut` says that its limit stopped it."""

    result: Result = "rejected"

    def __init__(self, reason: str, *, was_cut: bool) -> None:
        super().__init__(reason)
        self.was_cut = was_cut


class EmptyError(NoNoteError):
    """The model answered with nothing, or with a tool call, or it was stopped while it was thinking."""

    result: Result = "empty"


async def read_answer(response: aiohttp.ClientResponse) -> bytes:
    """The body of an answer. Raises RefusedError if it is an error, NoSummaryError if it is far too long."""
    answer = bytearray()
    async for chunk in response.content.iter_any():
        answer += chunk
        if len(answer) > MAX_ANSWER_BYTES:
            message = "too long"
            raise NoSummaryError(message)
    if response.status != 200:
        raise RefusedError(response.status, _read_param(answer), is_final=response.status not in REFUSED)
    return bytes(answer)


def read_completion(answer: bytes) -> Completion:
    """The completion in an answer. Raises NoSummaryError if it cannot be read."""
    try:
        decoded = msgspec.json.decode(answer, type=_Completion)
    except UNKNOWN_FORM as error:
        message = "unreadable"
        raise NoSummaryError(message) from error
    usage: Usage | None = None
    with suppress(*UNKNOWN_FORM):
        usage = read_usage(decoded.usage)
    choice = decoded.choices[0] if decoded.choices else _Choice()
    content = choice.message.content
    written = content if isinstance(content, str) else "".join(part.text or "" for part in content or ())
    return Completion(written, bool(choice.message.tool_calls), choice.finish_reason, usage or Usage())


def accept_note(completion: Completion, covered_tokens: int, count: CountTokens) -> str:
    """The note that a completion is. Raises NoNoteError if it is none, or not shorter than what it stands for."""
    answer, was_cut = handoff.read_answer(completion.written), completion.finish_reason == "length"
    if not answer.text or completion.calls_tool:  # what stands beside a call is about the call
        reason = "empty"
        raise EmptyError(reason, was_cut=was_cut)
    flaw = handoff.Flaw.REFUSAL if completion.finish_reason == "content_filter" else answer.flaw
    if flaw is not None:
        raise NoNoteError(flaw, was_cut=was_cut)
    if count(answer.text) >= covered_tokens:
        reason = "does not shrink"
        raise NoNoteError(reason, was_cut=False)
    return answer.text


def _read_param(answer: bytes | bytearray) -> str | None:
    """Which parameter an OpenAI error names."""
    try:
        return msgspec.json.decode(answer, type=_ErrorAnswer).error.param
    except UNKNOWN_FORM:
        return None
