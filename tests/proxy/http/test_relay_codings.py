"""An upstream may compress although it was asked not to. Its bytes pass unchanged, and what must be read of them is."""

import asyncio
import gzip
import sys
import zlib
from dataclasses import replace
from typing import Any

import brotli
import orjson
import pytest
from aiohttp import web
from support.client import SMALL
from support.dialects.spoken.all_dialects import each_dialect
from support.sessions import make_session
from upstreams.recording import completion, write_note

from trimtab.proxy.exchange.early_answer import COMMENT, Patience

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CODE = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstd.compress,
    "gzip, br": lambda body: brotli.compress(gzip.compress(body)),
}
SESSION = make_session(70, result_words=120)["messages"][:-1]


def _coded(body: bytes, coding: str, *, status: int = 200, kind: str = "application/json") -> web.Response:
    wire = CODE[coding](body)
    return web.Response(body=wire, status=status, headers={"Content-Type": kind, "Content-Encoding": coding})


async def _ask(client, url: str, body: dict[str, Any]) -> tuple[int, Any, bytes]:
    async with client.post(url, json=body) as response:
        return response.status, response.headers, await response.read()


@each_dialect
@pytest.mark.parametrize("coding", CODE)
@pytest.mark.parametrize("streams", [False, True])
async def test_coded_answers_pass_unchanged_and_are_counted(
    coding, streams, dialect, *, client, upstream, start_proxy, log
):
    """The client gets the upstream's bytes and headers; the tokens are those of the answer."""
    if streams:
        plain, kind = b"".join(dialect.write_events("All ", "good.", "x" * 900)), "text/event-stream"
    else:
        plain, kind = dialect.write_answer("All good.", prompt_tokens=50, completion_tokens=777), "application/json"

    wires = [plain, CODE[coding](plain)]

    async def answer(_recorded, request):
        added = {"Content-Encoding": coding} if len(upstream.requests) == 2 else {}
        response = web.StreamResponse(headers={"Content-Type": kind, **added})
        await response.prepare(request)
        wire = wires[len(upstream.requests) - 1]
        for start in range(0, len(wire), 100):
            await response.write(wire[start : start + 100])
        await response.write_eof()
        return response

    upstream.answer = answer
    proxy = await start_proxy()
    body = dialect.convert({"model": "m", "messages": [{"role": "user", "content": "hi"}]}) | {"stream": streams}
    got = [await _ask(client, proxy.url + dialect.path, body) for _ in wires]
    assert [wire for _, _, wire in got] == wires
    assert got[1][1]["Content-Encoding"] == coding
    told = [line["completion_tokens"] for line in log.lines if "completion_tokens" in line]
    assert told[0] == told[1] > 0
    assert streams or told[0] == 777


@each_dialect
@pytest.mark.parametrize("coding", CODE)
async def test_a_coded_refusal_is_recovered_from(coding, dialect, client, upstream, start_proxy):
    """For its length; the client sees one answer."""
    refusal = next(one for one in dialect.refusals if one.told and not one.is_stream)

    async def answer(recorded, _request):
        tokens = len(recorded.body) // 4
        if tokens > 8000:
            return _coded(refusal.write(tokens, 8000), coding, status=refusal.status)
        return _coded(dialect.write_answer("All good."), coding)

    upstream.answer = answer
    proxy = await start_proxy()
    body = dialect.convert({"model": "m", "messages": SESSION})
    status, headers, got = await _ask(client, proxy.url + dialect.path, body)
    assert (status, len(upstream.chats), headers["Content-Encoding"]) == (200, 2, coding)
    assert got == CODE[coding](dialect.write_answer("All good."))


@pytest.mark.parametrize("coding", CODE)
@pytest.mark.parametrize("streams", [False, True])
async def test_a_client_that_was_promised_a_plain_stream_gets_one(coding, streams, client, upstream, start_proxy):
    """It has waited for a summary, whose answer was coded, too."""
    events = b'data: {"choices":[{"index":0,"delta":{"content":"good"}}]}\n\ndata: [DONE]\n\n'

    async def answer(recorded, _request):
        if recorded.asks_for_summary:
            await asyncio.sleep(0.01)
            return _coded(completion(write_note("SUMMARY of the work.")).body, coding)
        if streams:
            return _coded(events, coding, kind="text/event-stream")
        return _coded(b'{"error": {"message": "slow down"}}', coding, status=429)

    upstream.answer = answer
    proxy = await start_proxy(*SMALL, "defaults.overflow_strategy=summarize", "defaults.summary.max_tokens=300")
    proxy.current.services = replace(proxy.services, patience=Patience(0.0, 10.0))
    _, headers, got = await _ask(
        client, proxy.url + "/v1/chat/completions", {"model": "m", "messages": SESSION, "stream": True}
    )
    assert "Content-Encoding" not in headers
    told = got.replace(COMMENT, b"")
    assert told == (events if streams else b'data: {"error": {"message": "slow down"}}\n\n')
    assert b"SUMMARY of the work." in upstream.chats[-1].body


@pytest.mark.parametrize("wire", [b"odd bytes", gzip.compress(b'{"choices":[]}')[:-9], b""])
@pytest.mark.parametrize("coding", ["gzip", "compress"])
async def test_what_cannot_be_decoded_passes(wire, coding, client, upstream, start_proxy):
    """Damaged, cut off, or in a coding that trimtab does not know."""

    async def answer(_recorded, _request):
        return web.Response(body=wire, headers={"Content-Type": "application/json", "Content-Encoding": coding})

    upstream.answer = answer
    proxy = await start_proxy()
    request = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]})
    async with client.post(proxy.url + "/v1/chat/completions", data=request) as response:
        assert (response.status, response.headers["Content-Encoding"]) == (200, coding)
        assert await response.content.read() == wire
