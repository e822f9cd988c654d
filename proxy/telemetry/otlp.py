"""Spans that are sent to a collector by OTLP over HTTP: the edge to OpenTelemetry's library.

Law: a thread of the library's sends them. It holds a bounded number of spans; further ones are dropped. Whatever the
collector answers, also if there is none, changes only the log.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import suppress
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

MAX_WAITING_SPANS = 2048  # Spans that wait to be sent. Source: the default of OTEL_BSP_MAX_QUEUE_SIZE.
MAX_BATCH_SPANS = 512  # Spans in one request to the collector. Source: the default of OTEL_BSP_MAX_EXPORT_BATCH_SIZE.
DELAY_MILLISECONDS = 1000  # For other spans. Chosen: below the default of 5 s, so that a trace is soon seen.
EXPORT_SECONDS = 5  # For a request, with the library's own further attempts. Chosen: a collector is near.
FLUSH_SECONDS = 2.0  # For the last spans of a process. Chosen: far less than a worker gets to end.
TRACE_HEADERS = ("traceparent", "tracestate")  # Source: W3C Trace Context, level 1

Attributes = Mapping[str, Any]
Headers = Sequence[tuple[str, str]]
_PROPAGATOR = TraceContextTextMapPropagator()


class Span:
    """A call to an upstream. has_children: other calls were made for it."""

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        self.has_children = False

    @property
    def context(self) -> Context:
        return trace.set_span_in_context(self._span)

    def adopt(self) -> Context:
        self.has_children = True
        return self.context

    def write_into(self, headers: MutableMapping[str, str]) -> None:
        """Have the request name this span as its parent."""
        for name in TRACE_HEADERS:
            if name in headers:
                del headers[name]
        _PROPAGATOR.inject(headers, self.context)

    def note(self, attributes: Attributes) -> None:
        self._span.set_attributes(dict(attributes))

    def note_moment(self, name: str) -> None:
        self._span.add_event(name)

    def end(self, *, error: str = "", seconds_ago: float = 0.0) -> None:
        """The call has ended. `error`: what kind of error ended it, in one word; empty for none."""
        if error:
            self._span.set_attribute("error.type", error)
            self._span.set_status(trace.StatusCode.ERROR)
        self._span.end(time.time_ns() - int(seconds_ago * 1e9))


class Spans:
    """Starts spans that are sent to a collector. Must be made after the fork of a worker: it starts a thread."""

    def __init__(self, endpoint: str, service_name: str, version: str, log: Any) -> None:
        library = logging.getLogger("opentelemetry")
        # Its lines would come with each attempt, and may quote what could not be sent.
        library.handlers, library.propagate = [_Dropped(log)], False
        exporter = OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces", timeout=EXPORT_SECONDS)
        self._processor = BatchSpanProcessor(
            _Told(exporter, log),
            max_queue_size=MAX_WAITING_SPANS,
            schedule_delay_millis=DELAY_MILLISECONDS,
            max_export_batch_size=MAX_BATCH_SPANS,
        )
        resource = Resource.create({"service.name": service_name, "service.version": version})
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(self._processor)
        self._tracer = provider.get_tracer("trimtab", version)

    def start(self, name: str, attributes: Attributes, headers: Headers = (), after: Span | None = None) -> Span:
        """Start a span for a call: a child of the one that the headers name, else of `after`, else of none."""
        context = _read_parent(headers)
        if context is None:
            return self.start_within(after, name, attributes)
        return self._start(name, attributes, context)

    def start_within(self, parent: Span | None, name: str, attributes: Attributes) -> Span:
        """Start a child of a span; a new trace without one."""
        # Not the library's own current span: that of another program in this process must not become the parent.
        context = Context() if parent is None else parent.adopt()
        return self._start(name, attributes, context)

    def _start(self, name: str, attributes: Attributes, context: Context) -> Span:
        kind = trace.SpanKind.CLIENT
        return Span(self._tracer.start_span(name, context=context, kind=kind, attributes=dict(attributes)))

    async def close(self) -> None:
        """Send the last spans, within FLUSH_SECONDS."""
        loop, is_flushed = asyncio.get_running_loop(), asyncio.Event()

        def flush() -> None:
            self._processor.shutdown()  # type: ignore[no-untyped-call]
            with suppress(RuntimeError):  # the loop has ended by now
                loop.call_soon_threadsafe(is_flushed.set)

        # Not a thread of the loop's pool: the process would wait for it at its end.
        threading.Thread(target=flush, name="trimtab-last-spans", daemon=True).start()
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_SECONDS):
                await is_flushed.wait()


def _read_parent(headers: Headers) -> Context | None:
    """The context of the client's span; None if its headers name none, or more than one."""
    carrier = {name: [value for key, value in headers if key.lower() == name] for name in TRACE_HEADERS}
    if len(carrier["traceparent"]) != 1:
        return None
    context = _PROPAGATOR.extract({name: values for name, values in carrier.items() if values}, Context())
    return context if trace.get_current_span(context).get_span_context().is_valid else None


class _Told(SpanExporter):
    """Sends spans by another exporter, and logs the first failure and the first success after it."""

    def __init__(self, exporter: SpanExporter, log: Any) -> None:
        self._exporter = exporter
        self._log = log
        self._is_failing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        is_failing = result is not SpanExportResult.SUCCESS
        if is_failing and not self._is_failing:
            meaning = "the collector does not take the spans; requests go on without traces"
            self._log.warning("traces_not_sent", meaning=meaning)
        if self._is_failing and not is_failing:
            self._log.info("traces_sent_again")
        self._is_failing = is_failing
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return self._exporter.force_flush(timeout_millis)


class _Dropped(logging.Handler):
    """Logs, once, that spans were dropped because too many waited. Other lines of the library are left out."""

    def __init__(self, log: Any) -> None:
        super().__init__(logging.WARNING)
        self._log = log
        self._is_told = False

    def emit(self, record: logging.LogRecord) -> None:
        if not self._is_told and str(record.msg).startswith("Queue full"):
            self._is_told = True
            meaning = "more spans ended than the collector took in time; requests are not affected"
            self._log.warning("traces_incomplete", most_waiting=MAX_WAITING_SPANS, meaning=meaning)
