"""A client that reads slowly costs several hundred kilobytes, however long the response is."""

import asyncio
import socket
from pathlib import Path

import orjson
import pytest
from programs.serving import EXECUTED, serving
from support.client import CHAT
from upstreams.raw import RawUpstream
from yarl import URL

READERS = 40
ANSWER_BYTES = 4_000_000
MAX_BYTES_EACH = 1_200_000
"""Limit of the process's memory per reader. Measured: 0.4 to 0.7 MB with 200 readers of 3 MB. Before, each reader cost
the whole response."""
_EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"' + b"w " * 2000 + b'"}}]}\n\n'
_STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
_BODY = b'{"choices":[{"index":0,"message":{"content":"' + b"w " * (ANSWER_BYTES // 2) + b'"}}]}'
_LENGTH = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
ANSWERS = {
    "stream": _STREAM + _EVENT * (ANSWER_BYTES // len(_EVENT)),
    "one event": _STREAM + b"data: " + _BODY + b"\n\n",
    "one piece": _LENGTH % len(_BODY) + _BODY,
    "no JSON": _LENGTH % ANSWER_BYTES + b"x" * ANSWER_BYTES,
}


def _read_memory(process_id: int) -> int:
    """The resident memory of a process, in bytes."""
    status = Path(f"/proc/{process_id}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux has the memory of a process there")
@pytest.mark.parametrize("name", ANSWERS)
async def test_a_slow_reader_costs_little(name: str, raw: RawUpstream) -> None:
    """The client reads nothing after the head. Later readers reuse the memory that earlier ones have freed."""

    async def answer(request, writer):
        writer.write(b"HTTP/1.1 404 N\r\nContent-Length: 0\r\n\r\n" if request.asks_for_windows else ANSWERS[name])
        await writer.drain()
        if not request.asks_for_windows:
            writer.close()

    raw.answer = answer
    body = orjson.dumps(CHAT | {"stream": "stream" in name or "event" in name})
    ask = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    async with serving("--upstream", raw.url, shell=EXECUTED) as (process, url):
        address = URL(url)
        await _read_some(address, ask, 1)  # excludes what the first request loads, and what is loaded behind it
        before = await _settle(process.pid)
        held = [await _read_some(address, ask, READERS, process.pid) - before for _ in range(2)]
    assert held[0] < READERS * MAX_BYTES_EACH
    # Of the first ones, a part may be counted only: the memory is read when it seems to have settled.
    assert held[1] < max(held[0], READERS * MAX_BYTES_EACH // 2) + READERS * MAX_BYTES_EACH // 4


async def _read_some(address: URL, ask: bytes, readers: int, process_id: int = 0) -> int:
    """Open connections that read only the head of the response. Returns the memory of the process, if one is given."""
    loop, sockets = asyncio.get_running_loop(), []
    for _ in range(readers):
        reader = socket.socket()
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.settimeout(0)
        await loop.sock_connect(reader, (address.host, address.port))
        await loop.sock_sendall(reader, ask)
        sockets.append(reader)
    for reader in sockets:
        assert await asyncio.wait_for(loop.sock_recv(reader, 100), 30)
    memory = await _settle(process_id) if process_id else 0
    for reader in sockets:
        reader.close()
    return memory


async def _settle(process_id: int) -> int:
    """The memory when it no longer grows."""
    before, now = 0, _read_memory(process_id)
    while now > before:
        await asyncio.sleep(0.2)
        before, now = max(before, now), _read_memory(process_id)
    return before
