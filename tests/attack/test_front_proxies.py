"""Behind a front proxy that shares connections among clients, no part of one client's request reaches another's."""

import asyncio
import re

import orjson
import pytest
from programs.front_proxies import PROGRAMS, run_front_proxy
from support.client import CHAT
from yarl import URL

BODY = orjson.dumps(CHAT)
CHUNKED = b"%x\r\n%b\r\n0\r\n" % (len(BODY), BODY)
ATTACKS = {
    "trailers": b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKED + b"Authorization: Bearer EVIL\r\nX-A: EVIL\r\n\r\n",
    "blank trailer": b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKED + b"EVIL:\r\n\r\n",
    "folded trailer": b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKED + b"X-A: 1\r\n EVIL: 2\r\n\r\n",
    "pipelined": b"Content-Length: %d\r\n\r\n%bGET /v1/EVIL HTTP/1.1\r\nHost: localhost\r\n" % (len(BODY), BODY),
    "body beyond its length": b"Content-Length: 2\r\n\r\n{}X-EVIL: 1\r\n\r\n",
    "two lengths": b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /v1/EVIL HTTP/1.1\r\n",
    "left in the middle": b"Transfer-Encoding: chunked\r\n\r\n5\r\nEVIL",
    "large head": b"X-A: " + b"EVIL" * 15_000 + b"\r\nContent-Length: 2\r\n\r\n{}",
}


async def _send(port: int, request: bytes, *, reads: bool = True) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    said = b""
    try:
        async with asyncio.timeout(30 if reads else 0.2):
            said = await reader.read()
    except (TimeoutError, ConnectionError):
        assert not reads
    writer.close()
    return said


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("path", [b"/v1/files", b"/v1/chat/completions"])
async def test_the_next_client_is_alone(name, attack, path, raw, start_proxy) -> None:
    """Its request is forwarded as it was written, and it gets its own response, whatever the previous client sent."""
    if PROGRAMS[name] is None:
        pytest.skip(f"{name} is not installed")
    proxy = await start_proxy(f"upstream.base_url={raw.url}", "limits.client_silence_seconds=1")
    port = URL(proxy.url).port
    assert port is not None
    victim = b"GET /v1/victim HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer own\r\nConnection: close\r\n\r\n"
    with run_front_proxy(name, port) as front:
        for _ in range(3):
            await _send(front, b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\n" + ATTACKS[attack], reads=False)
            answer = await _send(front, victim)
            assert re.match(rb"HTTP/1\.1 200 ", answer)
            assert answer.endswith(b"{}")
    seen = [request for request in raw.requests if request.target == b"/v1/victim"]
    assert len(seen) == 3
    for request in seen:
        assert b"EVIL" not in request.head
        assert re.findall(rb"(?im)^authorization: .*$", request.head) in (
            [b"Authorization: Bearer own\r"],
            [b"authorization: Bearer own\r"],  # HAProxy writes names so
            [b"authorization: Bearer own"],
            [b"Authorization: Bearer own"],
        )
