"""Three replicas behind a real nginx without stickiness: one is killed.

Law: only the streams that were open on the killed replica fail. Its requests without a byte of a response are sent to
another one.
"""

import asyncio
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from programs.front_proxies import PROGRAMS
from programs.replica_group import run_replicas
from support.client import CHAT, post
from upstreams.recording import completion, event

REPLICAS = 3
EACH = 2 * REPLICAS
"""Streams, and other requests: two on each replica."""
WAIT_SECONDS = 30.0


@pytest.mark.skipif(PROGRAMS["nginx"] is None, reason="nginx is not on PATH")
async def test_a_killed_replica_takes_only_its_open_streams_along(upstream) -> None:
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

    upstream.answer = hold
    async with (
        run_replicas(REPLICAS, "--upstream", upstream.url, "--set", "store=memory") as group,
        aiohttp.ClientSession() as client,
        asyncio.TaskGroup() as asking,
    ):
        url, dead = f"{group.url}/chat/completions", group.replicas[0]
        streams = [await client.post(url, json=CHAT | {"stream": True}) for _ in range(EACH)]
        waiting = [asking.create_task(post(client, url, CHAT)) for _ in range(EACH)]
        for _ in range(2 * EACH):
            await asyncio.wait_for(arrived.acquire(), WAIT_SECONDS)
        dead.process.kill()
        await dead.process.wait()
        for _ in range(EACH // REPLICAS):  # nginx repeats the requests of the killed replica on another one
            await asyncio.wait_for(arrived.acquire(), WAIT_SECONDS)
        release.set()

        served = [response.headers["X-Served-By"] for response in streams]
        ends = [await _read_end(response) for response in streams]
        answers = await asyncio.gather(*waiting)
    assert served.count(dead.address) == EACH // REPLICAS
    assert ends == ["broken" if address == dead.address else "whole" for address in served]
    assert [response.status for response, _ in answers] == [200] * EACH


async def _read_end(response: aiohttp.ClientResponse) -> str:
    """How a stream ends: `whole`, `broken` if the client sees an error, else `faked`."""
    try:
        text = await response.read()
    except aiohttp.ClientPayloadError:
        return "broken"
    return "whole" if text.endswith(b"[DONE]\n\n") else "faked"
