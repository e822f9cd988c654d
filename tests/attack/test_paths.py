"""The operator's key is sent to the paths of the API, and to no other path of that server."""

import pytest
from support.client import ask_raw
from yarl import URL

INSIDE = [
    b"/v1/models", b"/v1", b"/v1/", b"/v1?x=/../y", b"/v1/models/Qwen%2FQwen3-8B", b"/v1/a/../models", b"/v1/a%20b;c=d",
    b"/v1//models", b"/v1/files/..a/b..", b"/v1/%41/./x?y=%2e%2e", b"/v1/%E2%82%AC",
]  # fmt: skip
OUTSIDE = [
    b"/admin/secret", b"/", b"*", b"/v1/..", b"/v1/../admin", b"/v1/../../admin/secret", b"/v1/a/../../admin",
    b"/v1/%2e%2e/admin", b"/v1/.%2e/admin", b"/v1/%2E./admin", b"/v1/%252e%252e/admin", b"/v1/%25252e%25252e/admin",
    b"/v1/..%2fadmin", b"/v1/..%2f..%2fadmin", b"/v1/%2e%2e%2fadmin", b"/v1/..%252fadmin", b"/v1/..\\admin",
    b"/v1/..%5cadmin", b"/v1/a\\..\\..\\admin", b"/v1/..;/admin", b"/v1/..;a=b/admin", b"/v1/..%3b/admin",
    b"/v1//../admin", b"/v1/./../admin", b"/v1/a//../../admin", b"/v1/a%2fb/../../admin", b"/v1/.%09./admin",
    b"/v1/..%00/admin", b"/v1/..%20/admin", b"/v1/%c0%ae%c0%ae/admin", b"/v1/%ef%bc%8e%ef%bc%8e/admin",
    b"/v1/%u002e%u002e/admin", b"/v1/..%c0%afadmin", b"/v1/%e2%80%a5/admin", b"/v1x", b"/V1/../admin", b"//v1/models",
    b"/admin?x=/v1/", b"/api/v1/models", b"/v1/..#/x", b"/v1/x#/../../../admin", b"http://h/v1/../admin",
    b"http://h/admin", b"http://h", b"/./v1/models", b"/%76%31/models", b"/v1/..?x",
    b"/v1/..%3fx/admin", b"/v1/..%23x/admin",
]  # fmt: skip
METHODS = (b"GET", b"DELETE", b"OPTIONS")


def _write(target: bytes, *lines: bytes, method: bytes = b"GET") -> bytes:
    head = (method + b" " + target + b" HTTP/1.1", b"Host: localhost", b"Authorization: Bearer door", *lines)
    return b"\r\n".join((*head, b"", b""))


@pytest.mark.parametrize("method", METHODS)
async def test_a_path_beyond_the_api_is_refused(method, raw, start_proxy) -> None:
    """The answer is 404 and names the setting that allows the path. Nothing is sent to the server."""
    settings = (f"upstream.base_url={raw.url}", "upstream.api_key=sk-operator", "client_keys=[door]")
    proxy = await start_proxy(*settings)
    for target in OUTSIDE:
        if target == b"*" and method != b"OPTIONS":
            continue
        answer = await ask_raw(proxy.url, _write(target, b"Connection: close", method=method))
        assert answer.startswith((b"HTTP/1.1 404", b"HTTP/1.0 400")), (target, answer)
        assert b"upstream.allowed_paths" in answer or answer.startswith(b"HTTP/1.0 400"), target
    assert all(request.asks_for_windows for request in raw.requests)


async def test_a_websocket_beyond_the_api_is_refused(raw, start_proxy) -> None:
    """It is treated like any other request."""
    proxy = await start_proxy(f"upstream.base_url={raw.url}", "upstream.api_key=sk-operator")
    upgrade = (
        b"Connection: Upgrade, close",
        b"Upgrade: websocket",
        b"Sec-WebSocket-Key: eA==",
        b"Sec-WebSocket-Version: 13",
    )
    for target in (b"/socket", b"/v1/../socket", b"/v1/%2e%2e/socket"):
        answer = await ask_raw(proxy.url, _write(target, *upgrade))
        assert answer.startswith(b"HTTP/1.1 404"), target
    assert all(request.asks_for_windows for request in raw.requests)


async def test_a_path_of_the_api_goes_out_unchanged(raw, start_proxy) -> None:
    """The path is forwarded byte for byte: trimtab checks where it leads, and never rewrites it."""
    proxy = await start_proxy(f"upstream.base_url={raw.url}", "upstream.api_key=sk-operator")
    for target in INSIDE:
        answer = await ask_raw(proxy.url, _write(target, b"Connection: close"))
        assert b" 200 " in answer, target
        assert (raw.requests[-1].target, b"Authorization: Bearer sk-operator" in raw.requests[-1].lines) == (
            target,
            True,
        )


async def test_paths_that_are_listed_pass(raw, start_proxy) -> None:
    """An entry allows one path or everything below it, but no path that leads elsewhere."""
    listed = 'upstream.allowed_paths=["/health", "/api/*"]'
    proxy = await start_proxy(f"upstream.base_url={raw.url}", "upstream.api_key=sk-operator", listed)
    for target in (b"/health", b"/health?x", b"/api", b"/api/tags", b"/api/a/../tags"):
        assert b" 200 " in await ask_raw(proxy.url, _write(target, b"Connection: close")), target
    for target in (
        b"/health/x",
        b"/health/",
        b"/healthy",
        b"/apis",
        b"/api/../admin",
        b"/api/%2e%2e/admin",
        b"/%61pi/x",
    ):
        assert b" 404 " in await ask_raw(proxy.url, _write(target, b"Connection: close")), target


async def test_without_the_operators_key_any_path_goes(raw, start_proxy) -> None:
    """The client then sends its own key, and may use any path."""
    proxy = await start_proxy(f"upstream.base_url={raw.url}")
    for target in (b"/admin", b"/v1/../admin", b"/v1/%2e%2e/admin"):
        assert b" 200 " in await ask_raw(proxy.url, _write(target, b"Connection: close")), target
        assert raw.requests[-1].target == target


REWRITING = ["X-Original-URL", "x_rewrite_url", "X-Envoy-Original-Path", "X-HTTP-Method-Override"]


@pytest.mark.parametrize("name", REWRITING)
async def test_no_header_leads_the_operators_key_to_another_path(name, client, upstream, start_proxy) -> None:
    """With a client's own key, such a header is forwarded."""
    keyed, open_to_all = await start_proxy("upstream.api_key=sk-operator"), await start_proxy()
    for proxy, passed in ((keyed, []), (open_to_all, ["/admin"])):
        async with client.get(proxy.url + "/v1/models", headers={name: "/admin"}) as answer:
            await answer.read()
        assert upstream.requests[-1].header(name) == passed


async def test_no_method_has_the_upstream_tell_the_operators_key(client, upstream, start_proxy) -> None:
    """TRACE returns the received request (RFC 9110 section 9.3.8)."""
    proxy = await start_proxy("upstream.api_key=sk-operator")
    async with client.request("TRACE", proxy.url + "/v1/models") as answer:
        assert (answer.status, upstream.requests) == (405, [])


@pytest.mark.parametrize("path", ["/v1/..%00x", "/v1/a/..%2500/..%00/..", "/v1/%00"])
async def test_no_path_ends_at_a_zero(path, client, upstream, start_proxy) -> None:
    """Some servers end a path at a zero byte."""
    proxy = await start_proxy("upstream.api_key=sk-operator")
    async with client.get(URL(proxy.url + path, encoded=True)) as answer:
        assert (answer.status, upstream.requests) == (404, [])
