"""Wiring and lifecycle: a configuration becomes a proxy that listens."""

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any

from aiohttp import web

from proxy.compaction.pool import CACHES_BYTES, Compactors
from proxy.config.schema import Config
from proxy.config.values import site_url, split_address
from proxy.exchange.report import Recorder
from proxy.exchange.services import Lifecycle, Services
from proxy.http.aiohttp_fixes import OwnRequest, keep_header_bytes, reset_transport
from proxy.http.client import UpstreamClient
from proxy.http.request_body import Uploads
from proxy.memory import Memory, bound_caches, bound_requests
from proxy.server.connections import LINGERING_SECONDS, Server
from proxy.server.router import Current, handle, handle_pages
from proxy.server.workers.worker import Worker
from proxy.state.models.catalogue import load_catalogue
from proxy.state.models.service import Models
from proxy.state.stores import SummaryStore, find_key_file, open_store
from proxy.state.summaries.calls import SummaryCalls
from proxy.state.summaries.sealing import KEY_BYTES, KeyFileError, load_key
from proxy.state.summaries.service import Summaries
from proxy.state.tenancy import Tenancy
from proxy.telemetry.metrics import Metrics
from proxy.wire.codec import Codec
from proxy.wire.dialects import CODECS, by_path

KEEP_ALIVE_SECONDS = 75.0
"""Without a request, or until the whole head of one has come."""
CANCEL_SECONDS = 0.2
"""What requests still in flight after the drain have to notice that they were cancelled."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy that listens; `url` is where, without a slash at the end, and `metrics_url` where its metrics are."""

    url: str
    metrics_url: str
    current: Current

    @property
    def services(self) -> Services:
        """What a request that comes now is served with."""
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
    """A proxy that takes requests until the block is left; then those in flight may finish.

    `lifecycle` is one of the caller's, that shows from outside how far it is. `codecs` are the dialects it speaks.
    `worker` is which process of several this one is; None if it is alone.
    Raises OSError where it cannot listen, ConfigError where its store cannot be.
    """
    keep_header_bytes()
    caches_bytes = bound_caches(config.limits.max_memory_bytes, CACHES_BYTES)
    compactors = compactors or Compactors(log, caches_bytes=caches_bytes)
    catalogue: asyncio.Future[None] | None = None
    try:
        async with _open_services(config, log, compactors, lifecycle or Lifecycle(), worker) as services:
            current = Current(replace(services, codecs=by_path(codecs)))
            async with _serve_pages(current, worker) as pages_url, _serve_requests(current, worker) as url:
                base_urls = tuple(upstream.base_url for upstream in config.discovered_upstreams())
                # Slow, and not needed at the start.
                catalogue = asyncio.get_running_loop().run_in_executor(None, load_catalogue, base_urls)
                for upstream in config.discovered_upstreams():
                    services.models.seek_windows(upstream)
                yield Proxy(url, (pages_url or url) + config.metrics_path, current)
    finally:
        if catalogue is not None:
            await catalogue


@asynccontextmanager
async def _open_services(
    config: Config, log: Any, compactors: Compactors, lifecycle: Lifecycle, worker: Worker | None
) -> AsyncIterator[Services]:
    """What requests are served with, closed in the end. Raises ConfigError for a store that cannot be."""
    metrics = Metrics(worker.metrics if worker is not None else None)
    spare_key = secrets.token_bytes(KEY_BYTES) if worker is None else worker.spare_key
    store, tenancy = _open_store(config, metrics, log, spare_key)
    client = UpstreamClient()
    summaries = Summaries(store, client, SummaryCalls(metrics, log))
    models = Models(store, client, metrics, log)
    recorder = Recorder(metrics, log)
    limits = config.limits
    uploads = Uploads(inf if limits.max_held_bytes is None else limits.max_held_bytes, limits.client_silence_seconds)
    memory = Memory(bound_requests(limits.max_memory_bytes, bound_caches(limits.max_memory_bytes, CACHES_BYTES)))
    try:
        services = Services(
            config, client, summaries, recorder, tenancy, compactors, models, uploads, memory, lifecycle=lifecycle
        )
        yield services
    finally:
        services.workers.close()
        await summaries.close()
        await models.close()
        await store.close()
        await client.close()


@asynccontextmanager
async def _serve_requests(current: Current, worker: Worker | None) -> AsyncIterator[str]:
    """While the block runs, take requests at `listen`; then those in flight may finish. Its address. Raises OSError."""
    lifecycle = current.services.lifecycle
    server = Server(
        current.serve_by(handle),
        handler_cancellation=True,
        request_factory=OwnRequest.make,
        access_log=None,
        keepalive_timeout=KEEP_ALIVE_SECONDS,
        lingering_time=LINGERING_SECONDS,
    )
    lifecycle.reset_clients = partial(_reset_clients, server)
    sockets = worker.sockets if worker else ()
    async with listen_at(server, current.services.config.listen, sockets) as (runner, url):
        lifecycle.ready = True
        yield url
        lifecycle.ready = False
        delay_seconds = current.services.config.limits.shutdown_delay_seconds
        if delay_seconds:
            await asyncio.sleep(delay_seconds)  # for load balancers to notice
        for site in runner.sites:
            await site.stop()
        server.pre_shutdown()  # connections without a request
        try:
            async with asyncio.timeout(current.services.config.limits.drain_seconds):
                await lifecycle.idle.wait()
        except TimeoutError:
            lifecycle.reset_clients()


@asynccontextmanager
async def listen_at(
    server: web.Server, address: str, sockets: Sequence[socket.socket] = ()
) -> AsyncIterator[tuple[web.ServerRunner, str]]:
    """While the block runs, have a server listen at HOST:PORT; its runner and its address. Raises OSError.

    The sockets, if there are any, are bound to it already.
    """
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
    """While the block runs, our own pages at `metrics_listen`; its address, None where there is none.

    It is the first to come and the last to go, so that a drain can be watched. Raises OSError.
    """
    address = current.services.config.metrics_listen
    if address is None:
        yield None
        return
    server = Server(
        current.serve_by(handle_pages),
        request_factory=OwnRequest.make,
        access_log=None,
        keepalive_timeout=KEEP_ALIVE_SECONDS,
        lingering_time=LINGERING_SECONDS,
    )
    async with listen_at(server, address, worker.page_sockets if worker else ()) as (_, url):
        yield url


def _make_tenancy(config: Config, key: bytes) -> Tenancy:
    return Tenancy(config.tenant, key, config.client_keys or ())


def _open_store(config: Config, metrics: Metrics, log: Any, spare_key: bytes) -> tuple[SummaryStore, Tenancy]:
    """The summaries' store, and the key for clients that show no credential, which lies beside it.

    `spare_key` stands for one that does not lie there. Raises ConfigError for a store that cannot be.
    """
    store = open_store(config, lambda name: metrics.store_errors.labels(name).inc(), log)
    key_file = find_key_file(config)
    if key_file is None:
        return store, _make_tenancy(config, spare_key)
    try:
        return store, _make_tenancy(config, load_key(key_file))
    except KeyFileError as error:
        # Nothing is lost but what clients without a credential find again after a restart.
        log.warning("key_missing", reason=str(error))
        return store, _make_tenancy(config, spare_key)
