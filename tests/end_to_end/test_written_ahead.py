"""The summary for a cut at a cold cache is written while the cache is still warm, over real sockets.

Law: only after an answer that calls no tool, and only if it can be expected to pay.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import orjson
import pytest
from aiohttp import web
from support.client import SMALL, post, settle
from support.dialects.to_messages import to_messages
from support.dialects.to_responses import to_responses

from trimtab.proxy.server.app import Proxy

PRICES = "prices={input: 1, cached_input: 0.01, output: 0.5}"
"""At these prices a session as short as this one can bear a summary that it may not need."""
SETTINGS = (*SMALL, PRICES, "defaults.summary.max_tokens=100", "defaults.anchors=0", "upstream.cache_seconds=300")
TURNS = 40
CHAT = ("/v1/chat/completions", lambda body: body)
each_dialect = pytest.mark.parametrize(
    "dialect",
    [CHAT, ("/v1/messages", to_messages), ("/v1/responses", to_responses)],
    ids=["chat", "messages", "responses"],
)


class Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def serve(serve: Callable[..., Any], tmp_path: Any) -> Callable[..., Any]:
    """A function that runs a proxy with a store of its own while a block runs."""
    number = count()

    @asynccontextmanager
    async def run(*settings: str, clock: Clock) -> AsyncIterator[Proxy]:
        async with serve(f"store=sqlite:///{tmp_path}/{next(number)}.sqlite3", *settings) as proxy:
            proxy.services.cold_cuts.clock = clock
            yield proxy

    return run


def talk(turns: int) -> dict[str, Any]:
    """The request of a conversation of long texts, without tools: nothing of it can be pruned."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You are a harbour master. " * 200}]
    for number in range(turns):
        messages.append({"role": "user", "content": f"Question {number}. " + "Which ship comes next? " * 3})
        messages.append({"role": "assistant", "content": f"Answer {number}: " + f"ship {number} of the line, " * 25})
    return {"model": "m", "messages": messages[:-1]}


async def ask(client: Any, proxy: Proxy, turns: int, dialect: Any = CHAT) -> None:
    path, convert = dialect
    response, _ = await post(client, proxy.url + path, convert(talk(turns)))
    assert response.status == 200
    await settle(proxy)


async def play(client: Any, proxy: Proxy, upstream: Any, clock: Clock, dialect: Any = CHAT) -> int | None:
    """Send the conversation until a summary is asked for. Returns the number of turns by then."""
    for turns in range(1, TURNS):
        clock.now += 10
        await ask(client, proxy, turns, dialect)
        if upstream.summaries:
            return turns
    return None


def call_a_tool(upstream: Any, *, is_stream: bool) -> None:
    """Let the upstream answer each request with a tool call, which comes in small chunks if it is streamed."""
    plain = upstream.answer
    function = {"name": "look", "arguments": "{}"}
    call = {"index": 0, "id": "call_1", "type": "function", "function": function}
    message = {"role": "assistant", "content": "I look.", "tool_calls": [call]}

    async def answer(recorded: Any, request: web.BaseRequest) -> web.StreamResponse:
        if recorded.asks_for_summary:
            return await plain(recorded, request)
        if not is_stream:
            choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
            return web.Response(body=orjson.dumps({"choices": [choice]}), content_type="application/json")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        event = b"data: " + orjson.dumps({"choices": [{"index": 0, "delta": message}]}) + b"\n\n"
        for at in range(0, len(event), 9):
            await response.write(event[at : at + 9])
        await response.write(b"data: [DONE]\n\n")
        return response

    upstream.answer = answer


@each_dialect
async def test_a_silence_after_it_finds_the_summary(dialect, client, upstream, serve, log) -> None:
    """The next request is cut at once, although nothing could be pruned."""
    clock = Clock()
    async with serve(clock=clock) as proxy:
        turns = await play(client, proxy, upstream, clock, dialect)
        assert turns is not None
        uncut = len(upstream.chats[-1].body)
        clock.now += 412
        await ask(client, proxy, turns + 1, dialect)
        assert len(upstream.chats[-1].body) < uncut
        assert b"SUMMARY of the work so far." in upstream.chats[-1].body
        assert upstream.requests.index(upstream.summaries[0]) < upstream.requests.index(upstream.chats[-1])
        await ask(client, proxy, turns + 2, dialect)
        assert b"SUMMARY of the work so far." in upstream.chats[-1].body
    lines = [line for line in log.lines if "decisions" in line]
    rules = [{told["rule"] for told in line["decisions"]} for line in lines]
    assert [at for at, names in enumerate(rules) if "cold_cache" in names] == [turns]
    assert lines[turns]["idle_seconds"] == 412
    assert "idle_seconds" not in lines[0]


async def test_one_summary_serves_several_turns(client, upstream, serve) -> None:
    """While the session goes on without a silence, another one is written only for a cut that would free much more."""
    clock = Clock()
    async with serve(clock=clock) as proxy:
        turns = await play(client, proxy, upstream, clock)
        assert turns is not None
        for later in range(turns + 1, turns + 4):
            await ask(client, proxy, later)
        assert len(upstream.summaries) == 1
        clock.now += 412
        await ask(client, proxy, turns + 4)
    assert b"SUMMARY of the work so far." in upstream.chats[-1].body


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
async def test_after_a_tool_call_none_is_written(is_stream, client, upstream, serve) -> None:
    """The client goes on at once then."""
    clock = Clock()
    async with serve(clock=clock) as proxy:
        first = await play(client, proxy, upstream, clock)
        assert first is not None
        upstream.requests.clear()
    call_a_tool(upstream, is_stream=is_stream)
    async with serve(clock=clock) as proxy:
        for turns in range(1, first + 5):
            await ask(client, proxy, turns)
    assert not upstream.summaries


NOT_PAYING = (
    "store=memory",
    "upstream.cache=off",
    "upstream.cache_seconds=0",
    "upstream.cache_seconds=auto",
    "upstream.cache_seconds=86400000",
    "mode=observe",
    "prices={input: 1, cached_input: 0.01, output: 40}",
)


async def test_what_cannot_be_expected_to_pay_is_not_written(client, upstream, serve) -> None:
    """Without a store, if it is off, on a server of one's own, if the cache lives long, or if summaries are dear."""
    clock = Clock()
    async with serve(clock=clock) as proxy:
        first = await play(client, proxy, upstream, clock)
        assert first is not None
        upstream.requests.clear()
    for setting in NOT_PAYING:
        async with serve(setting, clock=clock) as proxy:
            for turns in range(1, first + 5):
                await ask(client, proxy, turns)
        assert not upstream.summaries, setting
