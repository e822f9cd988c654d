"""Calls for summaries as an operator sees them: a log line and a duration for each, its cost, and its result.

Law: no message text and no credential. A model is named by its label, and the result by one of a few words.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

from yarl import URL

from trimtab.proxy.catalogue.prices import PriceList, Tokens
from trimtab.proxy.catalogue.prompt_caches import Refusals
from trimtab.proxy.http.errors import ProxyError
from trimtab.proxy.telemetry.metrics import OTHER, Metrics
from trimtab.proxy.telemetry.spans import NO_SPAN, NO_SPANS, Span, Spans, describe_server, find_current
from trimtab.proxy.wire.answers.usage import Usage

RETRIAL_SECONDS = 6 * 3600.0
"""For so long a parameter that was refused is left out. Chosen: a trial costs one refused call; servers are updated now
and then."""
Form = Literal["inline", "transcript", "provider"]
Result = Literal["written", "rejected", "empty", "refused", "busy", "failed", "timed_out", "cancelled"]


class NoSummaryError(Exception):
    """No summary is available. The message says why in a word or two and contains no message text.

    result: how the call ended.
    """

    result: Result = "failed"


class BusyError(NoSummaryError):
    """The upstream has no time now. `seconds`: it asks to be left alone for so long; None if it does not say."""

    result: Result = "busy"

    def __init__(self, status: int, seconds: float | None) -> None:
        super().__init__(f"status {status}")
        self.seconds = seconds


@dataclass(frozen=True, slots=True)
class Payer:
    """Who bears the cost of a summary, and the prices of the model that writes it; None if these are not known.

    session: the name of the session that it is for.
    tell_label: tells the present label of the request's model in the metrics.
    vouched: the model's name if it may become that label once the model has answered for a summary, else empty.
    """

    prices: PriceList | None = None
    client_name: str = ""
    session: str = ""
    tell_label: Callable[[], str] = lambda: OTHER
    vouched: str = ""

    @property
    def label(self) -> str:
        return self.tell_label()


NO_PAYER = Payer()
OnEnd = Callable[["SummaryCall", float], None]
"""Gets a call that has ended, and how long it took in seconds. It must not raise."""


class SummaryCalls:
    """Counts and logs the calls of one proxy, and remembers which parameters were refused.

    on_end: also gets each call, and books what it cost; None for nobody.
    """

    def __init__(
        self,
        metrics: Metrics,
        log: Any,
        spans: Spans = NO_SPANS,
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
            model=call.model,
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

    model: the metrics' label. prompt_tokens: our count, until the upstream reports its own.
    usage: the tokens as the upstream reports them, also those of its prompt cache; all None before the answer.
    charged: what the upstream charges for, and who pays; None without an answer.
    span: a child of the span of the request that this call is for.
    """

    def __init__(
        self, calls: SummaryCalls, model: str, form: Form, prompt_tokens: int, place: tuple[URL, str] | None = None
    ) -> None:
        """`place`: the URL, and the name of its dialect."""
        self._calls = calls
        self.model = model
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

    def _begin_span(self, place: tuple[URL, str] | None) -> Span:
        if not self._calls.spans.is_on:
            return NO_SPAN
        told: dict[str, str | int] = {"gen_ai.operation.name": "chat", "gen_ai.request.model": self.model}
        if place is not None:
            url, dialect = place
            told |= describe_server(url.host, url.port, dialect)
        told |= {"trimtab.summary.form": self.form}
        return self._calls.spans.start_within(find_current(), f"chat {self.model}", told)

    def _end_span(self) -> None:
        told: dict[str, str | int | None] = {
            "gen_ai.usage.input_tokens": self.usage.prompt_tokens,
            "gen_ai.usage.output_tokens": self.usage.completion_tokens,
            "gen_ai.usage.cache_read.input_tokens": self.usage.cached_tokens,
            "gen_ai.usage.cache_write.input_tokens": self.usage.written_tokens,
            "http.response.status_code": self.status,
            "trimtab.summary.result": self.result,
        }
        self.span.note({name: value for name, value in told.items() if value is not None})
        self.span.end(error="" if self.result == "written" else self.result)

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
        if self.span is not NO_SPAN:
            self._end_span()
