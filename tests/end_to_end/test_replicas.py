"""Three replicas behind a real nginx without stickiness, with a real Redis: one is killed, or Redis is restarted.

Law: only the streams that were open on the killed replica fail. Each summary is requested once, over all replicas.
Forwarded requests are byte-identical, whichever replica serves.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson
import pytest
import redis
from aiohttp import web
from programs.front_proxies import PROGRAMS
from programs.redis_server import PROGRAM, RedisServer, run_redis
from programs.replica_group import ReplicaGroup, run_replicas
from support.client import CHAT, SMALL, post, settle
from support.sessions import make_session, requests_of
from upstreams.recording import FakeUpstream, completion, event, hold_summaries, write_note

REPLICAS = 3
SETTINGS = (*SMALL, "defaults.summary.max_tokens=300")
LEASES = "trimtab:1:lease:*"
WAIT_SECONDS = 30.0
OTHER = "Bearer sk-other"
pytestmark = [
    pytest.mark.skipif(PROGRAMS["nginx"] is None, reason="nginx is not on PATH"),
    pytest.mark.skipif(PROGRAM is None, reason="redis-server is not on PATH"),
]


@dataclass(frozen=True, slots=True)
class Turn:
    """A request of the session, what a single proxy forwarded for it, and the number of summaries requested so far."""

    body: bytes
    forwarded: bytes
    summaries: int


class Stage:
    """The group under test, with its upstream, its store and the client."""

    def __init__(self, group: ReplicaGroup, server: RedisServer, upstream: FakeUpstream, client: Any) -> None:
        self.group = group
        self.server = server
        self.upstream = upstream
        self._client = client
        self._release = hold_summaries(upstream)
        self._release.set()

    async def ask(self, body: bytes, *, copies: int = REPLICAS, credential: str = "Bearer sk-test") -> set[bytes]:
        """Send copies of a body at once, which nginx spreads over the replicas. Returns what the upstream received."""
        before = len(self.upstream.chats)
        url = f"{self.group.url}/chat/completions"
        answers = await asyncio.gather(
            *(post(self._client, url, body, Authorization=credential) for _ in range(copies))
        )
        assert [response.status for response, _ in answers] == [200] * copies
        return {recorded.body for recorded in self.upstream.chats[before:]}

    async def play(self, turns: list[Turn]) -> None:
        """Send each turn after the summaries of the previous one are written. The forwarded bytes must not change.

        No turn waits for the summary that it starts. A copy that comes after that summary is written is forwarded with
        it, so the summary is answered after all copies.
        """
        for turn in turns:
            self._release.clear()
            assert await self.ask(turn.body) == {turn.forwarded}
            self._release.set()
            await wait_until(lambda turn=turn: self._has_summaries(turn.summaries))

    def _has_summaries(self, number: int) -> bool:
        # Count only this session's summaries: another client's must not count for a missing one.
        asked = [recorded for recorded in self.upstream.summaries if recorded.header("authorization") != [OTHER]]
        if len(asked) < number:
            return False
        with redis.Redis(port=self.server.port) as store:
            return not store.keys(LEASES)


async def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait until `is_so()` is true. Raises TimeoutError."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not is_so():  # noqa: ASYNC110 - what other processes do sets no event
            await asyncio.sleep(0.01)


async def answer(recorded: Any, request: web.BaseRequest) -> web.StreamResponse:
    """Answer without usage: replicas would learn from it at other moments than a single proxy."""
    del request
    return completion(write_note("SUMMARY of the work so far.") if recorded.asks_for_summary else "Good.")


@pytest.fixture
async def turns(upstream, start_proxy, client) -> list[Turn]:
    """A session through one proxy with summaries in memory. The upstream's record is cleared afterwards."""
    upstream.answer = answer
    proxy = await start_proxy(*SETTINGS)
    session = make_session(54, result_words=120)  # up to some turns behind the second summary
    found = []
    for messages in requests_of(session):
        body = orjson.dumps({"model": "m", "messages": messages, "tools": session["tools"]})
        response, _ = await post(client, f"{proxy.url}/v1/chat/completions", body)
        assert response.status == 200
        await settle(proxy)
        found.append(Turn(body, upstream.chats[-1].body, len(upstream.summaries)))
    return found


@pytest.fixture
async def stage(turns, upstream, client) -> AsyncIterator[Stage]:
    """Three replicas, and a Redis that keeps its data over a restart."""
    upstream.requests.clear()
    with run_redis("--appendonly", "yes", "--appendfsync", "always") as server:
        arguments = [part for setting in (*SETTINGS, f"store={server.url}") for part in ("--set", setting)]
        async with run_replicas(REPLICAS, "--upstream", upstream.url, *arguments) as group:
            yield Stage(group, server, upstream, client)


def find_quiet_turn(turns: list[Turn]) -> int:
    """The second of four turns in a row that all forward the first summary and start no other one."""
    return next(
        index
        for index in range(1, len(turns) - 2)
        if all(turn.summaries == 1 and b"SUMMARY" in turn.forwarded for turn in turns[index - 1 : index + 3])
    )


async def test_a_killed_replica_takes_only_its_open_streams_along(stage, turns) -> None:
    """Requests on it without a byte of a response are sent to another replica. The session continues unchanged."""
    expected = turns[-1].summaries
    killed_at = find_quiet_turn(turns)
    await stage.play(turns[:killed_at])

    await _kill_one_under_load(stage)
    await stage.play(turns[killed_at:])

    asked = [recorded.body for recorded in stage.upstream.summaries]
    assert expected > 1
    assert len(asked) == len(set(asked)) == expected


async def _kill_one_under_load(stage: Stage) -> None:
    """Kill the first replica while two streams and two requests are open on each."""
    release, arrived = asyncio.Event(), asyncio.Semaphore(0)

    async def hold(recorded: Any, request: web.BaseRequest) -> web.StreamResponse:
        streams = bool(recorded.json.get("stream"))
        if streams:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            await response.write(event("one"))
        arrived.release()
        await release.wait()
        if not streams:
            return completion("late")
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    plain, stage.upstream.answer = stage.upstream.answer, hold
    url, each = f"{stage.group.url}/chat/completions", 2 * REPLICAS
    async with aiohttp.ClientSession() as client, asyncio.TaskGroup() as asking:
        streams = [await client.post(url, json=CHAT | {"stream": True}) for _ in range(each)]
        waiting = [asking.create_task(post(client, url, CHAT)) for _ in range(each)]
        for _ in range(2 * each):
            await asyncio.wait_for(arrived.acquire(), WAIT_SECONDS)
        dead = stage.group.replicas[0]
        dead.process.kill()
        await dead.process.wait()
        for _ in range(each // REPLICAS):  # nginx repeats the requests of the killed replica on another one
            await asyncio.wait_for(arrived.acquire(), WAIT_SECONDS)
        release.set()

        served = [response.headers["X-Served-By"] for response in streams]
        ends = [await _read_end(response) for response in streams]
        answers = await asyncio.gather(*waiting)
    stage.upstream.answer = plain
    assert served.count(dead.address) == each // REPLICAS
    assert ends == ["broken" if address == dead.address else "whole" for address in served]
    assert [response.status for response, _ in answers] == [200] * each


async def _read_end(response: aiohttp.ClientResponse) -> str:
    """How a stream ends: `whole`, `broken` if the client sees an error, else `faked`."""
    try:
        text = await response.read()
    except aiohttp.ClientPayloadError:
        return "broken"
    return "whole" if text.endswith(b"[DONE]\n\n") else "faked"


async def test_a_redis_that_is_restarted_costs_nobody_a_request_or_a_summary(stage, turns) -> None:
    """All replicas find a summary that one replica wrote while Redis was down."""
    expected = turns[-1].summaries
    out_at = find_quiet_turn(turns)
    await stage.play(turns[:out_at])

    stage.server.stop()
    for turn in turns[out_at : out_at + 2]:
        assert await stage.ask(turn.body) == {turn.forwarded}
    alone = await stage.ask(turns[-1].body, copies=1, credential=OTHER)
    stage.server.start()
    await wait_until(lambda: _count(stage.group, "store_reachable") == _count(stage.group, "store_unreachable") > 0)

    await stage.play(turns[out_at + 2 :])
    assert await stage.ask(turns[-1].body, credential=OTHER) == alone
    asked = [(recorded.body, *recorded.header("authorization")) for recorded in stage.upstream.summaries]
    assert len(asked) == len(set(asked))
    assert sum(credential != OTHER for _, credential in asked) == expected > 1


def _count(group: ReplicaGroup, name: str) -> int:
    return sum(replica.count(name) for replica in group.replicas)
