"""An OpenTelemetry collector that keeps the spans it gets by OTLP over HTTP."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from trimtab.proxy.telemetry import otlp

WAIT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Received:
    """One span. Ids are in hexadecimal digits, as in `traceparent`; times in nanoseconds since 1970."""

    name: str
    trace: str
    id: str
    parent: str
    kind: int
    is_error: bool
    start: int
    end: int
    attributes: dict[str, Any]
    events: dict[str, int]
    resource: dict[str, Any]

    @property
    def is_summary(self) -> bool:
        """Whether it is of a call for a summary."""
        return "trimtab.summary.form" in self.attributes


@dataclass
class Collector:
    """A collector. `bodies`: what it got, byte for byte. `status`: what it answers."""

    url: str = ""
    spans: list[Received] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    status: int = 200
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def wait_until(self, is_true: Callable[[], bool]) -> None:
        """Wait until what it got makes this true."""
        async with self.changed, asyncio.timeout(WAIT_SECONDS):
            await self.changed.wait_for(is_true)

    async def wait_for(self, count: int) -> list[Received]:
        """Wait for this many spans; return them in the order of their beginnings."""
        await self.wait_until(lambda: len(self.spans) >= count)
        return sorted(self.spans, key=lambda span: span.start)


def read_spans(body: bytes) -> list[Received]:
    """The spans in a request."""
    request = ExportTraceServiceRequest.FromString(body)
    return [
        _read_span(span, _read_attributes(group.resource.attributes))
        for group in request.resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]


def _read_span(span: Any, resource: dict[str, Any]) -> Received:
    return Received(
        name=span.name,
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        kind=span.kind,
        is_error=span.status.code == span.status.STATUS_CODE_ERROR,
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        attributes=_read_attributes(span.attributes),
        events={event.name: event.time_unix_nano for event in span.events},
        resource=resource,
    )


def _read_attributes(attributes: Any) -> dict[str, Any]:
    return {attribute.key: _read_value(attribute.value) for attribute in attributes}


def _read_value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    found = getattr(value, kind)
    return [_read_value(one) for one in found.values] if kind == "array_value" else found


@asynccontextmanager
async def run_collector() -> AsyncIterator[Collector]:
    """Run a collector while the block runs."""
    collector = Collector()

    async def take(request: web.BaseRequest) -> web.Response:
        body = await request.read()
        async with collector.changed:
            collector.bodies.append(body)
            collector.paths.append(request.path)
            collector.headers.append(dict(request.headers))
            if collector.status == 200:
                collector.spans += read_spans(body)
            collector.changed.notify_all()
        return web.Response(status=collector.status, content_type="application/x-protobuf")

    runner = web.ServerRunner(web.Server(take))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    collector.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield collector
    finally:
        await runner.cleanup()


@contextmanager
def sending_soon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Spans are sent soon. Afterwards the library's loggers are as before, and its threads have ended.

    A thread that goes on trying draws random numbers, at which hypothesis fails whatever test then runs.
    """
    before = set(threading.enumerate())
    monkeypatch.setattr(otlp, "DELAY_MILLISECONDS", 10)
    monkeypatch.setattr(otlp, "EXPORT_SECONDS", 1)
    library = logging.getLogger("opentelemetry")
    monkeypatch.setattr(library, "handlers", library.handlers)
    monkeypatch.setattr(library, "propagate", library.propagate)
    yield
    for thread in set(threading.enumerate()) - before:
        if thread.name.startswith(("OtelBatch", "trimtab-last-spans")):
            thread.join(WAIT_SECONDS)
            assert not thread.is_alive(), f"{thread.name} goes on after the test"
