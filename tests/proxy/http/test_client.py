"""Requests to the upstream."""

import asyncio
import posixpath
from collections.abc import AsyncIterator
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict
from upstreams.sockets import listen
from yarl import URL

from trimtab.proxy.config.schema import UpstreamConfig
from trimtab.proxy.http.client import PIECE_BYTES, UpstreamClient, is_allowed, read_bounded, target_url
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


async def test_a_tunnel_that_the_forward_proxy_refuses_is_no_connection(client: UpstreamClient) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

    async with listen(refuse) as address:
        proxy = f"http://{address}"
        upstream = UpstreamConfig(base_url="https://upstream.test/v1", proxy=proxy)
        with pytest.raises(UpstreamUnreachableError) as raised:
            async with client.send("POST", URL("https://upstream.test/v1/x"), CIMultiDict(), b"x", upstream):
                pass
        assert raised.value.is_unsent


async def test_an_upstream_that_hangs_up_is_unreachable(client: UpstreamClient) -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with listen(hang_up) as address:
        url = URL(f"http://{address}/")
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

    async with listen(answer) as address:
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

    async with listen(answer) as address:
        url = URL(f"http://{address}/")
        async with client.send("GET", url, CIMultiDict(), None, PLAIN) as response:
            assert await read_bounded(response, 100) == (b"x" * length if length <= 100 else None)


# To which paths the operator's key is sent, however a path is written.


PIECES = [
    "/", "..", ".", "a", "%2e", "%2E%2e", "%2f", "%5c", "\\", ";x", ";", "%3b", "%252e", "%25", "v1", "//", "%c0%ae",
]  # fmt: skip


def _resolve(path: str, *, slashes: bool, parameters: bool) -> str:
    path = path.replace("\\", "/") if slashes else path
    parts = (part.partition(";")[0] if parameters else part for part in path.split("/"))
    return posixpath.normpath("/" + "/".join(parts).lstrip("/"))


@given(st.lists(st.sampled_from(PIECES), max_size=9))
def test_no_server_reads_an_allowed_path_as_one_beyond(pieces: list[str]) -> None:
    """With escapes undone zero to three times, with and without backslashes and parameters."""
    path = "/v1/" + "".join(pieces)
    if not is_allowed(path, "/v1", ()):
        return
    for _ in range(4):
        for slashes in (False, True):
            for parameters in (False, True):
                read = _resolve(path, slashes=slashes, parameters=parameters)
                assert read == "/v1" or read.startswith("/v1/"), read
        path = unquote(path)


@given(st.lists(st.text("abcXYZ019-_~!$&'()*+,=:@", min_size=1), max_size=6))
def test_a_path_without_tricks_is_allowed(parts: list[str]) -> None:
    path = "/".join(("/v1", *parts))
    assert is_allowed(path, "/v1", ())
    assert not is_allowed(f"/x{path}", "/v1", ())
    assert is_allowed(f"/x{path}", "/v1", ("/x/*",))


def test_escapes_without_end_are_refused() -> None:
    assert not is_allowed("/v1/%2525252525252541", "/v1", ())


@pytest.mark.parametrize("base", ["", "/api/v1"])
def test_a_base_may_have_any_depth(base: str) -> None:
    assert is_allowed(f"{base}/x/../y", base, ())
    assert not is_allowed(f"{base}/../y", base, ())


def test_a_listed_path_is_that_path_alone() -> None:
    """A listed folder allows what is below it. A name that only begins with either is not allowed."""
    assert is_allowed("/a", "/v1", ("/a",))
    assert not is_allowed("/a/b", "/v1", ("/a",))
    assert is_allowed("/a/b", "/v1", ("/a/*",))
    assert not is_allowed("/ab", "/v1", ("/a/*",))

    assert not is_allowed("/v1/%2525252525252541", "/v1", ())
