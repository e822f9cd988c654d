"""Our own pages: each path and what answers it.

Law: whatever is under /trimtab is ours; none of it ever reaches an upstream. Health and readiness are for everybody,
the rest for whom the gate lets in.
"""

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from proxy.config.schema import Config
from proxy.exchange.services import Services
from proxy.http.errors import NoSuchPageError, ProxyError
from proxy.http.headers import Headers
from proxy.server.access import admit_admin
from proxy.server.admin.models import write_models
from proxy.wire.codec import Codec
from proxy.wire.dialects import DEFAULT

ROOT = "/trimtab"

Page = Callable[[Services], Awaitable[web.Response]]


def is_own(config: Config, path: str) -> bool:
    """Whether a path is ours to answer."""
    return path in {config.metrics_path, ROOT} or path.startswith(f"{ROOT}/")


async def answer_page(services: Services, path: str, headers: Headers, *, of_pages: bool) -> web.Response:
    """The page at a path, or why there is none; `of_pages` is asked at `metrics_listen`, which has an address for us.

    Who asks for more than health and readiness must be let in. At an address of their own the pages are for whoever
    reaches it, unless there is an `admin_token`.
    """
    config = services.config
    try:
        if path not in OPEN_PAGES and not (of_pages and config.admin_token is None):
            admit_admin(config, headers)
        return await _find_page(config, path, of_pages=of_pages)(services)
    except ProxyError as error:
        return answer_error(error)


def _find_page(config: Config, path: str, *, of_pages: bool) -> Page:
    """What answers a path. Raises NoSuchPageError."""
    if path == config.metrics_path and (of_pages or config.metrics_listen is None):
        return show_metrics
    if path in PAGES:
        return PAGES[path]
    message = f"trimtab has no such page here; known: {', '.join(PAGES)}; {config.metrics_path} is at "
    raise NoSuchPageError(message + ("metrics_listen" if config.metrics_listen else "the same address"))


def answer_error(error: ProxyError, codec: Codec = DEFAULT) -> web.Response:
    """An error that the proxy itself makes."""
    answer = web.Response(
        body=codec.write_error(error.text(), as_event=False),
        status=error.status,
        content_type="application/json",
        headers=dict(error.headers),
    )
    if error.closes:
        answer.force_close()
    return answer


async def show_health(_services: Services) -> web.Response:
    """Whether the process lives: it answers."""
    return web.Response(body=b'{"status":"ok"}', content_type="application/json")


async def show_ready(services: Services) -> web.Response:
    """Whether it takes requests."""
    ready = services.lifecycle.ready
    body = b'{"status":"ready"}' if ready else b'{"status":"draining"}'
    return web.Response(body=body, status=200 if ready else 503, content_type="application/json")


async def show_metrics(services: Services) -> web.Response:
    """What Prometheus reads."""
    metrics = services.recorder.metrics
    # Those of several processes are read from files.
    body = await asyncio.to_thread(metrics.render) if metrics.is_shared else metrics.render()
    return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})


async def show_models(services: Services) -> web.Response:
    """What is known of models."""
    return web.Response(body=write_models(services), content_type="application/json")


PAGES: dict[str, Page] = {
    "/trimtab/health": show_health,
    "/trimtab/ready": show_ready,
    "/trimtab/api/models": show_models,
}
"""By path; the metrics' is for the configuration to say."""
OPEN_PAGES = frozenset({"/trimtab/health", "/trimtab/ready"})
"""For load balancers, which have no key."""
