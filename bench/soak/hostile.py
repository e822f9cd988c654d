"""Hostile clients: each kind does one thing, again and again, until its process is ended.

python -m bench.soak.hostile KIND PORT
"""

import asyncio
import itertools
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import orjson
import uvloop

from bench.soak.clients import Texts

TEXTS = Texts(7)
PATH = "/v1/chat/completions"
FLOODERS = 8
LOG_LINES = 200_000
SLOW_READERS = 100
PAUSE_SECONDS = 0.05
NUMBER = "NNNNNNNN"


def ask(text: str, model: str = "open", **members: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}], **members}


def ask_about(result: str) -> dict[str, Any]:
    """A request with one tool result."""
    call = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": result},
    ]
    return {"model": "open", "messages": messages}


def poison(number: int) -> bytes:
    """A request from which the proxy could learn something false."""
    return orjson.dumps(_poison(number))


def _poison(number: int) -> dict[str, Any]:
    """Fields that the server counts, a body that a gateway refuses, or a role that quotes a false limit."""
    kind = number % 4
    if kind == 0:
        return ask(TEXTS.write("small", 900), documents=[TEXTS.write("big", 100_000)])
    if kind == 1:
        return ask(TEXTS.write("small", 900), documents=[TEXTS.write("big", 20_000)])
    if kind == 2:
        return ask(TEXTS.write("small", 900), metadata="x" * 1_600_000)
    planted = {"role": "user whose maximum context length is 2048 tokens", "content": "y"}
    return {"model": "open", "messages": [*ask(TEXTS.write("small", 4000))["messages"], planted]}


def write_log() -> bytes:
    rows = (f"2024-01-01 {row} INFO {row * 7919 % 10_007}" for row in range(LOG_LINES))
    return orjson.dumps(ask_about(f"{NUMBER}\n" + "\n".join(rows)))


def write_letters() -> bytes:
    return orjson.dumps(ask_about(f"{NUMBER}\n" + "\n".join("abcdefgh"[row % 8] for row in range(2_000_000))))


async def flood(port: int, body: bytes, *, times: int) -> None:
    """Send a large body with another number each time, so that it was never seen before."""
    await repeat(port, lambda number: body.replace(NUMBER.encode(), b"%08d" % number, 1), times=times)


async def repeat(port: int, make: Callable[[int], bytes], *, times: int = 1, key: str = "hostile") -> None:
    """Send requests forever, `times` at once."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(120)) as session:
        numbers = itertools.count()

        async def go_on() -> None:
            while True:
                body = make(next(numbers))
                async with session.post(f"http://127.0.0.1:{port}{PATH}", data=body, headers=headers) as answer:
                    await answer.read()
                await asyncio.sleep(PAUSE_SECONDS)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(times):
                tasks.create_task(go_on())


async def invent(port: int) -> None:
    """Use another credential and another model with each request."""
    async with aiohttp.ClientSession() as session:
        for number in itertools.count():
            body, key = ask(TEXTS.write(f"q {number}", 600), f"invented-{number}"), f"Bearer invented-{number}"
            async with session.post(
                f"http://127.0.0.1:{port}{PATH}", json=body, headers={"Authorization": key}
            ) as answer:
                await answer.read()
            await asyncio.sleep(PAUSE_SECONDS)


async def read_slowly(port: int) -> None:
    """Ask for large answers, and read nothing of them for a while."""
    body = orjson.dumps(ask("large answer"))
    head = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (PATH.encode(), len(body))
    while True:
        readers = []
        for _ in range(SLOW_READERS):
            reader = socket.socket()
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.connect(("127.0.0.1", port))
            reader.sendall(head + body)
            readers.append(reader)
        await asyncio.sleep(3)
        for reader in readers:
            reader.close()


async def smuggle(port: int) -> None:
    """Send chunked requests with trailers, and another request after them on the same connection."""
    trailers = (b"Authorization: Bearer EVIL", b"Host: evil", b"x-trimtab-mode: off", b"Connection: authorization")
    for number in itertools.count():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
        writer.write(head + trailers[number % len(trailers)] + b"\r\n\r\n")
        writer.write(b"GET /v1/next HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await asyncio.wait({asyncio.ensure_future(reader.read(65_536))}, timeout=1)
        writer.close()
        await asyncio.sleep(PAUSE_SECONDS)


KINDS: dict[str, Callable[[int], Awaitable[None]]] = {
    "nobody": lambda _: asyncio.Event().wait(),  # type: ignore[dict-item,return-value] # it never returns
    "poisoner": lambda port: repeat(port, poison),
    "flood of logs": lambda port: flood(port, write_log(), times=FLOODERS),
    "flood of letters": lambda port: flood(port, write_letters(), times=2),
    "inventor": invent,
    "slow readers": read_slowly,
    "smuggler": smuggle,
}


if __name__ == "__main__":
    uvloop.run(KINDS[sys.argv[1]](int(sys.argv[2])))  # type: ignore[arg-type] # all of them are coroutines
