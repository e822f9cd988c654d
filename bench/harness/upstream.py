"""The benchmarks' upstream: answers any request, at once or as an event stream with pauses.

Law: it does as little work as possible, so that the proxy is what is measured. It prints its port when it listens, and
runs until it is ended. Requests must carry a Content-Length or no body.
"""

import argparse
import asyncio
import re
import time
from collections.abc import Callable
from functools import partial
from typing import cast

import orjson
import uvloop

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_NOTE = """\
## 1. Progress and decisions
Read the parser and the loader, fixed the loader's retry.
## 2. Constraints and preferences
None.
## 3. Remaining
Two tests still fail.
## 4. Exact data
tests/test_loader.py"""
_COMPLETION = orjson.dumps(
    {
        "id": "chatcmpl-bench",
        "object": "chat.completion",
        "created": 0,
        "model": "bench",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": _NOTE,
                },
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 20, "total_tokens": 1020},
    }
)
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
    len(_COMPLETION),
    _COMPLETION,
)
_STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_STREAM_END = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


class Answering(asyncio.Protocol):
    """Answers with one small chat completion as soon as the last byte of a request has arrived."""

    def __init__(self) -> None:
        self._head = b""
        self._missing_bytes = 0
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport. uvloop's transport behaves as one, but its class is another."""
        self._transport = cast("asyncio.WriteTransport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing more can be sent."""
        del exc
        self._transport = None

    def data_received(self, data: bytes) -> None:
        """Count the body's bytes; only the head is parsed."""
        if self._missing_bytes:
            self._missing_bytes -= len(data)
        else:
            self._head += data
            head, found, body = self._head.partition(b"\r\n\r\n")
            if not found:
                return
            length = _LENGTH.search(head)
            self._missing_bytes = (int(length.group(1)) if length else 0) - len(body)
            self._head = b""
        if self._missing_bytes == 0:
            self.answer()

    def answer(self) -> None:
        """Answer the request, which is complete."""
        self.write(_ANSWER)

    def write(self, data: bytes) -> bool:
        """Send; False if the client has left."""
        if self._transport is None:
            return False
        self._transport.write(data)
        return True


class Streaming(Answering):
    """Answers with `chunks` events, `pause_seconds` apart. Each event contains the time at which it was sent."""

    def __init__(self, chunks: int, pause_seconds: float) -> None:
        super().__init__()
        self._chunks = chunks
        self._pause_seconds = pause_seconds

    def answer(self) -> None:
        """Send the head and the first event at once, the others after their pauses."""
        self.write(_STREAM_HEAD)
        self._send(self._chunks)

    def _send(self, left: int) -> None:
        if left == 0:
            self.write(_STREAM_END)
            return
        event = (
            b'data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","model":"bench","choices":[{"index":0,'
            b'"delta":{"content":" word"},"finish_reason":null}],"sent_ns":%d}\n\n' % time.monotonic_ns()
        )
        if self.write(b"%x\r\n%b\r\n" % (len(event), event)):
            asyncio.get_running_loop().call_later(self._pause_seconds, self._send, left - 1)


async def serve(make_protocol: Callable[[], Answering]) -> None:
    """Listen on a free port, print it, and run forever."""
    server = await asyncio.get_running_loop().create_server(make_protocol, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, default=0, help="events of a stream; 0: a JSON response")
    parser.add_argument("--pause-ms", type=float, default=5.0, help="milliseconds between two events")
    arguments = parser.parse_args()
    streaming = partial(Streaming, arguments.chunks, arguments.pause_ms / 1000)
    uvloop.run(serve(streaming if arguments.chunks else Answering))


if __name__ == "__main__":
    main()
