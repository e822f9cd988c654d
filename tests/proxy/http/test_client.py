"""Requests to the upstream."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
from multidict import CIMultiDict
from yarl import URL

from trimtab.proxy.config.schema import UpstreamConfig
from trimtab.proxy.http.client import PIECE_BYTES, UpstreamClient, read_bounded, target_url
from trimtab.proxy.http.errors import UpstreamUnreachableError

PLAIN = UpstreamConfig(base_url="http://up:1/v1")
KEYED = UpstreamConfig(base_url="http://up:1/v1", api_key="sk-own")


@pytest.mark.parametrize(
    ("base", "path", "target"),
    [
        ("http://up:1/v1", "/v1/chat/completions", "http://up:1/v1/chat/completions"),
        ("http://up:1/api/v3", "/v1/models?x=1&y=%2F", "http://up:1/api/v3/models?x=1&y=%2F"),
        ("http://up:1", "/v1/models", "http://up:1/models"),
        ("http://up:1/api", "/v1", "http://up:1/api"),
        ("http://up:1/api", "/v1?x", "http://up:1/api?x"),
        ("http://up:1/api", "/v1beta/models", "http://up:1/v1beta/models"),
        ("http://up:1/api", "/version", "http://up:1/version"),
        ("http://up:1/api", "/", "http://up:1/"),
        ("http://up:1/api", "/v1/a%2Fb%20c%C3%BC/../d?q=%41+b", "http://up:1/api/a%2Fb%20c%C3%BC/../d?q=%41+b"),
        ("http://up:1/api", "http://evil.com/v1/models?x=1", "http://up:1/api/models?x=1"),
        ("http://up:1/api", "https://u:p@evil.com:9/other?x=1", "http://up:1/other?x=1"),
        ("http://up:1/api", "http://evil.com", "http://up:1/"),
        ("http://up:1/api", "evil.com:443", "http://up:1/"),
        ("http://up:1/api", "*", "http://up:1/*"),
        ("http://up:1/api", "http://evil.com?x=1", "http://up:1/?x=1"),
        ("http://up:1/api", "/v1/models?", "http://up:1/api/models?"),
        ("http://up:1/api", "/v1/models?a#b", "http://up:1/api/models?a#b"),
        ("http://up:1/api", "//v1//x", "http://up:1//v1//x"),
        ("http://up:1/api", "@evil.com/x", "http://up:1/"),
        ("http://up:1/api", "", "http://up:1/"),
        ("http://[::1]:1/v1", "/other", "http://[::1]:1/other"),
    ],
)
def test_a_path_goes_to_its_place_on_the_upstream(base: str, path: str, target: str) -> None:
    """`/v1/X` under base_url, any other path on its origin; encoding and query stay unchanged."""
    assert str(target_url(UpstreamConfig(base_url=base), path)) == target


@pytest.mark.parametrize("is_api", [False, True])
def test_a_key_in_the_query_goes_only_where_the_clients_credential_goes(*, is_api: bool) -> None:
    """Such an upstream gets the query byte for byte; others get it without the key."""
    target = "/v1/models?a=%2f&k%65y=sk-client&&b"

    assert target_url(PLAIN, target, is_api=is_api).raw_path_qs == target
    for upstream in (KEYED, PLAIN.named()):
        assert target_url(upstream, target, is_api=is_api).raw_path_qs == "/v1/models?a=%2f&&b"


def test_an_api_path_without_v1_belongs_to_base_url() -> None:
    """For clients whose base URL is the proxy's URL without `/v1`."""
    upstream = UpstreamConfig(base_url="http://up:1/api/v3/")

    for path in ("/chat/completions?a=1", "/v1/chat/completions?a=1"):
        assert str(target_url(upstream, path, is_api=True)) == "http://up:1/api/v3/chat/completions?a=1"


@pytest.mark.parametrize(
    "path",
    [
        "//evil.com/x", "///evil.com", "/\\evil.com", "/@evil.com", "/v1/@evil.com", "/v1//evil.com", "/#@evil.com",
        "http:////evil.com/x", "http://evil.com//evil.com/v1/x", "/v1/http://evil.com", "/?http://evil.com", "*",
        "@evil.com", ".evil.com",
    ],
)  # fmt: skip
def test_the_host_is_always_the_upstreams(path: str) -> None:
    """Whatever a client writes into the request line, its credential goes nowhere else."""
    for base in ("http://up:1", "http://up", "http://up/v1"):
        for is_api in (False, True):
            found = target_url(UpstreamConfig(base_url=base), path, is_api=is_api)
            assert found.origin() == URL(base).origin()


@pytest.fixture
async def client() -> AsyncIterator[UpstreamClient]:
    made = UpstreamClient()
    yield made
    await made.close()


async def test_an_upstream_that_is_not_there_is_unreachable(client: UpstreamClient) -> None:
    """The error names the address and what to do."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = URL(f"http://127.0.0.1:{unused.getsockname()[1]}/v1/models")
        words = rf"127\.0\.0\.1:{url.port} could not be reached: it refuses connections; .*base_url"
        with pytest.raises(UpstreamUnreachableError, match=words) as raised:
            async with client.send("GET", url, CIMultiDict(), None, PLAIN):
                pass
        assert raised.value.is_unsent


async def test_a_tunnel_that_the_forward_proxy_refuses_is_no_connection(client: UpstreamClient) -> None:
    """Nothing of the request has left."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        proxy = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        upstream = UpstreamConfig(base_url="https://upstream.test/v1", proxy=proxy)
        with pytest.raises(UpstreamUnreachableError) as raised:
            async with client.send("POST", URL("https://upstream.test/v1/x"), CIMultiDict(), b"x", upstream):
                pass
        assert raised.value.is_unsent


async def test_an_upstream_that_hangs_up_is_unreachable(client: UpstreamClient) -> None:
    """A connection that closes before a response is an error."""

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        url = URL(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        with pytest.raises(UpstreamUnreachableError) as raised:
            async with client.send("POST", url, CIMultiDict(), b"x", PLAIN):
                pass
        assert not raised.value.is_unsent


@pytest.mark.parametrize("size", [0, PIECE_BYTES, PIECE_BYTES + 1])
async def test_a_body_goes_out_whole_with_its_length(client: UpstreamClient, size: int) -> None:
    """In pieces or at once, the upstream sees one body of a known length, and no additional header."""
    received = bytearray()
    body = bytes(range(256)) * (size // 256 + 1)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.extend(await reader.readuntil(b"\r\n\r\n"))
        received.extend(await reader.readexactly(size))
        writer.write(b"HTTP/1.1 307 Moved\r\nLocation: /elsewhere\r\nSet-Cookie: a=b\r\nContent-Length: 2\r\n\r\nok")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        headers = CIMultiDict({"X-A": "1"})
        async with client.send(
            "POST", URL(f"http://{address}/a%2Fb", encoded=True), headers, body[:size], PLAIN
        ) as got:
            assert (got.status, await got.read()) == (307, b"ok")
    head, _, sent = bytes(received).partition(b"\r\n\r\n")
    assert sent == body[:size]
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /a%2Fb HTTP/1.1"
    assert sorted(lines[1:]) == sorted([b"Host: " + address.encode(), b"X-A: 1", b"Content-Length: %d" % size])


@pytest.mark.parametrize("length", [0, 100, 101])
async def test_a_body_beyond_its_bound_is_not_read(client: UpstreamClient, length: int) -> None:
    """A body one byte over the bound gives None; a body of exactly the bound is read whole."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + b"x" * length)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = URL(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        async with client.send("GET", url, CIMultiDict(), None, PLAIN) as response:
            assert await read_bounded(response, 100) == (b"x" * length if length <= 100 else None)
