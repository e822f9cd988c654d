"""Reads the upstream's answer to the question for a summary.

Law: an answer is either a note, or an error that says what it is instead.
"""

import time
from collections.abc import Callable

import aiohttp

from trimtab.proxy.http.client import read_bounded
from trimtab.proxy.http.headers import BUSY, read_retry_after
from trimtab.proxy.summaries.calls import BusyError, NoSummaryError, Result
from trimtab.proxy.wire.answering import Completion, ProviderNote, Question
from trimtab.proxy.wire.answers.sse import is_stream
from trimtab.proxy.wire.codec import Codec, UndecodableError
from trimtab.proxy.wire.json import DECODE_ERRORS
from trimtab.proxy.wire.overflow import Kind
from trimtab.rules.conversation import CountTokens
from trimtab.rules.summary import handoff
from trimtab.rules.summary.quoting import clean_note
from trimtab.rules.summary.request import Summary

REFUSED = frozenset({400, 413, 422, 500})
"""Statuses with which servers refuse a prompt that is too long, or an unknown parameter."""
OTHER_REASONS = frozenset({401, 402, 403, 407, 408, 502, 504})
"""Statuses that are never about a parameter, whatever their text names."""
UNCLEAR = frozenset({400, 422})
"""Statuses with which servers refuse a parameter without naming it."""
NOTES_UNKNOWN = frozenset({200, 404, 405, 501})
"""Statuses with which an upstream without notes of its own answers: an answer of the model, or no such endpoint."""
MAX_ANSWER_BYTES = 4 * 1024 * 1024  # chosen: far above the largest note, with its reasoning
MAX_STREAM_BYTES = 4 * MAX_ANSWER_BYTES
"""The same of a stream. Chosen: it has some 200 bytes for each token."""


class RefusedError(NoSummaryError):
    """The upstream refused the question.

    form: the form of a parameter that it names as the reason; None if it names none.
    is_unclear: it names no reason that is known.
    is_final: another form of the question would be refused too.
    lacks_notes: the upstream does not write notes of its own, if it was asked for one.
    """

    result: Result = "refused"

    def __init__(self, status: int, form: str | None = None, *, is_unclear: bool = False) -> None:
        super().__init__(f"status {status}")
        self.status = status
        self.form = form
        self.is_unclear = is_unclear
        self.is_final = form is None and status not in REFUSED
        self.lacks_notes = is_unclear or form is not None or status in NOTES_UNKNOWN


class NoNoteError(NoSummaryError):
    """The model answered, but not with a note. `was_cut`: the answer reached its token limit."""

    result: Result = "rejected"

    def __init__(self, reason: str, *, was_cut: bool) -> None:
        super().__init__(reason)
        self.was_cut = was_cut


class EmptyError(NoNoteError):
    """The answer is empty or a tool call, or it was stopped while the model was still thinking."""

    result: Result = "empty"


async def read_answer(response: aiohttp.ClientResponse) -> bytes:
    """Read the body of an answer, also of a refusal. Raises BusyError, and NoSummaryError if it is far too long."""
    if response.status in BUSY:
        raise BusyError(response.status, read_retry_after(response.headers, time.time()))
    answer = await read_bounded(response, MAX_STREAM_BYTES)
    if answer is None or (len(answer) > MAX_ANSWER_BYTES and not is_stream(answer)):
        message = "too long"
        raise NoSummaryError(message)
    return answer


def read_completion(
    status: int, answer: bytes, codec: Codec, question: Question, provider: ProviderNote | None = None
) -> Completion:
    """Decode the completion in an answer, or the note of a `provider` that was asked for one.

    Raises RefusedError for an error, NoSummaryError if it cannot be read.
    """
    if status != 200:
        raise _read_refusal(status, answer, codec, question)
    try:
        return codec.read_completion(answer) if provider is None else provider.read(answer)
    except UndecodableError as error:
        form = codec.find_refused(question, answer)
        if form is not None:
            raise RefusedError(status, form) from error
        message = "unreadable"
        raise NoSummaryError(message) from error


def _read_refusal(status: int, answer: bytes, codec: Codec, question: Question) -> RefusedError:
    """What an error says. One about the length of the prompt may name parameters, too, but is not about them."""
    overflow = codec.read_refusal(status, answer)
    if status in OTHER_REASONS or (overflow is not None and overflow.kind is not Kind.COMPLETION):
        return RefusedError(status)
    form = codec.find_refused(question, answer)
    return RefusedError(status, form, is_unclear=form is None and overflow is None and status in UNCLEAR)


def accept_provided(completion: Completion, weigh: Callable[[bytes], int], room_tokens: int) -> Summary:
    """The summary that a provider's own note is. Raises RefusedError if it writes none, else NoNoteError.

    weigh: the tokens of a note. room_tokens: the most that it may have.
    """
    if not completion.note and completion.text:
        raise RefusedError(200)
    if not completion.note:
        reason = "no note"
        raise EmptyError(reason, was_cut=completion.was_cut)
    try:
        tokens = weigh(completion.note)
    except (UndecodableError, *DECODE_ERRORS):
        tokens = 0
    if not 0 < tokens <= room_tokens:
        reason = "too long" if tokens else "unreadable"
        raise NoNoteError(reason, was_cut=False)
    return Summary(clean_note(completion.text), by_model=True, note=completion.note)


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
