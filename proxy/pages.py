"""Our own pages: each path and what answers it.

Law: whatever is under /trimtab is ours; none of it ever reaches an upstream.
"""

from collections.abc import Callable

from aiohttp import web

from proxy.errors import NoSuchPageError, ProxyError
from proxy.services import Services

Page = Callable[[Services], web.Response]


def answer_page(services: Services, path: str) -> web.Response | None:
    """The page at a path; None where the path is none of ours. Raises NoSuchPageError where ours has no page."""
    page = show_metrics if path == services.config.metrics_path else PAGES.get(path)
    if page is not None:
        return page(services)
    if path == "/trimtab" or path.startswith("/trimtab/"):
        message = f"trimtab has no such page; known: {', '.join(PAGES)} and {services.config.metrics_path}"
        raise NoSuchPageError(message)
    return None


def answer_error(error: ProxyError) -> web.Response:
    """An error that the proxy itself makes."""
    return web.Response(
        body=error.body(), status=error.status, content_type="application/json", headers=dict(error.headers)
    )


def show_health(_services: Services) -> web.Response:
    """Whether the process lives: it answers."""
    return web.Response(body=b'{"status":"ok"}', content_type="application/json")


def show_ready(services: Services) -> web.Response:
    """Whether it takes requests."""
    ready = services.lifecycle.ready
    body = b'{"status":"ready"}' if ready else b'{"status":"draining"}'
    return web.Response(body=body, status=200 if ready else 503, content_type="application/json")


def show_metrics(services: Services) -> web.Response:
    """What Prometheus reads."""
    body = services.recorder.metrics.render()
    return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})


PAGES: dict[str, Page] = {"/trimtab/health": show_health, "/trimtab/ready": show_ready}
"""By path; the metrics' is for the configuration to say."""
