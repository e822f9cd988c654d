"""Upstreams behind an HTTP proxy: every request to an upstream goes through it, unchanged."""

import asyncio
import base64
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest
import uvloop
from support.authority import Authority
from support.client import CHAT, SMALL, ask_raw, post, settle
from support.sessions import make_session
from upstreams.forward_proxy import ForwardProxy, run_forward_proxy
from upstreams.raw import RawRequest, run_raw_upstream
from yarl import URL

from trimtab.proxy.config.load import load_config
from trimtab.proxy.server.app import Proxy, run_proxy

Start = Callable[..., Awaitable[Proxy]]
SOCKET = (
    b"GET /v1/realtime HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Key: abc\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
ACCEPTED = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
REFUSED = b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno"


def far(url: str) -> str:
    """The same upstream under a name that no resolver knows. Only the proxy can reach it."""
    return str(URL(url).with_host("upstream.test"))


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resolve no test name: without a network, a lookup may take long."""
    look_up = socket.getaddrinfo

    def refuse(host: str, *arguments: object, **more: object) -> object:
        if str(host).endswith((".test", ".invalid")):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return look_up(host, *arguments, **more)

    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture
async def forward() -> AsyncIterator[ForwardProxy]:
    async with run_forward_proxy() as running:
        yield running


@pytest.fixture
async def start(log, compactors) -> AsyncIterator[Start]:
    """A function that starts a proxy with an environment and settings."""
    async with AsyncExitStack() as stack:

        async def run(environment: dict[str, str], *settings: str) -> Proxy:
            base = ("listen=127.0.0.1:0", "store=memory", "limits.drain_seconds=1")
            config = load_config(settings=(*base, *settings), environment=environment)
            return await stack.enter_async_context(run_proxy(config, log, compactors))

        yield run


async def test_each_kind_of_request_goes_through_the_proxy(client, upstream, forward, start) -> None:
    """Chats, other paths, summaries, and requests for context windows. Only the proxy knows the upstream's name."""
    settings = (f"upstream.base_url={far(upstream.url)}", *SMALL, "models=[{match: other, context_window: auto}]")
    proxy = await start({"HTTP_PROXY": f"http://{forward.address}"}, *settings)
    session = make_session(30)
    assert (await post(client, proxy.url + "/v1/chat/completions", session))[0].status == 200
    await settle(proxy)
    async with client.get(proxy.url + "/v1/files?limit=1") as response:
        assert (response.status, await response.read()) == (200, b"hello")

    assert upstream.summaries
    authority = far(upstream.url).encode()
    async with asyncio.timeout(30):
        while not upstream.questions:  # noqa: ASYNC110 - a background task asks
            await asyncio.sleep(0.01)
    asked = [head.split(b"\r\n")[0] for head in forward.heads]
    assert asked.count(b"POST " + authority + b"/chat/completions HTTP/1.1") == len(upstream.requests) - 1
    assert b"GET " + authority + b"/files?limit=1 HTTP/1.1" in asked
    assert b"GET " + authority + b"/models HTTP/1.1" in asked


@pytest.mark.parametrize(
    "target", [b"/v1//a/../b%2Fc%20d?x=%41+b&y", b"/v1/models?", b"//x", b"/v1/a?b#c", b"/other/%E2%82%AC?q=/../"]
)
async def test_a_request_in_absolute_form_keeps_its_bytes(target, raw, forward, start) -> None:
    """Target, headers and bytes outside of ASCII are as without a proxy. Only `Host` is the upstream's."""
    request = (
        b"POST " + target + b" HTTP/1.1\r\nHost: localhost\r\nx-B: 1\r\nX-a: \xff\xfe\r\nAuthorization: Bearer k\r\n"
        b"Proxy-Authorization: Basic clients\r\nCONTENT-LENGTH: 3\r\nConnection: close\r\n\r\n\x00ab"
    )
    direct = await start({}, f"upstream.base_url={raw.url}")
    assert b" 200 " in await ask_raw(direct.url, request)
    proxied = await start({"http_proxy": f"user:pass@{forward.address}"}, f"upstream.base_url={far(raw.url)}")
    assert b" 200 " in await ask_raw(proxied.url, request)

    plain, through = raw.requests
    authority = far(raw.url).removesuffix("/v1").encode()
    sent = next(head for head in forward.heads if head.startswith(b"POST "))
    assert sent.split(b" ")[1] == authority + plain.target
    own = b"Proxy-Authorization: Basic " + base64.b64encode(b"user:pass")
    host = b"Host: " + authority.removeprefix(b"http://")
    expected = [host if line.startswith(b"Host:") else line for line in plain.lines]
    assert sent.split(b"\r\n")[1:] == [*expected, own]
    assert (through.body, through.target) == (plain.body, plain.target)


async def test_a_password_that_the_proxy_refuses_is_not_told_as_the_upstreams_answer(
    client, upstream, forward, start
) -> None:
    """Without a tunnel, its 407 comes in place of the upstream's answer. The message has no password."""
    forward.wants = b"Basic other"
    proxy = await start({"HTTP_PROXY": f"http://u:PLANTED@{forward.address}"}, f"upstream.base_url={far(upstream.url)}")
    response, body = await post(client, proxy.url + "/v1/chat/completions", CHAT)
    assert (response.status, b"refuses the user name and password (407)" in body) == (502, True)
    assert b"PLANTED" not in body


async def test_a_websocket_goes_through_a_tunnel_that_serves_no_other_request(raw, forward, start) -> None:
    """Also to an upstream without TLS (RFC 6455). A refused handshake leaves the tunnel open.

    The last proxy makes a request about the whole server of one without a path. Source: RFC 9112 section 3.2.4.
    """
    raw.answer = REFUSED
    proxy = await start({"http_proxy": f"http://{forward.address}"}, f"upstream.base_url={far(raw.url)}")
    end = b" HTTP/1.1\r\nHost: localhost\r\nUser-Agent: me\r\nConnection: close\r\n\r\n"
    for request in (SOCKET, b"GET /v1/files" + end, b"OPTIONS *" + end):
        assert b" 404 " in await ask_raw(proxy.url, request)
    assert [request.target for request in raw.requests[:2]] == [b"/v1/realtime", b"/v1/files"]
    absolute = [head.split(b" ")[1] for head in forward.heads if b"User-Agent: me" in head]
    root = far(raw.url).removesuffix("/v1").encode()
    assert absolute == [root + b"/v1/files", root]

    async def accept(request: RawRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(ACCEPTED)
        writer.write((await request.reader.readexactly(5))[::-1])
        writer.close()

    raw.answer = accept
    answer = await ask_raw(proxy.url, SOCKET + b"early")
    assert answer.startswith(b"HTTP/1.1 101 ")
    assert answer.endswith(b"ylrae")
    assert b"realtime" not in b"".join(forward.heads)


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_tls_goes_through_a_tunnel(loop_factory, tmp_path: Path, log, compactors) -> None:
    """The proxy speaks HTTP or HTTPS. Its credentials do not reach the upstream, and the upstream's do not reach it."""

    async def run() -> None:
        authority = Authority(tmp_path)
        async with run_raw_upstream(authority.serve("upstream.test")) as raw, AsyncExitStack() as stack:
            for tls in (None, authority.serve("127.0.0.1")):
                forward = await stack.enter_async_context(run_forward_proxy(tls))
                forward.wants = b"Basic " + base64.b64encode("üser:p@ss".encode())
                address = f"http{'s' if tls else ''}://%C3%BCser:p%40ss@{forward.address}"
                settings = (f"upstream.base_url={far(raw.url)}", f"upstream.ca_file={authority.ca_file}")
                config = load_config(
                    settings=("listen=127.0.0.1:0", "store=memory", *settings), environment={"https_proxy": address}
                )
                proxy = await stack.enter_async_context(run_proxy(config, log, compactors))
                async with aiohttp.ClientSession() as client:
                    for _ in range(2):
                        assert (await post(client, proxy.url + "/v1/chat/completions", CHAT))[0].status == 200
                assert forward.heads[0].startswith(b"CONNECT upstream.test:")
                assert not [head for head in forward.heads if b"Bearer" in head or not head.startswith(b"CONNECT ")]
            assert raw.requests
            assert not [request for request in raw.requests if b"proxy-" in request.head.lower()]

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(run())
