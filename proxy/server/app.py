"""Wiring and lifecycle: turn a configuration into a running proxy."""

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from math import inf
from typing import Any

import msgspec
from aiohttp import web
from msgspec.structs import replace

from trimtab.proxy.account.books import Books
from trimtab.proxy.account.books_stores import open_statistics
from trimtab.proxy.account.budgets import Budgets
from trimtab.proxy.account.recorder import Recorder
from trimtab.proxy.account.recordings.writing import Recordings, end_call, measure_recordings
from trimtab.proxy.catalogue.prices import load_catalogue
from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.config.schema import Config
from trimtab.proxy.config.values import site_url, split_address
from trimtab.proxy.exchange.services import Lifecycle, Services
from trimtab.proxy.http.aiohttp_fixes.server import OwnRequest, keep_header_bytes, reset_transport
from trimtab.proxy.http.client import UpstreamClient
from trimtab.proxy.http.request_body import Uploads
from trimtab.proxy.http.tenancy import Tenancy
from trimtab.proxy.memory import Memory
from trimtab.proxy.models.service import Models
from trimtab.proxy.server.admin.api import write_notes
from trimtab.proxy.server.admin.opening import open_history
from trimtab.proxy.server.connections import LINGERING_SECONDS, Server
from trimtab.proxy.server.reload import measure_caches, measure_requests
from trimtab.proxy.server.router import Current, Handler, handle, handle_pages
from trimtab.proxy.server.workers.worker import Worker
from trimtab.proxy.store.opening import find_key_file, open_store
from trimtab.proxy.store.store import SummaryStore
from trimtab.proxy.summaries.calls import SummaryCalls
from trimtab.proxy.summaries.cold_cuts import ColdCuts
from trimtab.proxy.summaries.kept_texts import FoundTexts, Originals
from trimtab.proxy.summaries.sealing import KEY_BYTES, KeyFileError, load_key
from trimtab.proxy.summaries.service import Summaries
from trimtab.proxy.tasks import Tasks
from trimtab.proxy.telemetry.metrics import Metrics
from trimtab.proxy.telemetry.spans import open_spans
from trimtab.proxy.wire.codec import Codec
from trimtab.proxy.wire.dialects import CODECS, by_ending
from trimtab.rules.text.late import compile_all

KEEP_ALIVE_SECONDS = 75.0  # For an idle connection, or a head. Source: nginx's and aiohttp's default.
FIRST_SECONDS, ANSWER_SECONDS = 0.1, 1.0
"""A request that comes in the first tenth of a second is answered before the rest is loaded, unless it takes a second.
Chosen: who waits for the start asks again and again."""
CANCEL_SECONDS = 0.2  # For requests cancelled after the drain. Chosen: they only close connections.


class Proxy(msgspec.Struct, frozen=True):
    """A running proxy. `url`: its address, without a trailing slash. `metrics_url`: the address of its metrics."""

    url: str
    metrics_url: str
    current: Current

    @property
    def services(self) -> Services:
        return self.current.services


@asynccontextmanager
async def run_proxy(
    config: Config,
    log: Any,
    compactors: Compactors | None = None,
    lifecycle: Lifecycle | None = None,
    codecs: Iterable[Codec] = CODECS,
    worker: Worker | None = None,
) -> AsyncIterator[Proxy]:
    """Run a proxy that takes requests until the block is left; then requests in flight may finish.

    Raises OSError if it cannot listen, ConfigError if it cannot open its store.
    """
    keep_header_bytes()
    compactors = compactors or Compactors(log, caches_bytes=measure_caches(config))
    async with _open_services(config, log, compactors, lifecycle or Lifecycle(), worker) as services:
        current = Current(replace(services, codecs=by_ending(codecs)))
        if worker is not None:
            services.past.notes = lambda: write_notes(current.services)
        async with _serve_pages(current, worker) as pages_url, _serve_requests(current, worker) as url:
            _ = services.lifecycle.background.start(_load_in_advance(compactors, config, services.lifecycle))
            for upstream in config.discovered_upstreams():
                services.models.seek_windows(upstream)
            yield Proxy(url, (pages_url or url) + config.metrics_path, current)


async def _load_in_advance(compactors: Compactors, config: Config, lifecycle: Lifecycle) -> None:
    """Load what the first small request needs; when it is answered, the rest, which holds the interpreter for 0.2 s."""
    await asyncio.to_thread(compactors.read)
    await asyncio.wait({lifecycle.background.start(asyncio.to_thread(load_catalogue, config.list_base_urls()))})
    await asyncio.sleep(FIRST_SECONDS)
    with suppress(TimeoutError):
        await asyncio.wait_for(lifecycle.idle.wait(), ANSWER_SECONDS)
    await asyncio.to_thread(compactors.load)
    await asyncio.to_thread(compile_all)


@asynccontextmanager
async def _open_services(
    config: Config, log: Any, compactors: Compactors, lifecycle: Lifecycle, worker: Worker | None
) -> AsyncIterator[Services]:
    """Open the services of requests; close them at the end. Raises ConfigError if the store cannot be opened."""
    metrics = Metrics() if worker is None else Metrics(worker.metrics, worker.number)
    spare_key = secrets.token_bytes(KEY_BYTES) if worker is None else worker.spare_key
    store, tenancy = _open_store(config, metrics, log, spare_key)
    books = Books(metrics, open_statistics(config, log), on_error=partial(_count_fault, metrics), log=log)
    spans = open_spans(config, log)
    client = UpstreamClient()
    most_bytes = measure_recordings(config)
    recordings = None if config.record is None else Recordings(config.record, metrics, log, most_bytes=most_bytes)
    summaries = Summaries(store, client, SummaryCalls(metrics, log, spans, partial(end_call, books, recordings)))
    models = Models(store, client, metrics, log)
    recorder = Recorder(metrics, log, books, asyncio.get_running_loop().call_later)
    held_bytes = inf if config.limits.max_held_bytes is None else config.limits.max_held_bytes
    uploads, memory = Uploads(held_bytes, config.limits.client_silence_seconds), Memory(measure_requests(config))
    kept = (ColdCuts(store), Originals(store), FoundTexts(store))
    shared = (summaries, recorder, tenancy, compactors, models, uploads, memory, *kept)
    on_error, on_fault = partial(_record_fault, recorder), partial(_count_fault, metrics)
    past = books.history = open_history(config, worker, log=log, on_error=on_error, on_fault=on_fault)
    recorder.observers.append(past.observe)
    try:
        lifecycle.background = Tasks(partial(_record_fault, recorder))
        lifecycle.show, lifecycle.drain = metrics.show_in_flight, recorder.drain
        services = Services(config, client, *shared, lifecycle=lifecycle, past=past, spans=spans)
        budgets = Budgets(books, log, config.clients.budgets)
        await budgets.refresh()
        books.start()
        yield replace(services, recordings=recordings, budgets=budgets)
    finally:
        services.workers.close()
        recorder.drain()
        for one in (lifecycle.background, summaries, recordings, models, past, books, store, client, spans):
            if one is not None:
                await one.close()


@asynccontextmanager
async def _serve_requests(current: Current, worker: Worker | None) -> AsyncIterator[str]:
    """Take requests at `listen` while the block runs, then drain. Yields the URL. Raises OSError."""
    lifecycle = current.services.lifecycle
    server = _make_server(current, handle)
    lifecycle.reset_clients = partial(_reset_clients, server)
    sockets = worker.sockets if worker else ()
    async with listen_at(server, current.services.config.listen, sockets) as (runner, url):
        lifecycle.ready = True
        yield url
        lifecycle.ready = False
        current.services.past.streams.close()
        delay_seconds = current.services.config.limits.shutdown_delay_seconds
        if delay_seconds:
            await asyncio.sleep(delay_seconds)  # time for load balancers to notice
        for site in runner.sites:
            await site.stop()
        server.pre_shutdown()  # closes connections without a request
        try:
            async with asyncio.timeout(current.services.config.limits.drain_seconds):
                await lifecycle.idle.wait()
        except TimeoutError:
            lifecycle.reset_clients()


def _make_server(current: Current, handler: Handler) -> Server:
    return Server(
        current.serve_by(handler),
        handler_cancellation=True,  # a request, or a stream of a page, ends when its client leaves
        request_factory=OwnRequest.make,
        access_log=None,
        keepalive_timeout=KEEP_ALIVE_SECONDS,
        lingering_time=LINGERING_SECONDS,
    )


@asynccontextmanager
async def listen_at(
    server: web.Server, address: str, sockets: Sequence[socket.socket] = ()
) -> AsyncIterator[tuple[web.ServerRunner, str]]:
    """Have a server listen at HOST:PORT in the block; yields runner and URL. sockets: bound already. Raises OSError."""
    runner = web.ServerRunner(server, shutdown_timeout=CANCEL_SECONDS)
    try:
        await runner.setup()
        host, port = split_address(address)
        for one in sockets:
            await web.SockSite(runner, one).start()
        if not sockets:
            await web.TCPSite(runner, host, port).start()
        yield runner, site_url(host, runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _reset_clients(server: web.Server) -> None:
    for connection in server.connections:
        if connection.transport is not None:
            reset_transport(connection.transport)


@asynccontextmanager
async def _serve_pages(current: Current, worker: Worker | None) -> AsyncIterator[str | None]:
    """Serve our own pages at `metrics_listen`, if set, also while requests drain. Yields the URL. Raises OSError."""
    address = current.services.config.metrics_listen
    if address is None:
        yield None
        return
    sockets = worker.page_sockets if worker else ()
    async with listen_at(_make_server(current, handle_pages), address, sockets) as (_, url):
        yield url


def _record_fault(recorder: Recorder, error: BaseException) -> None:
    if isinstance(error, Exception):
        recorder.record_fault("", "tell", error)


def _count_fault(metrics: Metrics, store: str) -> None:
    metrics.store_errors[store] += 1


def _open_store(config: Config, metrics: Metrics, log: Any, spare_key: bytes) -> tuple[SummaryStore, Tenancy]:
    """Open the summaries' store, and load the key for clients without a credential from the file beside it.

    `spare_key` is used if there is no such file. Raises ConfigError.
    """
    store = open_store(config, partial(_count_fault, metrics), log)
    key, key_file = spare_key, find_key_file(config)
    try:
        key = spare_key if key_file is None else load_key(key_file)
    except KeyFileError as error:
        # The only loss: after a restart, clients without a credential do not find their summaries again.
        log.warning("key_missing", reason=str(error))
    return store, Tenancy(config.tenant, key, config.clients.keys, config.clients.names)
