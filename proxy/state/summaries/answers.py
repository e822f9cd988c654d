"""Reads the upstream's answer to the question for a summary.

Law: an answer is either a note, or an error that says what it is instead.
"""

import aiohttp

from proxy.http.client import read_bounded
from proxy.state.summaries.calls import NoSummaryError, Result
from proxy.wire.codec import Codec, Completion, Parameter, UndecodableError
from rules.conversation import CountTokens
from rules.summary import handoff
from rules.summary.quoting import clean_note

REFUSED = frozenset({400, 413, 422, 500})
"""Statuses with which servers refuse a prompt that is too long, or an unknown parameter."""
MAX_ANSWER_BYTES = 4 * 1024 * 1024  # chosen: far above the largest note, with its reasoning


class RefusedError(NoSummaryError):
    """The upstream refused the question.

    parameter: the parameter that it names as the reason; None if it names none.
    is_final: another form of the question would be refused too.
    """

    result: Result = "refused"

    def __init__(self, status: int, parameter: Parameter | None, *, is_final: bool) -> None:
        super().__init__(f"status {status}")
        self.parameter = parameter
        self.is_final = is_final


class NoNoteError(NoSummaryError):
    """The model answered, but not with a note. `was_cut`: the answer reached its token limit."""

    result: Result = "rejected"

    def __init__(self, reason: str, *, was_cut: bool) -> None:
        super().__init__(reason)
        self.was_cut = was_cut


class EmptyError(NoNoteError):
    """The answer is empty or a tool call, or it was stopped while the model was still thinking."""

    result: Result = "empty"


async def read_answer(response: aiohttp.ClientResponse, codec: Codec) -> bytes:
    """Read the body of an answer. Raises RefusedError for an error status, NoSummaryError if it is far too long."""
    answer = await read_bounded(response, MAX_ANSWER_BYTES)
    if answer is None:
        message = "too long"
        raise NoSummaryError(message)
    if response.status != 200:
        parameter = codec.read_refused_parameter(answer)
        raise RefusedError(response.status, parameter, is_final=response.status not in REFUSED)
    return answer


def read_completion(answer: bytes, codec: Codec) -> Completion:
    """Decode the completion in an answer. Raises NoSummaryError if it cannot be read."""
    try:
        return codec.read_completion(answer)
    except UndecodableError as error:
        message = "unreadable"
        raise NoSummaryError(message) from error


def accept_note(
    completion: Completion, covered_tokens: int, count: CountTokens, *, enough_tokens: int | None = None
) -> str:
    """Return the clean note in a completion. Raises NoNoteError if there is none, or if it is not shorter.

    enough_tokens: set if the operator has configured instructions. A note of at least this many tokens then needs no
        headings.
    """
    answer, was_cut = handoff.read_answer(completion.text), completion.was_cut
    if not answer.text or completion.calls_tool:  # text next to a call is about the call
        reason = "empty"
        raise EmptyError(reason, was_cut=was_cut)
    flaw = handoff.Flaw.REFUSAL if completion.was_filtered else answer.flaw
    if flaw is handoff.Flaw.NO_HEADINGS and enough_tokens is not None and count(answer.text) >= enough_tokens:
        flaw = None
    if flaw is not None:
        raise NoNoteError(flaw, was_cut=was_cut)
    if count(answer.text) >= covered_tokens:
        reason = "does not shrink"
        raise NoNoteError(reason, was_cut=False)
    return clean_note(answer.text)
