"""A session that was silent for longer than the upstream's cache lives is cut at once, over real sockets.

Law: the cut is kept and replayed, after a restart and by another replica. A lost store costs one cache break. Nothing
of it reaches another client. A summary for such a cut is written ahead, while the cache is still warm, but only after
an answer that calls no tool.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from typing import Any

import orjson
import pytest
from aiohttp import web
from support.client import SMALL, post, settle
from support.dialects.spoken.all_dialects import CHAT, MESSAGES, each_dialect
from support.dialects.spoken.dialect import Dialect
from support.sessions import make_session, requests_of

from trimtab.proxy.server.app import Proxy

SETTINGS = (*SMALL, "defaults.summary.max_tokens=300", "upstream.cache_seconds=300")
STEPS = 32
SILENT_AT = 20
"""Index of the first request after the silence. By then the session has passed the mark of cold cuts."""
SILENCE_SECONDS = 412.0
NOTE = b"SUMMARY of the work so far."
Run = Callable[..., Any]


class Clock:
    """A clock that only the test moves; all proxies of a test have it."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def serve(serve: Run, clock: Clock, tmp_path: Any) -> Run:
    """A function that runs a proxy with the test's clock and a store of this name while a block runs."""

    @asynccontextmanager
    async def run(store: str, *settings: str) -> AsyncIterator[Proxy]:
        async with serve(f"store=sqlite:///{tmp_path}/{store}.sqlite3", *settings) as proxy:
            proxy.services.cold_cuts.clock = clock
            yield proxy

    return run


def bodies() -> list[dict[str, Any]]:
    session = make_session(STEPS, result_words=200)
    return [{"model": "m", "messages": messages, "tools": session["tools"]} for messages in requests_of(session)]


async def ask(client: Any, proxy: Proxy, body: Any, path: str = CHAT.path, **headers: str) -> None:
    response, _ = await post(client, proxy.url + path, body, **headers)
    assert response.status == 200
    await settle(proxy)


async def play(client: Any, clock: Clock, choose: Callable[[int], Awaitable[Proxy]], silent_at: int) -> None:
    """Send the session, a request every ten seconds, with one silence."""
    for number, body in enumerate(bodies()):
        clock.now += SILENCE_SECONDS if number == silent_at else 10
        await ask(client, await choose(number), body)


def take(upstream: Any) -> list[bytes]:
    """What was forwarded since the last call."""
    sent = [recorded.body for recorded in upstream.chats]
    upstream.requests.clear()
    return sent


@pytest.fixture
def play_alone(client: Any, clock: Clock, upstream: Any, serve: Run) -> Callable[..., Awaitable[list[bytes]]]:
    """A function that sends the session through one proxy. Returns what was forwarded."""

    async def play_one(silent_at: int = SILENT_AT) -> list[bytes]:
        async with serve(f"alone{silent_at}") as proxy:

            async def same(_: int) -> Proxy:
                return proxy

            await play(client, clock, same, silent_at)
        return take(upstream)

    return play_one


def find_moves(upstream_bodies: list[bytes]) -> list[int]:
    """The indexes of the requests whose messages do not begin with those of the one before."""
    prompts = [orjson.loads(body)["messages"] for body in upstream_bodies]
    return [at for at, (old, new) in enumerate(pairwise(prompts), 1) if new[: len(old)] != old]


def find_cold(log: Any) -> list[int]:
    """The indexes of the requests of which the log says that the cache was cold."""
    lines = [line for line in log.lines if "decisions" in line]
    return [at for at, line in enumerate(lines) if "cold_cache" in {told["rule"] for told in line["decisions"]}]


async def test_a_silence_moves_the_cut_to_where_it_costs_nothing(play_alone, log) -> None:
    """The request after it is shorter than without; the next one begins with it; the log says why."""
    silent, told, busy = await play_alone(), find_cold(log), await play_alone(-1)
    assert busy[:SILENT_AT] == silent[:SILENT_AT]
    assert len(silent[SILENT_AT]) < len(busy[SILENT_AT])
    assert SILENT_AT in find_moves(silent)
    assert SILENT_AT not in find_moves(busy)
    assert SILENT_AT + 1 not in find_moves(silent)
    assert told == [SILENT_AT]


async def test_a_restart_at_each_request_changes_no_byte(play_alone, client, upstream, serve, clock) -> None:
    """Neither the time of the last request nor the cut is only in the memory of the process."""
    alone, opened = await play_alone(), AsyncExitStack()

    async def restart(_: int) -> Proxy:
        await opened.aclose()
        return await opened.enter_async_context(serve("shared"))

    async with opened:
        await play(client, clock, restart, SILENT_AT)
    assert take(upstream) == alone


async def test_another_client_with_the_same_transcript_sees_nothing_of_it(
    play_alone, client, upstream, serve, clock
) -> None:
    """Its requests are forwarded as if the first client did not exist."""
    busy = await play_alone(-1)
    async with serve("both") as proxy:
        for number, body in enumerate(bodies()[: SILENT_AT + 1]):
            more_seconds = SILENCE_SECONDS if number == SILENT_AT else 0
            clock.now += 10 + more_seconds
            await ask(client, proxy, body)
            clock.now -= more_seconds
            await ask(client, proxy, body, Authorization="Bearer sk-other")
    others = [recorded.body for recorded in upstream.chats if recorded.header("authorization") == ["Bearer sk-other"]]
    assert others == busy[: SILENT_AT + 1]


async def test_counting_tokens_replays_a_cold_cut_and_makes_none(client, upstream, serve, clock, log) -> None:
    """It tells the size of what would be forwarded, and changes nothing of the session."""
    asked = [MESSAGES.write(body["messages"], body["tools"], max_tokens=1000) for body in bodies()[: SILENT_AT + 1]]
    lengths = []
    async with serve("a") as proxy:
        for body in asked[:SILENT_AT]:
            clock.now += 10
            await ask(client, proxy, body, MESSAGES.path)
        clock.now += SILENCE_SECONDS
        for more in ("/count_tokens", "", "/count_tokens"):
            await ask(client, proxy, asked[-1], MESSAGES.path + more)
            await proxy.services.lifecycle.idle.wait()  # the log line is written then
            lengths.append(len(orjson.dumps(upstream.chats[-1].json["messages"])))
            assert len(find_cold(log)) == (len(lengths) > 1)
    assert lengths[1] == lengths[2] < lengths[0]


AHEAD = ("prices={input: 1, cached_input: 0.01, output: 0.5}", "defaults.summary.max_tokens=100", "defaults.anchors=0")
"""At these prices a session as short as this one can bear a summary that it may not need."""


def write_chat(turns: int, dialect: Dialect = CHAT) -> dict[str, Any]:
    """The request of a conversation of long texts, without tools: nothing of it can be pruned."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You are a harbour master. " * 200}]
    for number in range(turns):
        messages.append({"role": "user", "content": f"Question {number}. " + "Which ship comes next? " * 3})
        messages.append({"role": "assistant", "content": f"Answer {number}: " + f"ship {number} of the line, " * 25})
    return dialect.write(messages[:-1])


async def play_ahead(client: Any, proxy: Proxy, upstream: Any, dialect: Dialect = CHAT) -> int:
    """Send the conversation until a summary is asked for. Returns the number of turns by then."""
    turns = 0
    while not upstream.summaries:
        turns += 1
        await ask(client, proxy, write_chat(turns, dialect), dialect.path)
    return turns


@each_dialect
async def test_a_silence_after_it_finds_the_summary(dialect, client, upstream, serve, clock, log) -> None:
    """The next request is cut at once, although nothing could be pruned."""
    async with serve("a", *AHEAD) as proxy:
        turns = await play_ahead(client, proxy, upstream, dialect)
        uncut = len(upstream.chats[-1].body)
        clock.now += SILENCE_SECONDS
        for more in (1, 2):
            await ask(client, proxy, write_chat(turns + more, dialect), dialect.path)
            assert len(upstream.chats[-1].body) < uncut
            assert NOTE in upstream.chats[-1].body
    assert len(upstream.summaries) == 1
    assert find_cold(log) == [turns]
    assert [line for line in log.lines if "decisions" in line][turns]["idle_seconds"] == SILENCE_SECONDS


async def test_after_a_tool_call_none_is_written(client, upstream, serve) -> None:
    """The client goes on at once then."""
    async with serve("a", *AHEAD) as proxy:
        first = await play_ahead(client, proxy, upstream)
        upstream.requests.clear()
    plainly = upstream.answer
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    choice = {"index": 0, "message": {"role": "assistant", "tool_calls": [call]}, "finish_reason": "tool_calls"}

    async def answer(recorded: Any, request: web.BaseRequest) -> web.StreamResponse:
        return (
            await plainly(recorded, request) if recorded.asks_for_summary else web.json_response({"choices": [choice]})
        )

    upstream.answer = answer
    async with serve("b", *AHEAD) as proxy:
        for turns in range(1, first + 3):
            await ask(client, proxy, write_chat(turns))
    assert (len(upstream.chats), upstream.summaries) == (first + 2, [])
