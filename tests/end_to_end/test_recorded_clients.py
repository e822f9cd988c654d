"""Requests of real clients, recorded on the wire, through the proxy and back."""

import asyncio
import gzip
import hashlib
import zlib
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from support.client import ask_raw
from support.dialects.spoken.all_dialects import DIALECTS, find_dialect
from support.sessions import read_rows, recorded_files
from upstreams.raw import Answer, RawRequest, run_raw_upstream
from upstreams.recording import event

CLIENTS = {file.stem: file for file in recorded_files("wire")}
COMPACTED = tuple(dialect.path for dialect in DIALECTS)
OWN_LINES = (b"Connection: close", b"Date:", b"x-trimtab-", b"Server-Timing:")
HOP = frozenset({"connection", "keep-alive", "te", "host", "transfer-encoding"})
EVENTS = (
    b": OPENROUTER PROCESSING\n\n"
    + event("a")
    + b'data:{"x":1}\r\n\r\n: ping\n\n'
    + event("\u00fc")
    + b"data: [DONE]\n\n"
    + b": behind the end\nevent: x\n"
)
JSON = b'{"choices": [ {"index":0,"message":{"content":"\\u00fc"}} ], "n":1e400, "n":2}\n'


def _chunked(body: bytes) -> bytes:
    """The body in chunks of 37 bytes, which split events anywhere."""
    pieces = [body[start : start + 37] for start in range(0, len(body), 37)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (*pieces, b""))


def _answers(recorded: dict[str, Any]) -> Iterator[tuple[bytes, bytes]]:
    """The header lines and bodies of typical server responses to such a request."""
    if recorded["method"] == "HEAD":
        yield b"Content-Length: 12\r\nX-A: 1", b""
        return
    if recorded["body"] and recorded["body"].get("stream"):
        events = b"".join(find_dialect(recorded["path"]).write_events("a", "\u00fc"))
        yield b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked", events
        yield b"Content-Type: text/event-stream\r\nx-request-id: 1\r\nTransfer-Encoding: chunked", EVENTS
        yield (
            b"content-type: text/event-stream; charset=utf-8\r\nConnection: close",
            EVENTS.partition(b"data: [DONE]")[0],
        )
    else:
        yield b"Content-Type: application/json\r\nContent-Length: %d\r\nX-A: 1" % len(JSON), JSON
        yield b"X-A: 1\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json", JSON
    if not _is_compacted(recorded):
        packed = gzip.compress(JSON)
        yield b"Content-Encoding: gzip\r\nContent-Length: %d" % len(packed), packed
        yield b"Transfer-Encoding: chunked\r\nContent-Encoding: deflate", zlib.compress(EVENTS)


def _is_compacted(recorded: dict[str, Any]) -> bool:
    return recorded["method"] == "POST" and recorded["path"].endswith(COMPACTED)


def _request(recorded: dict[str, Any], option: int = 0) -> tuple[bytes, list[bytes], bytes]:
    """The bytes of the request, the header lines that the upstream must receive, and the body."""
    body = b"" if recorded["body"] is None else orjson.dumps(recorded["body"], option=option)
    is_compacted = _is_compacted(recorded)
    sent, expected = [], []
    for name, value in recorded["headers"]:
        length = name.lower() == "content-length"
        line = f"{name}: {len(body) if length else value}".encode()
        sent.append(line)
        if is_compacted and name.lower() == "accept-encoding":
            expected.append(b"Accept-Encoding: identity")
        elif name.lower() not in HOP:
            expected.append(line)
    if is_compacted and b"Accept-Encoding: identity" not in expected:
        expected.append(b"Accept-Encoding: identity")
    sent = [line for line in sent if not line.lower().startswith(b"connection:")]
    query = f"?{recorded['query']}" if recorded["query"] else ""
    first = f"{recorded['method']} {recorded['path']}{query} HTTP/1.1".encode()
    host = [] if any(line.lower().startswith(b"host:") for line in sent) else [b"Host: localhost"]
    return b"\r\n".join((first, *host, *sent, b"Connection: close", b"", body)), expected, body


@pytest.mark.parametrize("client", CLIENTS)
async def test_recorded_requests_and_answers_cross_unchanged(client, start_proxy):
    """Bodies pass byte for byte unless a rule acts, and headers pass in order, in both directions.

    Each request of a known dialect is decoded.
    """
    unchanged = 0
    rows = list(read_rows(CLIENTS[client]))
    async with run_raw_upstream() as upstream:
        proxy = await start_proxy(f"upstream.base_url={upstream.url}")
        for recorded in rows:
            request, expected, body = _request(recorded)
            for head, answer in _answers(recorded):
                upstream.answer = _write(head, answer)
                through = await ask_raw(proxy.url, request)
                _check_answer(through, head, answer)
                received = upstream.requests[-1]
                assert (b"x-trimtab-tokens" in through) == _is_compacted(recorded)
                if b"x-trimtab-decisions" not in through:
                    unchanged += 1
                    assert hashlib.sha256(received.body).digest() == hashlib.sha256(body).digest()
                    assert received.lines[1:] == expected
        for recorded in filter(_is_compacted, rows):
            request, _, body = _request(recorded, orjson.OPT_INDENT_2)
            through = await ask_raw(proxy.url, request)
            assert b"x-trimtab-decisions" in through or upstream.requests[-1].body == body
    assert unchanged >= len(rows)


def _write(head: bytes, answer: bytes) -> Answer:
    """An upstream with this response. It closes the connection if the response ends that way."""

    async def write(_request: RawRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n" + (_chunked(answer) if b"chunked" in head else answer))
        if b"Connection: close" in head:
            writer.close()

    return write


def _check_answer(through: bytes, head: bytes, answer: bytes) -> None:
    """The body of the response passed byte for byte, and its header lines in order."""
    received, _, body = through.partition(b"\r\n\r\n")
    lines = [line for line in received.split(b"\r\n")[1:] if not line.startswith(OWN_LINES)]
    kept = [line for line in head.split(b"\r\n") if not line.startswith((b"Transfer-Encoding", b"Connection"))]
    if b"Transfer-Encoding: chunked" in lines:
        lines.remove(b"Transfer-Encoding: chunked")
        body = _join_chunks(body)
    assert (lines, body) == (kept, answer)


def _join_chunks(body: bytes) -> bytes:
    """The body without its framing. The end of the framing must be there."""
    joined = bytearray()
    size = -1
    while size:
        line, _, body = body.partition(b"\r\n")
        size = int(line, 16)
        joined += body[:size]
        assert body[size : size + 2] == b"\r\n"
        body = body[size + 2 :]
    assert body == b""
    return bytes(joined)
