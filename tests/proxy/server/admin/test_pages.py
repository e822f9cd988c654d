"""Our own pages."""

import orjson
import pytest

from proxy.server.admin.pages import PAGES


@pytest.mark.parametrize("path", ["/trimtab/nope", "/trimtab/page.css/x", "/trimtab/health/x", "/%74rimtab/api"])
async def test_what_is_no_page_is_not_found(path, client, upstream, start_proxy):
    """The error has OpenAI's form and names the existing pages. Nothing is sent to the upstream."""
    proxy = await start_proxy()
    async with client.get(proxy.url + path) as response:
        error = orjson.loads(await response.read())["error"]
        assert (response.status, response.content_type) == (404, "application/json")
    assert (error["type"], error["code"]) == ("trimtab_error", "not_found")
    assert all(page in error["message"] for page in (*PAGES, "/metrics"))
    assert upstream.requests == []


@pytest.mark.parametrize("path", ["/trimtabs", "/Trimtab/health", "/x/trimtab/health", "/metrics/x"])
async def test_what_only_looks_like_ours_passes(path, client, upstream, start_proxy):
    """A path next to ours belongs to the upstream."""
    proxy = await start_proxy()
    async with client.get(proxy.url + path) as response:
        assert response.status == 200
    assert [recorded.path for recorded in upstream.requests] == [path]
