"""The soak's upstream: answers most requests well, and keeps a ledger of what it did to each.

    python -m bench.soak.upstream SEED

Prints its port when it listens. `/soak/ledger` is the ledger as JSON: all that was done to a request, by its id.
Summaries have no id; they are counted by what was done.
"""

import asyncio
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

import orjson
import uvloop
from aiohttp import WSMsgType, web

from bench.soak.faults import ID_HEADER, LEAVE_HEADER, NARROW_BYTES, TOO_LONG, draw

CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nTransfer-Encoding: chunked\r\n\r\n"
NOTE = """\
## 1. Progress and decisions
Note {number}: read the parser and the loader.
## 2. Constraints and preferences
None.
## 3. Remaining
Two tests still fail.
## 4. Exact data
tests/test_loader.py"""
DRIP_BYTES = 40
CHARS_PER_TOKEN = 3.5


@dataclass
class Ledger:
    """What was done to each id, and how often to requests without an id."""

    by_id: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    without_id: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that has been read, and its right answer."""

    request: web.BaseRequest
    good: bytes
    content_type: str

    async def write_raw(self, *said: bytes) -> None:
        """Write bytes past the HTTP library."""
        transport = self.request.transport
        if transport is not None:
            transport.write(b"".join(said))

    def end(self, *, reset: bool = False) -> web.StreamResponse:
        """End the connection without the HTTP library."""
        transport = self.request.transport
        if transport is not None:
            transport.abort() if reset else transport.close()
        return web.Response()


async def serve(ledger: Ledger, rng: random.Random, request: web.BaseRequest) -> web.StreamResponse:
    if request.path == "/soak/ledger":
        told = {"by_id": ledger.by_id, "without_id": ledger.without_id}
        return web.Response(body=orjson.dumps(told), content_type="application/json")
    if request.method == "GET" and "User-Agent" not in request.headers:
        return web.Response(status=404)  # it does not report windows
    number = request.headers.get(ID_HEADER)

    def note(done: str) -> None:
        ledger.without_id.update([done]) if number is None else ledger.by_id[number].append(done)

    if request.headers.get("Upgrade", "").lower() == "websocket":
        note("socket")
        return await echo(request)
    fault = "hold" if LEAVE_HEADER in request.headers else draw(rng)
    if fault == "early reset":
        note(fault)
        return Asked(request, b"", "").end(reset=True)
    body = b"".join([chunk async for chunk in request.content.iter_any()])
    if b'"narrow-' in body[:200] and len(body) > NARROW_BYTES:
        fault = TOO_LONG
    note(fault)
    return await _ACTS[fault](make_asked(request, body, number or ""))


async def echo(request: web.BaseRequest) -> web.StreamResponse:
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    async for message in socket:
        if message.type is WSMsgType.TEXT:
            await socket.send_str(message.data)
    return socket


def make_asked(request: web.BaseRequest, body: bytes, number: str) -> Asked:
    tokens = {"prompt_tokens": round(len(body) / CHARS_PER_TOKEN), "completion_tokens": 12}
    if b'"stream":true' in body[:300]:
        chunk = {
            "id": number,
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": {"content": "so "}}],
        }
        event = b"data: " + orjson.dumps(chunk) + b"\n\n"
        return Asked(request, event * 12 + b"data: [DONE]\n\n", "text/event-stream")
    said = {"role": "assistant", "content": NOTE.format(number=number)}
    answer = {"id": number, "object": "chat.completion", "choices": [{"index": 0, "message": said}], "usage": tokens}
    return Asked(request, orjson.dumps(answer), "application/json")


async def answer(asked: Asked) -> web.StreamResponse:
    return web.Response(body=asked.good, headers={"Content-Type": asked.content_type})


async def drip(asked: Asked) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": asked.content_type})
    await response.prepare(asked.request)
    for start in range(0, len(asked.good), DRIP_BYTES):
        await response.write(asked.good[start : start + DRIP_BYTES])
        await asyncio.sleep(0.005)
    await response.write_eof()
    return response


async def answer_oddly(asked: Asked) -> web.StreamResponse:
    head = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 \r\nX-Odd: \xfe\r\nConnection: close\r\nContent-Type: %b\r\n\r\n"
    await asked.write_raw(head % asked.content_type.encode(), asked.good)
    return asked.end()


async def reset(asked: Asked) -> web.StreamResponse:
    return asked.end(reset=True)


async def say_garbage(asked: Asked) -> web.StreamResponse:
    await asked.write_raw(b"\x00\xffSSH-2.0 whatever\r\n\r\n")
    return asked.end()


async def be_silent(asked: Asked) -> web.StreamResponse:
    await asyncio.Event().wait()  # until the other side has left
    return asked.end()


async def begin(asked: Asked) -> web.StreamResponse:
    """Half of an answer, in correct framing."""
    response = web.StreamResponse(headers={"Content-Type": asked.content_type})
    await response.prepare(asked.request)
    await response.write(asked.good[: len(asked.good) // 2])
    return response


async def stall(asked: Asked) -> web.StreamResponse:
    await begin(asked)
    return await be_silent(asked)


async def cut(asked: Asked) -> web.StreamResponse:
    await begin(asked)
    return asked.end(reset=True)


async def break_chunks(asked: Asked) -> web.StreamResponse:
    await asked.write_raw(CHUNKED % asked.content_type.encode(), b"5\r\ndata:\r\n")
    await asyncio.sleep(0.01)
    await asked.write_raw(b"zz\r\nwhat\r\n")
    await asyncio.sleep(0.05)
    return asked.end()


async def lie_of_length(asked: Asked) -> web.StreamResponse:
    kind = asked.content_type.encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n" % (kind, len(asked.good) + 100)
    await asked.write_raw(head, asked.good)
    return asked.end()


async def hold(asked: Asked) -> web.StreamResponse:
    if asked.request.headers[LEAVE_HEADER] == "mid":
        await begin(asked)
    return await be_silent(asked)


async def refuse(status: int, asked: Asked) -> web.StreamResponse:
    code = "context_length_exceeded" if status == 400 else "busy"
    size = asked.request.content_length or 0
    message = (
        f"This model's maximum context length is {round(NARROW_BYTES / CHARS_PER_TOKEN)} tokens. However,"
        f" your messages resulted in {round(size / CHARS_PER_TOKEN)} tokens. Please reduce the length of the messages."
        if status == 400
        else "not now"
    )
    error = {"message": message, "type": "invalid_request_error", "param": "messages", "code": code}
    headers = {"Retry-After": "1"} if status == 429 else {}
    return web.Response(
        body=orjson.dumps({"error": error}), status=status, headers=headers, content_type="application/json"
    )


_ACTS: dict[str, Callable[[Asked], Awaitable[web.StreamResponse]]] = {
    "answer": answer, "drip": drip, "odd": answer_oddly, "reset": reset, "garbage": say_garbage, "silent": be_silent,
    "stall": stall, "cut": cut, "bad chunks": break_chunks, "wrong length": lie_of_length, "hold": hold,
    "rate limit": partial(refuse, 429), "server error": partial(refuse, 500), "overloaded": partial(refuse, 503),
    "gateway": partial(refuse, 502), TOO_LONG: partial(refuse, 400),
}  # fmt: skip


async def main(seed: int) -> None:
    server = web.Server(
        partial(serve, Ledger(), random.Random(seed)),  # noqa: S311 - no secret
        handler_cancellation=True, access_log=None, keepalive_timeout=5.0,
    )  # fmt: skip
    runner = web.ServerRunner(server, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
