"""What a model's upstream answers to the question for a summary.

Law: an answer is a note, or an error that says what it is in its place.
"""

import aiohttp

from proxy.http.client import read_bounded
from proxy.state.summaries.calls import NoSummaryError, Result
from proxy.wire.codec import Codec, Completion, Parameter, UndecodableError
from rules.conversation import CountTokens
from rules.summary import handoff

REFUSED = frozenset({400, 413, 422, 500})
"""Statuses with which servers answer a prompt that is too long or a parameter that they do not know."""
MAX_ANSWER_BYTES = 4 * 1024 * 1024


class RefusedError(NoSummaryError):
    """The upstream refused; `parameter` is the one that it names as the reason, if it names one.

    `is_final` says that no other request would be answered otherwise.
    """

    result: Result = "refused"

    def __init__(self, status: int, parameter: Parameter | None, *, is_final: bool) -> None:
        super().__init__(f"status {status}")
        self.parameter = parameter
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


async def read_answer(response: aiohttp.ClientResponse, codec: Codec) -> bytes:
    """The body of an answer. Raises RefusedError if it is an error, NoSummaryError if it is far too long."""
    answer = await read_bounded(response, MAX_ANSWER_BYTES)
    if answer is None:
        message = "too long"
        raise NoSummaryError(message)
    if response.status != 200:
        parameter = codec.read_refused_parameter(answer)
        raise RefusedError(response.status, parameter, is_final=response.status not in REFUSED)
    return answer


def read_completion(answer: bytes, codec: Codec) -> Completion:
    """The completion in an answer. Raises NoSummaryError if it cannot be read."""
    try:
        return codec.read_completion(answer)
    except UndecodableError as error:
        message = "unreadable"
        raise NoSummaryError(message) from error


def accept_note(
    completion: Completion, covered_tokens: int, count: CountTokens, *, enough_tokens: int | None = None
) -> str:
    """The note that a completion is. Raises NoNoteError if it is not a note, or not shorter than what it stands for.

    If the operator's own words say what a note is, one of `enough_tokens` needs no headings.
    """
    answer, was_cut = handoff.read_answer(completion.text), completion.was_cut
    if not answer.text or completion.calls_tool:  # what stands beside a call is about the call
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
    return answer.text
