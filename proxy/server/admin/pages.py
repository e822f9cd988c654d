"""Our own pages: each path and its answer.

Law: every path under /trimtab is ours; none of them ever reaches an upstream. Health and readiness are open to
everybody, the other pages to admitted requests only. Without the dashboard, its pages do not exist.
"""

import re
from collections.abc import Awaitable, Callable

from aiohttp import web

from trimtab.proxy.config.schema import Config
from trimtab.proxy.exchange.services import Services
from trimtab.proxy.http.errors import NoSuchPageError, PagesClosedError, ProxyError
from trimtab.proxy.http.headers import Headers
from trimtab.proxy.server.access import admit_reader
from trimtab.proxy.server.admin.api import OTHERS_CLOSED, answer_api, write_models
from trimtab.proxy.server.admin.sending import SAFE, UNSTORED, answer_file, find_file
from trimtab.proxy.wire.codec import Codec
from trimtab.proxy.wire.dialects import DEFAULT

ROOT = "/trimtab"
API = f"{ROOT}/api/"

PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
"""Source: the OpenMetrics specification 1.0.0, section "Protocol Negotiation"."""
_QUALITY = re.compile(r";\s*q\s*=\s*([01](?:\.\d{0,3})?)\s*(?:;|$)")

Page = Callable[[Services], Awaitable[web.Response]]


def is_own(config: Config, path: str) -> bool:
    return path in {config.metrics_path, ROOT} or path.startswith(f"{ROOT}/")


async def answer_page(
    services: Services, request: web.BaseRequest, headers: Headers, *, of_pages: bool
) -> web.StreamResponse:
    """Return the page that is asked for, or an error page.

    of_pages: the request came in at `metrics_listen`. There, every page is open unless `admin_token` is set. Elsewhere
        only health and readiness are open.
    """
    config, path, client = services.config, request.path, None
    try:
        if path not in OPEN_PAGES and not (of_pages and config.admin_token is None):
            client = admit_reader(config, headers)
        if client is not None and (path in CLOSED_PAGES or path == config.metrics_path):
            raise PagesClosedError(OTHERS_CLOSED)
        if path == config.metrics_path and (of_pages or config.metrics_listen is None):
            return await show_metrics(services, headers)
        if config.dashboard.enabled and path not in PAGES and path != config.metrics_path:
            answer = await _answer_dashboard(services, request, client)
            if answer is not None:
                return answer
        if path not in PAGES:
            place = "metrics_listen" if config.metrics_listen else "the same address"
            known = f"{', '.join(PAGES)}; {config.metrics_path} is at {place}"
            raise NoSuchPageError(f"trimtab has no such page here; known: {known}")
        return await PAGES[path](services)
    except ProxyError as error:
        return answer_page_error(error)


async def _answer_dashboard(
    services: Services, request: web.BaseRequest, client: str | None
) -> web.StreamResponse | None:
    """The answer of the dashboard; None if it has no such page. Raises ProxyError."""
    path = request.path
    if path == ROOT:
        return web.Response(status=308, headers={**SAFE, "Location": "trimtab/"})  # relative: a proxy may add a path
    name = path.removeprefix(f"{ROOT}/")
    if name.startswith("api/"):
        return await answer_api(services, request, name.removeprefix("api/"), client)
    file = find_file(name) if request.method in {"GET", "HEAD"} else None
    return None if file is None else answer_file(request, file)


def answer_error(error: ProxyError, codec: Codec = DEFAULT) -> web.Response:
    answer = web.Response(
        body=codec.write_error(error.text(), as_event=False),
        status=error.status,
        content_type="application/json",
        headers=dict(error.headers),
    )
    if error.closes:
        answer.force_close()
    return answer


def answer_page_error(error: ProxyError) -> web.Response:
    answer = answer_error(error)
    answer.headers.update(UNSTORED)
    return answer


async def show_health(_: Services) -> web.Response:
    return web.Response(body=b'{"status":"ok"}', content_type="application/json")


async def show_ready(services: Services) -> web.Response:
    status, word = (200, b"ready") if services.lifecycle.ready else (503, b"draining")
    return web.Response(body=b'{"status":"%b"}' % word, status=status, content_type="application/json")


async def show_metrics(services: Services, headers: Headers) -> web.Response:
    """Metrics for Prometheus: as OpenMetrics if the headers ask for that, else in its text format."""
    asks = asks_open_metrics(headers)
    body = await services.recorder.metrics.pages.read(as_open_metrics=asks)
    return web.Response(body=body, headers={"Content-Type": OPEN_METRICS if asks else PROMETHEUS_TEXT})


def asks_open_metrics(headers: Headers) -> bool:
    """Whether `Accept` names OpenMetrics, and does not prefer another form that it names."""
    accepted = ",".join(value for name, value in headers if name.lower() == "accept").lower().split(",")
    found = ((part.partition(";")[0].strip(), _QUALITY.search(part)) for part in reversed(accepted))
    # The weight is 1 if there is none that can be read. Source: RFC 9110 section 12.4.2.
    wishes = {name: 1.0 if quality is None else float(quality[1]) for name, quality in found}
    wished = wishes.pop("application/openmetrics-text", 0.0)
    return wished > 0 and wished >= max((wishes.get(name, 0.0) for name in ("text/plain", "text/*")), default=0.0)


async def show_models(services: Services) -> web.Response:
    return web.Response(body=write_models(services), content_type="application/json", headers=UNSTORED)


PAGES: dict[str, Page] = {
    "/trimtab/health": show_health,
    "/trimtab/ready": show_ready,
    "/trimtab/api/models": show_models,
}
"""Pages by path; the configuration names the path of the metrics page."""
OPEN_PAGES = frozenset({"/trimtab/health", "/trimtab/ready"})  # Open to load balancers, which have no key
CLOSED_PAGES = PAGES.keys() - OPEN_PAGES  # closed to a client's key
UNBOUNDED_PAGES = OPEN_PAGES | {f"{API}events"}
"""Pages that do not count as pages in flight: they are tiny, or have a bound of their own."""
