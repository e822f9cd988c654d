"""Opens and changes the dashboard's data with the configuration, and serves this worker's part to the others.

Law: what is switched off keeps nothing.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import orjson
from aiohttp import web

from proxy.account.history.kept import Bounds, History
from proxy.account.history.place import Place
from proxy.config.schema import Config
from proxy.exchange.services import Services
from proxy.memory import bound_history, bound_text
from proxy.server.admin.dashboard.parts import answer_part
from proxy.server.admin.dashboard.shapes import write_pieces
from proxy.server.admin.dashboard.stream import stream_to_worker

EVENTS_SHARE = 2
"""Half of the history's memory is for events. Chosen: sessions and minutes take less than the other half."""
Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
CANCEL_SECONDS = 0.2
"""Time for streams to end. Chosen: they end at once."""


def measure_dashboard(config: Config) -> int:
    """The memory that the dashboard's data may take, in bytes."""
    most_bytes, dashboard = config.limits.max_memory_bytes, config.dashboard
    if not dashboard.enabled:
        return 0
    return bound_history(most_bytes) + (bound_text(most_bytes) if dashboard.keep_text else 0)


def open_history(config: Config, on_error: Callable[[BaseException], None]) -> History:
    """The history of this process. It is empty, and stays so while the dashboard is off."""
    most_bytes = config.limits.max_memory_bytes
    bounds = Bounds(bound_history(most_bytes) // EVENTS_SHARE, bound_text(most_bytes))
    return History(keeps_text=_keeps_text(config), bounds=bounds, on_error=on_error)


def adopt_dashboard(past: History, config: Config) -> None:
    """Use the dashboard's keys of another configuration. What is not to be kept any more is erased."""
    past.keep_text(keeps_text=_keeps_text(config))
    if not config.dashboard.enabled:
        past.clear()


def _keeps_text(config: Config) -> bool:
    return config.dashboard.enabled and config.dashboard.keep_text


@asynccontextmanager
async def serve_workers(answer: Answer, place: Place | None) -> AsyncIterator[None]:
    """Answer the other workers while the block runs. Without a usable socket, they miss this worker's part."""
    path = None if place is None else place.socket_of(place.number)
    if path is None:
        yield
        return
    runner = web.ServerRunner(
        web.Server(answer, access_log=None, handler_cancellation=True), shutdown_timeout=CANCEL_SECONDS
    )
    try:
        await runner.setup()
        with suppress(OSError):
            await web.UnixSite(runner, path).start()
        yield
    finally:
        await runner.cleanup()


async def handle_worker(services: Services, request: web.BaseRequest) -> web.StreamResponse:
    """Answer another worker."""
    name = request.path.removeprefix("/")
    if services.history is None:
        return web.Response(body=b"null")
    if name == "events":
        return await stream_to_worker(services, request)
    part = await answer_part(services, name, orjson.loads(await request.read()))
    return web.Response(body=await asyncio.to_thread(write_pieces, part))
