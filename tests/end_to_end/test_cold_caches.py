"""A session that was silent for longer than the upstream's cache lives is cut at once, over real sockets.

Law: the cut is kept and replayed, after a restart and by another replica. A lost store costs one cache break. Nothing
of it reaches another client.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
from programs.redis_server import PROGRAM
from support.client import SMALL, post, settle
from support.sessions import make_session, requests_of

from proxy.config.load import load_config
from proxy.server.app import Proxy, run_proxy

SETTINGS = (*SMALL, "defaults.summary.max_tokens=300", "upstream.cache_seconds=300")
STEPS = 40
SILENT_AT = 20
"""Index of the first request after the silence. By then the session has passed the mark of cold cuts."""
SILENCE_SECONDS = 412.0
CHAT = "/v1/chat/completions"
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
def serve(upstream: Any, compactors: Any, log: Any, clock: Clock) -> Run:
    """A function that runs a proxy with the test's clock while a block runs."""

    @asynccontextmanager
    async def run(*settings: str) -> AsyncIterator[Proxy]:
        base = ("listen=127.0.0.1:0", f"upstream.base_url={upstream.url}", *SETTINGS)
        async with run_proxy(load_config(settings=(*base, *settings), environment={}), log, compactors) as proxy:
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
    import orjson

    prompts = [orjson.loads(body)["messages"] for body in upstream_bodies]
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
    told = [line["decisions"] for line in log.lines if line["event"] == "request"]
    print([d for ds in told for d in ds if d["rule"] == "cold_cache"], find_moves(busy), find_moves(silent))
