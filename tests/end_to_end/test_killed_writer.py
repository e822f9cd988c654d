"""Two processes share a SQLite file. If one is killed while it asks for a summary, the other does not wait long."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import aiohttp
from programs.serving import serving
from support.client import SMALL, post
from support.sessions import make_session
from upstreams.recording import hold_summaries

BODY = {"model": "m", "messages": make_session(36, result_words=200)["messages"][:-1]}
SETTINGS = (*SMALL, "defaults.overflow_strategy=summarize", "defaults.summary.max_tokens=300")
WAIT_SECONDS = 30.0
"""Less than the default summary timeout of 60 seconds: a process that waited for it would fail the test."""


async def test_a_summary_of_a_process_that_was_killed_is_asked_for_once_more(upstream, client, tmp_path) -> None:
    """The killed process renewed its lease while it lived. The other process asks as soon as the lease has expired."""
    file = tmp_path / "summaries.sqlite3"
    settings = [word for each in (*SETTINGS, f"store=sqlite:///{file}") for word in ("--set", each)]
    hold = hold_summaries(upstream)
    async with (
        serving("--upstream", upstream.url, *settings) as (process, url),
        serving("--upstream", upstream.url, *settings) as (_, other_url),
    ):
        dying = asyncio.ensure_future(post(client, url + "/chat/completions", BODY))
        await wait_until(lambda: len(upstream.summaries) == 1)
        granted = read_lease(file)
        waiting = asyncio.ensure_future(post(client, other_url + "/chat/completions", BODY))
        await wait_until(lambda: read_lease(file)[1] > granted[1])
        assert read_lease(file)[0] == granted[0]
        assert len(upstream.summaries) == 1

        process.kill()
        (ended,) = await asyncio.gather(dying, return_exceptions=True)
        await wait_until(lambda: len(upstream.summaries) > 1)
        hold.set()
        response, _ = await asyncio.wait_for(waiting, WAIT_SECONDS)
    assert isinstance(ended, aiohttp.ClientError)
    assert response.status == 200
    assert response.headers["x-trimtab-decisions"].startswith("summarise;")
    assert len(upstream.summaries) == 2
    assert len(upstream.chats) == 1


def read_lease(file: Path) -> tuple[int, float]:
    """The number of the only lease, and the time at which it expires."""
    with closing(sqlite3.connect(file)) as connection:
        (found,) = connection.execute("SELECT number, expires_at FROM leases").fetchall()
    return found


async def wait_until(is_so) -> None:
    """Wait until `is_so()` is true. Raises TimeoutError."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not is_so():  # noqa: ASYNC110 - what other processes do sets no event
            await asyncio.sleep(0.02)
