"""What the client gets before the answer, over real HTTP."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import aiohttp
import orjson
import pytest
from aiohttp import web
from msgspec.structs import replace
from multidict import CIMultiDict
from support.client import SMALL, post
from support.sessions import make_session
from upstreams.recording import FakeUpstream, completion, hold_summaries, write_note

from trimtab.proxy.exchange.early_answer import COMMENT, Patience, _read_short, read_opening
from trimtab.proxy.http.relay import Reply
from trimtab.proxy.server.app import Proxy
from trimtab.proxy.wire.chat.codec import CHAT

SETTINGS = (*SMALL, "defaults.overflow_strategy=summarize", "defaults.summary.max_tokens=300")
BODY = {"model": "m", "messages": make_session(70, result_words=120)["messages"][:-1], "stream": True}


def make_patient(proxy: Proxy, first_comment_seconds: float, comment_seconds: float = 10.0) -> None:
    """Set the times after which waiting clients get comments."""
    proxy.current.services = replace(proxy.services, patience=Patience(first_comment_seconds, comment_seconds))


def answer_behind_summary(upstream: FakeUpstream, answer: Callable[[web.Request], Awaitable[Any]]) -> None:
    """Have the upstream write a summary after a while, and answer all else so."""

    async def answer_all(recorded: Any, request: web.Request) -> Any:
        if recorded.asks_for_summary:
            await asyncio.sleep(0.01)
            return completion(write_note("SUMMARY of the work."))
        return await answer(request)

    upstream.answer = answer_all


async def test_a_streaming_client_that_waits_hears_from_us(client, upstream, start_proxy):
    release = hold_summaries(upstream)
    proxy = await start_proxy(*SETTINGS)
    make_patient(proxy, 0.01, 0.01)
    async with client.post(proxy.url + "/v1/chat/completions", json=BODY) as response:
        assert response.status == 200
        assert response.content_type == "text/event-stream"
        assert len(response.headers["x-trimtab-request-id"]) == 24
        assert "x-trimtab-tokens" not in response.headers
        assert await response.content.readuntil(b"\n\n") == COMMENT
        release.set()
        rest = (await response.read()).replace(COMMENT, b"")
    assert rest.startswith(b'data: {"id"')
    assert rest.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("status", "sent", "event"),
    [
        (429, b'{\n"error": {"message": "slow down"}}', b'{"error": {"message": "slow down"}}'),
        (200, b'{"choices": []}\n', b'{"choices": []}'),
        (
            502,
            b'<a b="c">',
            rb'{"error":{"message":"status 502: <a b=\"c\">","type":"upstream_error","param":null,"code":"502"}}',
        ),
        (500, b"", b'{"error":{"message":"status 500: no reason given",'),
        (0, b"", b'{"error":{"message":"127.0.0.1'),
    ],
)
async def test_after_the_headers_an_answer_that_is_no_stream_becomes_an_event(
    status, sent, event, *, client, upstream, start_proxy
):
    """The status was sent already. So the client learns of an error from the stream, in the form that clients know.

    If the upstream disconnects meanwhile, the stream says so.
    """

    async def refuse(request: web.Request) -> Any:
        if not status:
            request.transport.abort()
        return web.Response(status=status or 200, body=sent, content_type="application/json")

    answer_behind_summary(upstream, refuse)
    proxy = await start_proxy(*SETTINGS)
    make_patient(proxy, 0.0)
    _, answer = await post(client, proxy.url + "/v1/chat/completions", BODY)
    told = answer.replace(COMMENT, b"")
    assert told.startswith(b"data: " + event)
    assert told.endswith(b"}\n\n")
    assert told.count(b"\n") == 2


@pytest.mark.parametrize(("kind", "waits"), [("application/octet-stream", True), ("text/plain; charset=utf-8", False)])
async def test_a_stream_under_another_content_type_stays_a_stream(kind, *, waits, client, upstream, start_proxy, log):
    told = b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":7}}\n\ndata: [DONE]\n\n'

    async def answer(_: web.Request) -> Any:
        return web.Response(body=told, headers={"Content-Type": kind})

    answer_behind_summary(upstream, answer)
    proxy = await start_proxy(*SETTINGS)
    make_patient(proxy, 0.0 if waits else 9.0)
    _, got = await post(client, proxy.url + "/v1/chat/completions", BODY)
    assert got.replace(COMMENT, b"") == told
    assert got.startswith(COMMENT) is waits
    line = next(line for line in log.lines if line["event"] == "request")
    assert (line["completion_tokens"], line.get("is_estimated", False)) == (7, False)


@pytest.mark.parametrize("waits", [True, False])
async def test_json_under_no_name_is_no_stream(*, waits, client, upstream, start_proxy, log):
    """Although a stream was asked for: its figures are read, and after the headers it becomes an event."""

    async def answer(_: web.Request) -> Any:
        body = gzip.compress(orjson.dumps({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 7}}))
        return web.Response(body=body, headers={"Content-Type": "text/plain", "Content-Encoding": "gzip"})

    answer_behind_summary(upstream, answer)
    proxy = await start_proxy(*SETTINGS)
    make_patient(proxy, 0.0 if waits else 9.0)
    _, got = await post(client, proxy.url + "/v1/chat/completions", BODY)
    plain = got if waits else gzip.decompress(got)
    assert plain.replace(COMMENT, b"").startswith(b"data: {" if waits else b"{")
    line = next(line for line in log.lines if line["event"] == "request")
    assert (line["completion_tokens"], line.get("is_estimated", False)) == (7, False)


@pytest.mark.parametrize("comments", [False, True])
async def test_a_client_that_leaves_while_it_waits_leaves_nothing_behind(comments, client, upstream, start_proxy, log):
    release = hold_summaries(upstream)
    proxy = await start_proxy(*SETTINGS)
    make_patient(proxy, 0.01 if comments else 60.0)
    asking = asyncio.ensure_future(client.post(proxy.url + "/v1/chat/completions", json=BODY))
    async with asyncio.timeout(30):
        await upstream.arrived.wait()
        if comments:
            response = await asking
            assert await response.content.readuntil(b"\n\n") == COMMENT
            response.close()
        asking.cancel()
        await proxy.services.lifecycle.idle.wait()
    assert (log.lines[-1]["outcome"], upstream.chats) == ("aborted", [])
    release.set()


class _Body:
    """A body whose chunks arrive one by one after the head, or all with it."""

    def __init__(self, *chunks: bytes, with_head: bool) -> None:
        self.chunks, self._with_head = chunks, with_head

    def is_eof(self) -> bool:
        return self._with_head

    def read_nowait(self) -> bytes:
        return b"".join(self.chunks)

    async def iter_any(self) -> AsyncIterator[bytes]:
        for chunk in self.chunks:
            yield chunk
        if not self.chunks:
            raise aiohttp.ClientPayloadError


@pytest.mark.parametrize("with_head", [False, True])
@pytest.mark.parametrize(
    ("chunks", "held", "is_whole"),
    [
        ((b'{"er', b'ror":1}'), b'{"error":1}', True),
        ((b" ", b"x"), b" ", False),
        ((b"data: x", b"y"), b"data: x", False),
        ((b"x" * 20,), b"x" * 20, True),
        ((b"x" * 21, b"y"), b"x" * 21, False),
    ],
)
async def test_an_answer_is_held_while_it_may_be_a_short_one(chunks, held, is_whole, with_head) -> None:
    found = await _read_short(SimpleNamespace(content=_Body(*chunks, with_head=with_head)), 20)
    if with_head:
        body = b"".join(chunks)
        assert found == (body, is_whole or (body == b" x"))
    else:
        assert found == (held, is_whole)
    broken = SimpleNamespace(content=_Body(with_head=False))
    assert await _read_short(broken, 20) == (b"", False)


@pytest.mark.parametrize("size", [7, 4096])
async def test_a_compressed_stream_is_held_as_it_came_until_its_first_event_is_read(size: int) -> None:
    refusal = {"message": "maximum context length is 4096 tokens", "code": "context_length_exceeded"}
    body = gzip.compress(b'data: {"error":%b}\n\ndata: [DONE]\n\n' % orjson.dumps(refusal))
    content = _Body(*(body[at : at + size] for at in range(0, len(body), size)), with_head=False)
    headers = CIMultiDict({"Content-Encoding": "gzip"})
    answer: Any = SimpleNamespace(status=200, content_type="text/event-stream", headers=headers, content=content)
    opening = await read_opening(Reply(Mock()), answer, CHAT, list)
    assert body.startswith(opening.held)
    assert len(opening.held) >= min(size, len(body))
    assert opening.overflow is not None


@pytest.mark.parametrize("line", [b'{"a": 1}\n', b"Plain words.\n"])
async def test_what_is_no_stream_of_events_is_not_held_for_one(line, client, upstream, start_proxy):
    """A stream of another kind passes as it comes, although it has no content type of its own."""
    got = asyncio.Event()

    async def answer(_: Any, request: web.Request) -> Any:
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        await response.write(line)
        await got.wait()
        await response.write(line)
        return response

    upstream.answer = answer
    proxy = await start_proxy()
    async with client.post(proxy.url + "/v1/chat/completions", json=BODY) as response:
        assert await asyncio.wait_for(response.content.readany(), 30) == line
        got.set()
        assert await response.read() == line
