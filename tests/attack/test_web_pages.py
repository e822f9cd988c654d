"""A web page in a browser on this machine can neither spend the user's money nor read trimtab's pages."""

import orjson
import pytest
from support.client import CHAT, ask_raw

BODY = orjson.dumps(CHAT)
OWN_HOSTS = [
    b"localhost", b"localhost:8790", b"LOCALHOST.", b"api.localhost:1", b"127.0.0.1", b"127.8.9.1:80", b"[::1]:8790",
    b"10.0.0.5:8790", b"[fe80::1]", b"host.docker.internal:8790", b"host.containers.internal", b"",
]  # fmt: skip
STRANGE_HOSTS = [
    b"evil.example", b"evil.example:8790", b"localhost.evil.example", b"127.0.0.1.evil.example", b"evil-localhost",
    b"127.0.0.1:8790.evil.example", b"localhost:80@evil.example", b"localhost@evil.example", b"evil.example:localhost",
    b"[::1].evil.example", b"evil.internal", b"x.host.docker.internal", b"localhost..", b"127.0.0.1.nip.io", b"evil",
    b"localhost/evil.example", b"localhost, evil.example", b"a" * 5000,
]  # fmt: skip
STRANGE_ORIGINS = [
    (b"Origin: https://evil.example",),
    (b"Origin: null",),
    (b"Origin: http://localhost:9999",),
    (b"Origin: http://localhost.evil.example",),
    (b"Origin: http://127.0.0.1:8790.evil.example",),
    (b"Origin: file://",),
    (b"Origin: chrome-extension://abcdefgh",),
    (b"Origin: ",),
    (b"Origin: vscode-file.evil.example",),
    (b"Origin: http://vscode-file://vscode-app",),
    (b"Origin: http://localhost", b"Origin: https://evil.example"),
    (b"Sec-Fetch-Site: cross-site",),
    (b"Sec-Fetch-Site: same-site",),
    (b"sec-fetch-site: CROSS-SITE", b"Sec-Fetch-Mode: no-cors"),
    (b"Sec-Fetch-Site: same-origin", b"Sec-Fetch-Site: cross-site"),
    (b"Origin: http://localhost", b"Sec-Fetch-Site: cross-site"),
    (b"Origin: https://evil.example", b"Sec-Fetch-Site: same-origin"),
]
OWN_ORIGINS = [
    (),
    (b"Origin: http://localhost",),
    (b"Origin: http://LocalHost", b"Sec-Fetch-Site: same-origin"),
    (b"Sec-Fetch-Site: none", b"Sec-Fetch-Mode: navigate"),
    (b"Sec-Fetch-Mode: cors",),  # sent by Node's fetch
    (b"Origin: vscode-file://vscode-app", b"Sec-Fetch-Site: cross-site"),
    (b"Origin: tauri://localhost",),
    (b"Origin: app://obsidian.md",),
]
REQUESTS = {
    "post": b"POST /v1/chat/completions HTTP/1.1\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n" % len(BODY),
    "passed": b"GET /v1/models HTTP/1.1\r\n",
    "preflight": b"OPTIONS /v1/chat/completions HTTP/1.1\r\nAccess-Control-Request-Method: POST\r\n",
    "websocket": b"GET /v1/realtime HTTP/1.1\r\nUpgrade: websocket\r\n",
    "metrics": b"GET /metrics HTTP/1.1\r\n",
    "page": b"GET /trimtab/api/models HTTP/1.1\r\n",
    "no such page": b"GET /trimtab/x HTTP/1.1\r\n",
}


def _write(name: str, *lines: bytes, host: bytes = b"localhost") -> bytes:
    connection = b"Upgrade" if name == "websocket" else b"close"
    head = b"\r\n".join((REQUESTS[name] + b"Host: " + host, b"Connection: " + connection, *lines))
    return head + b"\r\n\r\n" + (BODY if name == "post" else b"")


def _status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_name_that_was_made_to_lead_here_is_refused(name, raw, start_proxy) -> None:
    """DNS rebinding: the name of the page's site resolves to this machine, so the browser sees no other origin."""
    proxy = await start_proxy(f"upstream.base_url={raw.url}")
    for host in STRANGE_HOSTS:
        answer = await ask_raw(proxy.url, _write(name, b"Origin: http://" + host[:100], host=host))
        assert _status(answer) == 403, host
        answer = await ask_raw(proxy.url, _write(name, host=host))
        assert (_status(answer), b"allowed_hosts" in answer) == (403, True), host
    assert not any(request.target != b"/v1/models" or not request.asks_for_windows for request in raw.requests)


async def test_names_and_addresses_of_this_machine_pass(raw, start_proxy) -> None:
    """They pass with and without a port. So do names that containers use for it, and names listed by the operator."""
    proxy = await start_proxy(f"upstream.base_url={raw.url}", 'allowed_hosts=["box", "*.lan"]')
    for host in (*OWN_HOSTS, b"box:8790", b"BOX", b"my.lan"):
        for name in ("post", "metrics"):
            assert _status(await ask_raw(proxy.url, _write(name, host=host))) == 200, host
    for host in (b"boxes", b"lan", b"box.evil.example"):
        assert _status(await ask_raw(proxy.url, _write("metrics", host=host))) == 403, host


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("listen", ["127.0.0.1:0", "0.0.0.0:0"])
async def test_a_page_of_another_site_is_refused(name, listen, raw, start_proxy) -> None:
    """So is a page of another port, or without a site; for a listener on loopback and for one on all interfaces."""
    proxy = await start_proxy(f"upstream.base_url={raw.url}", f"listen={listen}")
    for lines in STRANGE_ORIGINS:
        answer = await ask_raw(proxy.url.replace("0.0.0.0", "127.0.0.1"), _write(name, *lines))
        assert (_status(answer), b"allowed_origins" in answer) == (403, True), lines
        assert b"access-control-allow" not in answer.lower()
    assert all(request.asks_for_windows for request in raw.requests)


async def test_programs_and_our_own_pages_pass(raw, start_proxy) -> None:
    """Such clients are `curl -d`, SDKs, pages inside an editor, and URLs typed into a browser."""
    proxy = await start_proxy(f"upstream.base_url={raw.url}")
    for lines in OWN_ORIGINS:
        for name in ("post", "passed", "metrics", "page"):
            assert _status(await ask_raw(proxy.url, _write(name, *lines))) == 200, lines


async def test_sites_that_are_listed_pass(raw, start_proxy) -> None:
    """A glob matches the whole origin. It overrides the browser's statement that the request is cross-site."""
    listed = 'allowed_origins=["https://chat.example", "http://localhost:*", "null"]'
    proxy = await start_proxy(f"upstream.base_url={raw.url}", listed)
    for origin in (b"https://chat.example", b"http://localhost:3000", b"null"):
        lines = (b"Origin: " + origin, b"Sec-Fetch-Site: cross-site")
        assert _status(await ask_raw(proxy.url, _write("post", *lines))) == 200, origin
    for origin in (b"http://chat.example", b"https://chat.example:444", b"https://chat.example.evil.example"):
        assert _status(await ask_raw(proxy.url, _write("post", b"Origin: " + origin))) == 403, origin


async def test_where_a_key_is_asked_for_it_decides(raw, start_proxy) -> None:
    """A page does not know the key. With it, any Host and Origin pass, as a web application sends them."""
    proxy = await start_proxy(f"upstream.base_url={raw.url}", "client_keys=[door]")
    strange = (b"Origin: https://chat.example", b"Sec-Fetch-Site: cross-site")
    assert _status(await ask_raw(proxy.url, _write("post", *strange, host=b"llm.example"))) == 401
    shown = (*strange, b"Authorization: Bearer door")
    assert _status(await ask_raw(proxy.url, _write("post", *shown, host=b"llm.example"))) == 200


async def test_pages_at_an_address_of_their_own_are_guarded_too(raw, start_proxy) -> None:
    """The listener of the pages decides, with or without client keys. A token for the pages is enough."""
    settings = (f"upstream.base_url={raw.url}", "metrics_listen=127.0.0.1:0", "client_keys=[door]")
    proxy = await start_proxy(*settings)
    for request in (_write("metrics", host=b"evil.example"), _write("metrics", b"Origin: https://evil.example")):
        assert _status(await ask_raw(proxy.metrics_url, request)) == 403
    assert _status(await ask_raw(proxy.metrics_url, _write("metrics"))) == 200
    guarded = await start_proxy(*settings, "admin_token=token")
    shown = _write("metrics", b"Authorization: Bearer token", host=b"metrics.example")
    assert _status(await ask_raw(guarded.metrics_url, shown)) == 200


async def test_beyond_this_machine_any_name_may_lead_here(raw, start_proxy) -> None:
    """Other machines may use a service's name. There, only a key protects against DNS rebinding."""
    proxy = await start_proxy(f"upstream.base_url={raw.url}", "listen=0.0.0.0:0")
    url = proxy.url.replace("0.0.0.0", "127.0.0.1")
    assert _status(await ask_raw(url, _write("post", host=b"trimtab.service:8790"))) == 200
