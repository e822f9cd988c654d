"""Limits what a request costs, counted and not timed: the files and hops that a reader follows, and all calls.

Law: the limits stand in one table, and may only be lowered.
"""

import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import aiohttp
import orjson
import pytest
from aiohttp import web
from support.client import post, settle
from support.dialects.spoken.all_dialects import CHAT, MESSAGES, RESPONSES
from support.dialects.spoken.dialect import Dialect
from support.sessions import make_session
from upstreams.recording import FakeUpstream, event

import trimtab.proxy
import trimtab.rules
from trimtab.proxy.account.history import kept
from trimtab.proxy.server.app import Proxy


class Price(NamedTuple):
    """What a request may cost: files of ours, hops from one of these to another, and calls of Python, C's included."""

    files: int
    hops: int
    calls: int


LIMITS = {
    "small": Price(44, 148, 845),
    "small, responses": Price(47, 156, 970),
    "small, messages": Price(47, 156, 885),
    "known": Price(50, 191, 1135),
    "known, responses": Price(52, 202, 1200),
    "known, messages": Price(52, 202, 1175),
    "cut": Price(72, 352, 1650),
    "stream": Price(51, 250, 1700),
    "chunk": Price(0, 4, 31),
}
"""small: 8 known messages that need nothing. known: 404 KB that need nothing, and were sent before. cut: two new
messages behind a standing cut. stream: `small`, answered in 20 chunks. chunk: a further one of these."""
ROOTS = tuple(str(Path(package.__path__[0])) + "/" for package in (trimtab.proxy, trimtab.rules))
CALL = {"id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}}
SMALL = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Look."},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "x", "content": "ok"},
    {"role": "assistant", "content": "Looked."},
    {"role": "user", "content": "And now?"},
    {"role": "assistant", "content": "Nothing."},
    {"role": "user", "content": "Fine."},
]
KNOWN = make_session(200, result_words=620)["messages"][:-1]
CUT = orjson.loads(orjson.dumps(make_session(60, result_words=400)["messages"][:-1]).replace(b"part", b"piece"))
"""No message is one of `KNOWN`: the process remembers what it has read, so the price would hang on what ran before."""
TRACED_STEPS = 24
"""More than lie between two cuts. Steps right behind a cut cost least; those before the next one ask for it, too."""
CHUNKS, MORE_CHUNKS = 20, 40
each_dialect = pytest.mark.parametrize("dialect", [CHAT, RESPONSES, MESSAGES], ids=["chat", "responses", "messages"])
_BLOCK = frozenset({"__enter__", "__exit__", "__aenter__", "__aexit__"})
"""A `with` block is one hop, when it is created. Its enter and exit are none, in a class or in a generator."""
_SUSPENDING = 0x20 | 0x80 | 0x200
"""Flags of code objects: generator, coroutine, async generator. The profiler reports each resumption as a call."""


@dataclass(slots=True)
class Trace:
    """What the program does: the files that it enters, the number of calls from one to another, and of all calls.

    The client and the upstream of the test run in the same thread. What nobody of ours has called is not counted.
    """

    files: set[str] = field(default_factory=set)
    hops: int = 0
    calls: int = 0

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        """Record an event of the profiler."""
        if event == "c_call":
            self.calls += _is_ours(frame.f_code) or _find_caller(frame) is not None
        if event != "call" or _goes_on(frame):
            return
        code, caller = frame.f_code, _find_caller(frame)
        if not _is_ours(code):
            self.calls += caller is not None
            return
        self.calls += 1
        if code.co_name not in _BLOCK:
            self.files.add(code.co_filename)
            self.hops += caller is None or caller.co_filename != code.co_filename

    @property
    def price(self) -> Price:
        """The sums."""
        return Price(len(self.files), self.hops, self.calls)


def _find_caller(frame: FrameType) -> CodeType | None:
    """The next code of ours that has called it; None if none has."""
    caller = frame.f_back
    while caller is not None and not _is_ours(caller.f_code):
        caller = caller.f_back
    return None if caller is None else caller.f_code


def _is_ours(code: CodeType) -> bool:
    return code.co_filename.startswith(ROOTS)


def _goes_on(frame: FrameType) -> bool:
    """Whether it is not a call but a coroutine or a generator that resumes."""
    return bool(frame.f_code.co_flags & _SUSPENDING) and frame.f_lasti > 8


@contextmanager
def tracing() -> Iterator[Trace]:
    """Trace the calls of the block, and of everything else that runs on the event loop."""
    trace, before = Trace(), sys.getprofile()
    gc.collect()  # finalizers are calls, too
    gc.freeze()  # what is left, also by other tests, is examined once
    gc.disable()
    sys.setprofile(trace.note)
    try:
        yield trace
    finally:
        sys.setprofile(before)
        gc.enable()


@pytest.fixture
async def running(upstream: FakeUpstream, start_proxy, monkeypatch: pytest.MonkeyPatch) -> Proxy:
    """A proxy that does nothing by the clock while it is traced."""
    monkeypatch.setattr(kept, "FLUSH_SECONDS", 3600)
    upstream.models = orjson.dumps({"data": [{"id": "m", "max_model_len": 1_000_000}]})  # it is not asked again
    return await start_proxy()


async def trace(proxy: Proxy, send: Callable[[], Awaitable[Any]], *, times: int = 12) -> Price:
    """What a request costs, from the socket to its outcome in log, metrics and books, with warm caches.

    The least of many times: a timer may be due in the midst of one, or an answer may come in two pieces. On a busy
    machine, five times were not enough.
    """
    prices, lifecycle = list[Price](), proxy.services.lifecycle
    for _ in range(times):
        await lifecycle.idle.wait()
        await proxy.services.models.settle()
        await settle(proxy)
        with tracing() as found:
            await send()
            await lifecycle.idle.wait()
            await asyncio.sleep(0)
        assert "proxy/exchange/serve.py" in str(found.files)
        prices.append(found.price)
    return Price(*map(min, zip(*prices, strict=True)))


def check(name: str, price: Price) -> None:
    """Nothing costs more than its limit."""
    limit = LIMITS[name]
    assert all(one <= most for one, most in zip(price, limit, strict=True)), f"{name}: {price}; at most {limit}"


def name(kind: str, dialect: Dialect) -> str:
    """The name of a request in the table."""
    return kind if dialect is CHAT else f"{kind}, {dialect.name}"


@each_dialect
@pytest.mark.parametrize(("kind", "messages"), [("small", SMALL), ("known", KNOWN)], ids=["small", "known"])
async def test_a_known_request_that_needs_nothing_costs_little(
    kind: str, messages: Sequence[Any], dialect: Dialect, client: aiohttp.ClientSession, running: Proxy
) -> None:
    body = orjson.dumps(dialect.write(messages, model="m"))

    async def send() -> None:
        response, _ = await post(client, running.url + dialect.path, body)
        assert response.status == 200
        outcomes.append(response.headers["x-trimtab-outcome"])

    outcomes = list[str]()
    while outcomes[-4:] != ["unchanged"] * 4:  # on a busy machine, new text may find no thread in time
        await send()
    check(name(kind, dialect), await trace(running, send))


async def test_a_standing_cut_costs_little(client: aiohttp.ClientSession, start_proxy, monkeypatch) -> None:
    """The session grows by a call and its result, and the cut stays where it is."""
    monkeypatch.setattr(kept, "FLUSH_SECONDS", 3600)
    proxy = await start_proxy("defaults.context_window=16000")
    decided = list[str]()

    async def send(stop: int) -> None:
        response, _ = await post(client, proxy.url + CHAT.path, orjson.dumps(CHAT.write(CUT[:stop], model="m")))
        assert response.status == 200
        decided.append(response.headers.get("x-trimtab-decisions", ""))

    traced = range(len(CUT) - 2 * TRACED_STEPS, len(CUT) + 1, 2)
    for stop in range(4, traced.start, 2):
        await send(stop)
    decided.clear()
    prices = [await trace(proxy, partial(send, stop), times=1) for stop in traced]
    steps = zip(prices[1:], decided[1:], decided[:-1], strict=True)
    standing = [price for price, one, before in steps if one and before]
    assert len(standing) > TRACED_STEPS // 2
    check("cut", Price(*map(min, zip(*standing, strict=True))))


async def test_a_chunk_of_a_stream_costs_little(
    client: aiohttp.ClientSession, upstream: FakeUpstream, running: Proxy
) -> None:
    """Each chunk is passed on by itself: the upstream sends the next one when the client has got the last."""
    taken, chunks = asyncio.Event(), CHUNKS
    body = orjson.dumps(CHAT.write(SMALL, model="m", stream=True))

    async def answer(_recorded: Any, request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for _ in range(chunks):
            taken.clear()
            await response.write(event("word "))
            await taken.wait()
        await response.write(b"data: [DONE]\n\n")
        return response

    async def send() -> None:
        headers = {"Authorization": "Bearer sk-test"}
        async with client.post(running.url + CHAT.path, data=body, headers=headers) as response:
            got = 0
            async for _ in response.content.iter_any():
                got += 1
                taken.set()
            assert got >= chunks

    upstream.answer = answer
    for _ in range(4):
        await send()
    short = await trace(running, send)
    chunks = MORE_CHUNKS
    long = await trace(running, send)
    check("stream", short)
    check("chunk", Price(*((more - few) / (MORE_CHUNKS - CHUNKS) for more, few in zip(long, short, strict=True))))
