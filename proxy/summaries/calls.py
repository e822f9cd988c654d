"""Calls for summaries: what an operator sees of each, and what its answer says.

Law: no message text and no credential in what is logged and counted. A model is named by its label, and the result by
one of a few words. An answer is either a note, or an error that says what it is instead.
"""

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import aiohttp
import msgspec
from yarl import URL

from trimtab.proxy.catalogue.prices import PriceList, Tokens
from trimtab.proxy.catalogue.prompt_caches import Refusals
from trimtab.proxy.http.client import read_bounded
from trimtab.proxy.http.errors import ProxyError
from trimtab.proxy.http.headers import BUSY, read_retry_after
from trimtab.proxy.telemetry.metrics import OTHER, Metrics
from trimtab.proxy.telemetry.spans import describe_server, find_current
from trimtab.proxy.wire.answering import Completion, ProviderNote, Question
from trimtab.proxy.wire.answers.sse import is_stream
from trimtab.proxy.wire.answers.usage import Usage
from trimtab.proxy.wire.codec import Codec, UndecodableError
from trimtab.proxy.wire.json import DECODE_ERRORS
from trimtab.proxy.wire.overflow import Kind
from trimtab.rules.conversation import CountTokens
from trimtab.rules.summary import handoff

if TYPE_CHECKING:
    from trimtab.proxy.telemetry.otlp import Span, Spans
from trimtab.rules.summary.quoting import clean_note
from trimtab.rules.summary.request import Summary

RETRIAL_SECONDS = 6 * 3600.0  # Of a refused parameter. Chosen: it costs a refused call; servers are updated at times.
Form = Literal["inline", "transcript", "provider"]
Result = Literal["written", "rejected", "empty", "refused", "busy", "failed", "timed_out", "cancelled"]


class NoSummaryError(Exception):
    """No summary is available. The message says why in a word or two and contains no message text."""

    result: Result = "failed"  # how the call ended


class BusyError(NoSummaryError):
    """The upstream has no time now. `seconds`: it asks to be left alone for so long; None if it does not say."""

    result: Result = "busy"

    def __init__(self, status: int, seconds: float | None) -> None:
        super().__init__(f"status {status}")
        self.seconds = seconds


class LateError(NoSummaryError):
    """The model has taken too long."""

    result: Result = "timed_out"


class Payer(msgspec.Struct, frozen=True):
    """Who bears the cost of a summary, and the prices of the model that writes it; None if these are not known.

    session: the name of the session that it is for.
    tell_label: tells the present label of the request's model in the metrics.
    shown_model: the request's model, in the form that may be logged; if it is empty, the label is.
    vouched: the model's name if it may become that label once the model has answered for a summary, else empty.
    """

    prices: PriceList | None = None
    client_name: str = ""
    session: str = ""
    tell_label: Callable[[], str] = lambda: OTHER
    vouched: str = ""
    shown_model: str = ""

    @property
    def label(self) -> str:
        return self.tell_label()

    @property
    def name(self) -> str:
        return self.shown_model or self.label


NO_PAYER = Payer()
MAX_FAILING = 1000  # Models that are remembered as failing. Chosen: far more than write summaries.
OnEnd = Callable[["SummaryCall", float], None]  # Gets a call, and its seconds. It must not raise.


class SummaryCalls:
    """Counts and logs the calls of one proxy, and remembers refused parameters. on_end: also gets each call."""

    def __init__(
        self,
        metrics: Metrics,
        log: Any,
        spans: "Spans | None" = None,
        on_end: OnEnd | None = None,
    ) -> None:
        self.metrics = metrics
        self.spans = spans
        self._on_end = on_end
        self._log = log
        self._failing: set[str] = set()
        self.refusals: Refusals[str] = Refusals(RETRIAL_SECONDS)

    def end(self, call: "SummaryCall") -> None:
        seconds = time.monotonic() - call.started
        self.metrics.summary_seconds.observe((call.model, call.result), seconds)
        if call.result == "rejected":
            self.metrics.summaries[call.model, "rejected"] += 1
        if call.charged is not None:  # counted here and not where the answer is read, which is another thread
            self.metrics.summary_tokens[call.model, "prompt"] += call.prompt_tokens
            self.metrics.summary_tokens[call.model, "completion"] += call.completion_tokens
        self._log.info(
            "summary",
            model=call.name,
            form=call.form,
            result=call.result,
            reason=call.reason,
            status=call.status,
            prompt_tokens=call.prompt_tokens,
            completion_tokens=call.completion_tokens,
            cached_tokens=call.usage.cached_tokens,
            written_tokens=call.usage.written_tokens,
            seconds=round(seconds, 3),
        )
        if self._on_end is not None:
            self._on_end(call, seconds)

    def note_failure(self, model: str, reason: str) -> None:
        """Note that this model gave no summary in any attempt. Only the first such failure is logged, as a warning."""
        if model not in self._failing:
            if len(self._failing) >= MAX_FAILING:  # clients may invent names
                self._failing.clear()
            self._failing.add(model)
            meaning = "cuts get digests, and the model is asked again after pauses that double; see summary.model"
            self._log.warning("summaries_fail", model=model, reason=reason, meaning=meaning)

    def note_fallen(self, session: str, label: str, model: str, reason: str) -> None:
        """Note that a session has a digest although a model's summary was wanted. model: as it may be shown."""
        self.metrics.sessions_without_summaries[label, reason] += 1
        self._log.warning("session_without_summaries", session=session, model=model, reason=reason)

    def note_success(self, model: str) -> None:
        if model in self._failing:
            self._failing.remove(model)
            self._log.info("summaries_work_again", model=model)


def name_reason(error: Exception) -> str:
    """The part of an error that may be logged: our own message, else only its type."""
    return str(error) if isinstance(error, ProxyError) else type(error).__name__


class SummaryCall:
    """Context manager for one call: it is recorded however it ends. The caller sets the figures.

    model: the metrics' label. name: the request's model. prompt_tokens: our count, until the upstream reports its own.
    usage: the tokens as the upstream reports them, also those of its prompt cache; all None before the answer.
    charged: what the upstream charges for, and who pays; None without an answer.
    span: a child of the span of the request that this call is for.
    """

    def __init__(
        self, calls: SummaryCalls, payer: Payer, form: Form, prompt_tokens: int, place: tuple[URL, str] | None = None
    ) -> None:
        """`place`: the URL, and the name of its dialect."""
        self._calls = calls
        self.model, self.name = payer.label, payer.name
        self.form = form
        self.prompt_tokens = prompt_tokens
        self.completion_tokens = 0
        self.usage = Usage()
        self.charged: tuple[Tokens, Payer] | None = None
        self.status: int | None = None
        self.result: Result = "written"
        self.reason: str | None = None
        self.started = time.monotonic()
        self.span = self._begin_span(place)

    def _begin_span(self, place: tuple[URL, str] | None) -> "Span | None":
        if self._calls.spans is None:
            return None
        told: dict[str, str | int] = {"gen_ai.operation.name": "chat", "gen_ai.request.model": self.name}
        if place is not None:
            url, dialect = place
            told |= describe_server(url.host, url.port, dialect)
        told |= {"trimtab.summary.form": self.form}
        return self._calls.spans.start_within(find_current(), f"chat {self.name}", told)

    def charge(self, cached_tokens: int | None, written_tokens: int | None, payer: Payer) -> None:
        """Note what the upstream charges for. The cached and written tokens are parts of the prompt's."""
        tokens = Tokens.of(self.prompt_tokens, cached_tokens, written_tokens, self.completion_tokens)
        self.charged = tokens, payer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if isinstance(error, NoSummaryError):
            self.result, self.reason = error.result, str(error)
        elif isinstance(error, Exception):
            self.result, self.reason = "failed", name_reason(error)
        elif kind is not None and self.result == "written":
            self.result = "cancelled"
        self._calls.end(self)
        if self.span is None:
            return
        told = {
            "gen_ai.usage.input_tokens": self.usage.prompt_tokens,
            "gen_ai.usage.output_tokens": self.usage.completion_tokens,
            "gen_ai.usage.cache_read.input_tokens": self.usage.cached_tokens,
            "gen_ai.usage.cache_write.input_tokens": self.usage.written_tokens,
            "http.response.status_code": self.status,
            "trimtab.summary.result": self.result,
        }
        self.span.note({name: value for name, value in told.items() if value is not None})
        self.span.end(error="" if self.result == "written" else self.result)


REFUSED = frozenset({400, 413, 422, 500})  # Statuses for a prompt that is too long, or an unknown parameter
OTHER_REASONS = frozenset({401, 402, 403, 407, 408, 502, 504})
"""Statuses that are never about a parameter, whatever their text names."""
UNCLEAR = frozenset({400, 422})  # Statuses with which servers refuse a parameter without naming it
NOTES_UNKNOWN = frozenset({200, 404, 405, 501})  # Statuses of upstreams without notes of their own
MAX_ANSWER_BYTES = 4 * 1024 * 1024  # chosen: far above the largest note, with its reasoning
MAX_STREAM_BYTES = 4 * MAX_ANSWER_BYTES  # The same of a stream. Chosen: it has some 200 bytes for each token.


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
        raise NoSummaryError("too long")
    return answer


def read_completion(
    status: int, answer: bytes, codec: Codec, question: Question, provider: ProviderNote | None = None
) -> Completion:
    """The completion in an answer, or a provider's note. Raises RefusedError for an error, else NoSummaryError."""
    if status != 200:
        raise _read_refusal(status, answer, codec, question)
    try:
        return codec.read_completion(answer) if provider is None else provider.read(answer)
    except UndecodableError as error:
        form = codec.find_refused(question, answer)
        if form is not None:
            raise RefusedError(status, form) from error
        raise NoSummaryError("unreadable") from error


def _read_refusal(status: int, answer: bytes, codec: Codec, question: Question) -> RefusedError:
    """What an error says. One about the length of the prompt may name parameters, too, but is not about them."""
    overflow = codec.read_refusal(status, answer)
    if status in OTHER_REASONS or (overflow is not None and overflow.kind is not Kind.COMPLETION):
        return RefusedError(status)
    form = codec.find_refused(question, answer)
    return RefusedError(status, form, is_unclear=form is None and overflow is None and status in UNCLEAR)


def accept_provided(completion: Completion, weigh: Callable[[bytes], int], room_tokens: int) -> Summary:
    """The summary in a provider's note of at most `room_tokens`. Raises RefusedError without one, else NoNoteError."""
    if not completion.note and completion.text:
        raise RefusedError(200)
    if not completion.note:
        raise EmptyError("no note", was_cut=completion.was_cut)
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
    """The clean note; from `enough_tokens` on it needs no headings. Raises NoNoteError, also if it is not shorter."""
    answer, was_cut = handoff.read_answer(completion.text), completion.was_cut
    if not answer.text or completion.calls_tool:  # text next to a call is about the call
        raise EmptyError("empty", was_cut=was_cut)
    flaw = handoff.Flaw.REFUSAL if completion.was_filtered else answer.flaw
    if flaw is handoff.Flaw.NO_HEADINGS and enough_tokens is not None and count(answer.text) >= enough_tokens:
        flaw = None
    if flaw is not None:
        raise NoNoteError(flaw, was_cut=was_cut)
    if count(answer.text) >= covered_tokens:
        raise NoNoteError("does not shrink", was_cut=False)
    return clean_note(answer.text)
