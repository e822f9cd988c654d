"""A session that was silent for longer than the upstream's cache lives is cut at once, over real sockets.

Law: the cut is kept and replayed, after a restart and by another replica. A lost store costs one cache break. Nothing
of it reaches another client.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from typing import Any

import orjson
import pytest
from aiohttp import web
from programs.redis_server import PROGRAM, run_redis
from support.client import SMALL, post, settle
from support.dialects.to_messages import to_messages
from support.dialects.to_responses import to_responses
from support.sessions import make_session, requests_of

from trimtab.proxy.server.app import Proxy

SETTINGS = (*SMALL, "defaults.summary.max_tokens=300", "upstream.cache_seconds=300")
STEPS = 40
SILENT_AT = 20
"""Index of the first request after the silence. By then the session has passed the mark of cold cuts."""
SILENCE_SECONDS = 412.0
CHAT = "/v1/chat/completions"
CODEX = "You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff summary for another LLM."
needs_redis = pytest.mark.skipif(PROGRAM is None, reason="redis-server is not on PATH")
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
def serve(serve: Run, clock: Clock) -> Run:
    """A function that runs a proxy with the test's clock while a block runs."""

    @asynccontextmanager
    async def run(*settings: str) -> AsyncIterator[Proxy]:
        async with serve(*settings) as proxy:
            proxy.services.cold_cuts.clock = clock
            yield proxy

    return run


def bodies() -> list[dict[str, Any]]:
    session = make_session(STEPS, result_words=200)
    return [{"model": "m", "messages": messages, "tools": session["tools"]} for messages in requests_of(session)]


async def ask(client: Any, proxy: Proxy, body: Any, path: str = CHAT, **headers: str) -> None:
    response, _ = await post(client, proxy.url + path, body, **headers)
    assert response.status == 200
    await settle(proxy)


async def play(
    client: Any, clock: Clock, choose: Callable[[int], Awaitable[Proxy]], *, silent_at: int = SILENT_AT
) -> None:
    """Send the session, a request every ten seconds, with one silence."""
    for number, body in enumerate(bodies()):
        clock.now += SILENCE_SECONDS if number == silent_at else 10
        await ask(client, await choose(number), body)


def take(upstream: Any) -> list[bytes]:
    """What was forwarded since the last call."""
    sent = [recorded.body for recorded in upstream.chats]
    upstream.requests.clear()
    return sent


async def play_alone(client: Any, clock: Clock, upstream: Any, serve: Run, store: str, **more: int) -> list[bytes]:
    async with serve(store) as proxy:

        async def same(_: int) -> Proxy:
            return proxy

        await play(client, clock, same, **more)
    return take(upstream)


def find_moves(upstream_bodies: list[bytes]) -> list[int]:
    """The indexes of the requests whose messages do not begin with those of the one before."""
    bodies_ = [orjson.loads(body) for body in upstream_bodies]
    prompts = [body.get("messages") or body["input"] for body in bodies_]
    return [at for at, (old, new) in enumerate(pairwise(prompts), 1) if new[: len(old)] != old]


async def test_a_silence_moves_the_cut_to_where_it_costs_nothing(client, upstream, serve, clock, log, tmp_path) -> None:
    """The request after it is shorter than without; the next one begins with it; the log says why."""
    store = f"store=sqlite:///{tmp_path}/a.sqlite3"
    busy = await play_alone(client, clock, upstream, serve, store, silent_at=-1)
    silent = await play_alone(client, clock, upstream, serve, f"store=sqlite:///{tmp_path}/b.sqlite3")
    assert busy[:SILENT_AT] == silent[:SILENT_AT]
    assert len(silent[SILENT_AT]) < len(busy[SILENT_AT])
    assert SILENT_AT in find_moves(silent)
    assert SILENT_AT not in find_moves(busy)
    assert SILENT_AT + 1 not in find_moves(silent)
    assert find_cold(log) == [SILENT_AT]


def find_cold(log: Any) -> Any:
    """The indexes of the requests of which the log says that the cache was cold."""
    lines = [line for line in log.lines if "decisions" in line]
    return [
        at % len(bodies())
        for at, line in enumerate(lines)
        if "cold_cache" in {told["rule"] for told in line["decisions"]}
    ]


async def test_a_restart_at_each_request_changes_no_byte(client, upstream, serve, clock, tmp_path) -> None:
    """Neither the time of the last request nor the cut is only in the memory of the process."""
    alone = await play_alone(client, clock, upstream, serve, f"store=sqlite:///{tmp_path}/alone.sqlite3")
    async with AsyncExitStack() as stack:
        store = f"store=sqlite:///{tmp_path}/shared.sqlite3"
        opened: list[AsyncExitStack] = []

        async def restart(_: int) -> Proxy:
            for old in opened:
                await old.aclose()
            opened[:] = [await stack.enter_async_context(AsyncExitStack())]
            return await opened[0].enter_async_context(serve(store))

        await play(client, clock, restart)
    assert take(upstream) == alone


@needs_redis
async def test_two_replicas_in_turn_forward_what_one_does(client, upstream, serve, clock, tmp_path) -> None:
    """Each knows when the other answered, and replays the cut that the other made."""
    alone = await play_alone(client, clock, upstream, serve, f"store=sqlite:///{tmp_path}/alone.sqlite3")
    async with AsyncExitStack() as stack:
        server = stack.enter_context(run_redis())
        store = f"store={server.url}"
        replicas = [await stack.enter_async_context(serve(store)) for _ in range(2)]

        async def alternate(number: int) -> Proxy:
            return replicas[number % 2]

        await play(client, clock, alternate)
    assert take(upstream) == alone


async def test_a_lost_store_costs_one_break(client, upstream, serve, clock, tmp_path) -> None:
    """From then on, the session is forwarded as if its cache had never been cold."""
    busy = await play_alone(client, clock, upstream, serve, f"store=sqlite:///{tmp_path}/a.sqlite3", silent_at=-1)
    async with (
        serve(f"store=sqlite:///{tmp_path}/old.sqlite3") as old,
        serve(f"store=sqlite:///{tmp_path}/new.sqlite3") as new,
    ):

        async def lose(number: int) -> Proxy:
            return old if number < SILENT_AT + 2 else new

        await play(client, clock, lose)
    lost_at, moves = SILENT_AT + 2, find_moves(take(upstream))
    assert moves == [SILENT_AT, lost_at, *(at for at in find_moves(busy) if at > lost_at)]


ASKS = ("defaults.overflow_strategy=summarize", "prices.output=0.1")
"""No cut without a summary, and summaries cost next to nothing."""


async def test_a_cut_that_pays_for_its_summary_waits_for_it(client, upstream, serve, clock, log, tmp_path) -> None:
    """The model gets the cut part as one text, once, before the request; a replica replays the cut."""
    store = f"store=sqlite:///{tmp_path}/a.sqlite3"
    async with serve(store, *ASKS) as first, serve(store, *ASKS) as second:

        async def change(number: int) -> Proxy:
            return first if number <= SILENT_AT else second

        await play(client, clock, change)
    at = next(at for at, recorded in enumerate(upstream.requests) if recorded is upstream.chats[SILENT_AT])
    assert upstream.requests[at - 1].asks_for_summary
    system, question = orjson.loads(upstream.requests[at - 1].body)["messages"]
    assert system == bodies()[0]["messages"][0]
    assert question["role"] == "user"
    assert "word0x0 " in question["content"]
    assert find_cold(log) == [SILENT_AT]
    moves = find_moves(take(upstream))
    assert SILENT_AT in moves
    assert SILENT_AT + 1 not in moves


async def test_if_no_model_writes_the_summary_nothing_is_cut(client, upstream, serve, clock, log, tmp_path) -> None:
    """No digest is made for a cold cache, and the request goes out as it would have."""
    plain = upstream.answer

    async def fail(recorded: Any, request: Any) -> Any:
        return web.Response(status=500) if recorded.asks_for_summary else await plain(recorded, request)

    upstream.answer = fail
    async with serve(f"store=sqlite:///{tmp_path}/a.sqlite3", *ASKS) as proxy:
        for number, body in enumerate(bodies()[: SILENT_AT + 1]):
            clock.now += SILENCE_SECONDS if number == SILENT_AT else 10
            await ask(client, proxy, body)
    assert upstream.summaries
    assert find_cold(log) == []
    assert SILENT_AT not in find_moves(take(upstream))


async def test_another_client_with_the_same_transcript_sees_nothing_of_it(
    client, upstream, serve, clock, tmp_path
) -> None:
    """Its requests are forwarded as if the first client did not exist."""
    busy = await play_alone(client, clock, upstream, serve, f"store=sqlite:///{tmp_path}/a.sqlite3", silent_at=-1)
    async with serve(f"store=sqlite:///{tmp_path}/b.sqlite3") as proxy:
        for number, body in enumerate(bodies()):
            clock.now += SILENCE_SECONDS if number == SILENT_AT else 10
            await ask(client, proxy, body)
            clock.now -= SILENCE_SECONDS - 10 if number == SILENT_AT else 0
            await ask(client, proxy, body, Authorization="Bearer sk-other")
            clock.now += SILENCE_SECONDS - 10 if number == SILENT_AT else 0
    others = [recorded.body for recorded in upstream.chats if recorded.header("authorization") == ["Bearer sk-other"]]
    assert others[: SILENT_AT + 1] == busy[: SILENT_AT + 1]


@pytest.mark.parametrize(
    "dialect", [("/v1/messages", to_messages), ("/v1/responses", to_responses)], ids=["messages", "responses"]
)
async def test_each_dialect_is_cut_and_replays_it(dialect, client, upstream, serve, clock, tmp_path) -> None:
    """The request after the silence moves the cut, and those behind it begin with it, in a new process, too."""
    (path, convert), store = dialect, f"store=sqlite:///{tmp_path}/a.sqlite3"
    async with serve(store) as first, serve(store) as second:
        for number, body in enumerate(bodies()[: SILENT_AT + 4]):
            clock.now += SILENCE_SECONDS if number == SILENT_AT else 10
            converted = convert(body)
            await ask(client, first if number <= SILENT_AT else second, converted, path)
    moves = find_moves(take(upstream))
    assert SILENT_AT in moves
    assert max(moves) == SILENT_AT


async def test_a_clients_own_compaction_is_not_cut(client, upstream, serve, clock, log, tmp_path) -> None:
    """Its request is to read everything. The next request of the session after a silence is cut."""
    async with serve(f"store=sqlite:///{tmp_path}/a.sqlite3") as proxy:
        for body in bodies()[:SILENT_AT]:
            clock.now += 10
            await ask(client, proxy, body)
        clock.now += SILENCE_SECONDS
        body = bodies()[SILENT_AT]
        words = {"role": "user", "content": CODEX}
        await ask(client, proxy, {**body, "messages": [*body["messages"], words]})
        await proxy.services.lifecycle.idle.wait()
        assert log.lines[-1].get("compaction") == "client"
        assert not find_cold(log)
        await ask(client, proxy, body)
    assert len(find_cold(log)) == 1


async def test_counting_tokens_replays_a_cold_cut_and_makes_none(client, upstream, serve, clock, log, tmp_path) -> None:
    """It tells the size of what would be forwarded, and changes nothing of the session."""
    path, more = "/v1/messages", {"max_tokens": 1000}  # reserves about as much as for the chat completions above
    async with serve(f"store=sqlite:///{tmp_path}/a.sqlite3") as proxy:
        for body in bodies()[:SILENT_AT]:
            clock.now += 10
            await ask(client, proxy, to_messages(body) | more, path)
        clock.now += SILENCE_SECONDS
        body = to_messages(bodies()[SILENT_AT]) | more
        lengths = []
        for asked in (f"{path}/count_tokens", path, f"{path}/count_tokens"):
            await ask(client, proxy, body, asked)
            await proxy.services.lifecycle.idle.wait()  # the log line is written then
            lengths.append(len(orjson.dumps(orjson.loads(upstream.chats[-1].body)["messages"])))
            assert len(find_cold(log)) == (len(lengths) > 1)
    assert lengths[1] == lengths[2] < lengths[0]
