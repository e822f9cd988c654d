"""Tunnels through forward proxies, which may answer in other ways than aiohttp expects; and TLS."""

import asyncio
import ssl
import threading

import aiohttp
import pytest
from upstreams.forward_proxy import ForwardProxy, run_forward_proxy
from upstreams.sockets import listen

from trimtab.proxy.config.network import make_context
from trimtab.proxy.http.aiohttp_fixes import tunnels
from trimtab.proxy.http.aiohttp_fixes.client import Connector
from trimtab.proxy.http.aiohttp_fixes.tunnels import Request, TunnelError, TunnelTimeoutError


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 9\r\n\r\n" + head[:9])
    await writer.drain()
    writer.close()


async def _ask(url: str, proxy: ForwardProxy, seconds: float | None = None) -> bytes:
    """A request through a tunnel; the answer is the beginning of what the upstream has read."""
    timeout = aiohttp.ClientTimeout(connect=seconds)
    async with aiohttp.ClientSession(connector=Connector(), request_class=Request, timeout=timeout) as session:
        way = {"proxy": f"http://{proxy.address}", "server_hostname": "upstream.test", "ssl": False}
        async with session.get(url, **way) as response:
            return await response.read()


@pytest.mark.parametrize("status", [b"200", b"204", b"299"])
async def test_any_success_opens_a_tunnel_also_for_a_plain_upstream(status: bytes) -> None:
    async with run_forward_proxy() as proxy, listen(_answer) as address:
        proxy.established = b"HTTP/1.1 " + status + b" Go on\r\n\r\n"
        assert await _ask(f"http://{address}/x", proxy) == b"GET /x HT"
        assert [head.split(b" ")[0] for head in proxy.heads] == [b"CONNECT"]


@pytest.mark.parametrize("answer", [b"", b"no HTTP at all\r\n\r\n", b"HTTP/1.1 300 Choose\r\n"])
async def test_a_proxy_that_does_not_answer_the_question_is_told_apart_from_an_upstream(answer: bytes) -> None:
    async with run_forward_proxy() as proxy:
        proxy.answer = answer
        with pytest.raises(TunnelError) as raised:
            await _ask("http://127.0.0.1:9/x", proxy)
    assert isinstance(raised.value.__cause__, aiohttp.ClientError)


async def test_a_proxy_that_refuses_has_its_own_status() -> None:
    async with run_forward_proxy() as proxy:
        for status in (300, 407):
            proxy.answer = b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % status
            with pytest.raises(aiohttp.ClientHttpProxyError) as raised:
                await _ask("http://127.0.0.1:9/x", proxy)
            assert raised.value.status == status


async def test_an_upstream_that_is_silent_in_a_tunnel_is_told_apart_from_a_proxy() -> None:
    ended = asyncio.Event()

    async def be_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        ended.set()

    async with run_forward_proxy() as proxy, listen(be_silent) as address:
        with pytest.raises(TimeoutError) as raised:
            await _ask(f"https://{address}/x", proxy, 0.2)
        causes = [raised.value]
        while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None:
            causes.append(cause)
        assert any(isinstance(cause, TunnelTimeoutError) for cause in causes)
        await ended.wait()


async def test_the_systems_authorities_are_read_in_a_thread(monkeypatch):
    """Reading them takes a twentieth of a second, and the loop has all clients' streams."""
    readers = []

    def read(*files):
        readers.append(threading.current_thread())
        return make_context(*files)

    async def hang_up(_, writer):
        writer.close()

    monkeypatch.setattr(tunnels, "make_context", read)
    async with listen(hang_up) as address:
        url = f"https://{address}/"
        async with aiohttp.ClientSession(connector=Connector()) as session:
            for _ in range(2):
                with pytest.raises(aiohttp.ClientError):
                    await session.get(url)
    assert len(readers) == 1
    assert readers[0] is not threading.current_thread()


async def test_an_upstream_without_tls_is_no_fault_of_the_proxy() -> None:
    """The tunnel was open. The upstream refuses what is no request line."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        writer.close()

    async with run_forward_proxy() as proxy, listen(refuse) as address:
        with pytest.raises((aiohttp.ClientConnectorError, ssl.SSLError)):
            await _ask(f"https://{address}/x", proxy)
