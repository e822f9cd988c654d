"""Our own pages."""

import orjson
import pytest
from prometheus_client import parser as prometheus_text
from prometheus_client.openmetrics import parser as open_metrics

from trimtab.proxy.server.admin.pages import PAGES, asks_open_metrics
from trimtab.proxy.server.admin.sending import SAFE


async def test_every_path_below_ours_is_ours_and_no_other(client, upstream, start_proxy):
    """The error has OpenAI's form and names the existing pages. A path next to ours belongs to the upstream."""
    proxy = await start_proxy()
    for path in ("/trimtab/nope", "/trimtab/api/nope", "/trimtab/page.css/x", "/trimtab/health/x", "/%74rimtab/api"):
        async with client.get(proxy.url + path) as response:
            error = orjson.loads(await response.read())["error"]
            assert (response.status, response.content_type) == (404, "application/json")
        assert (error["type"], error["code"]) == ("trimtab_error", "not_found")
        assert all(page in error["message"] for page in (*PAGES, "/metrics"))
    assert upstream.requests == []

    proxy = await start_proxy()
    paths = ["/trimtabs", "/Trimtab/health", "/x/trimtab/health", "/metrics/x"]
    for path in paths:
        async with client.get(proxy.url + path) as response:
            assert response.status == 200
    assert [recorded.path for recorded in upstream.requests] == paths


@pytest.mark.parametrize("headers", [{}, {"Sec-Fetch-Site": "cross-site"}, {"Authorization": "Bearer boss"}])
async def test_browsers_store_nothing_and_run_nothing(headers, client, start_proxy):
    """Errors have the same headers as the data, whatever is wrong."""
    proxy = await start_proxy("admin_token=boss")
    for path in ("nope", "api/nope", "api/models", "api/overview"):
        async with client.get(f"{proxy.url}/trimtab/{path}", headers=headers) as response:
            assert response.headers.items() >= (SAFE | {"Cache-Control": "no-store"}).items()


PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
"""What Prometheus 2.42 sends."""


@pytest.mark.parametrize(
    ("accept", "is_open"),
    [
        (None, False),
        ("*/*", False),
        ("text/plain", False),
        ("application/openmetrics-text", True),
        ("Application/OpenMetrics-Text; version=1.0.0; charset=utf-8", True),
        (PROMETHEUS, True),
        ("text/plain, application/openmetrics-text; q=0.2", False),
        ("application/openmetrics-text; q=0", False),
        ("application/openmetrics-text; q=nonsense", True),
        ("application/openmetrics-textual", False),
    ],
)
def test_metrics_are_open_metrics_if_that_is_asked_for(accept, is_open):
    assert asks_open_metrics([] if accept is None else [("Accept", accept)]) is is_open


async def test_metrics_have_the_form_that_is_asked_for(client, start_proxy):
    proxy = await start_proxy()
    for headers, form, parser in (
        ({}, "text/plain; version=0.0.4", prometheus_text),
        ({"Accept": PROMETHEUS}, "application/openmetrics-text; version=1.0.0", open_metrics),
    ):
        async with client.get(proxy.metrics_url, headers=headers) as response:
            body = await response.text()
            assert response.headers["Content-Type"] == f"{form}; charset=utf-8"
        assert "trimtab_requests" in {family.name for family in parser.text_string_to_metric_families(body)}
        assert body.endswith("# EOF\n") is (parser is open_metrics)
