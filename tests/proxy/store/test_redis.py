"""Summaries on a real Redis server."""

import asyncio
import gc
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis
from programs.redis_server import PROGRAM, run_redis

from trimtab.proxy.store.redis import RedisStore
from trimtab.proxy.store.store import StoreError

TTL_SECONDS = 1000.0


async def test_keys_are_namespaced_and_end_by_themselves(redis_at) -> None:
    """None of our keys stays forever."""
    async with _open(redis_at.url) as store:
        await store.put("id", b"sealed")
        await store.claim("id", 60)

    with redis.Redis(port=redis_at.port) as client:
        seconds = {key: client.ttl(key) for key in client.scan_iter()}
    assert seconds == {
        b"trimtab:1:summary:{id}": pytest.approx(TTL_SECONDS, abs=10),
        b"trimtab:1:lease:{id}": pytest.approx(60, abs=10),
    }


async def test_valkey_urls_are_redis_urls(redis_at) -> None:
    """The protocol is the same."""
    async with _open(f"valkey://127.0.0.1:{redis_at.port}") as store:
        assert await store.put("id", b"sealed") == b"sealed"


async def test_a_server_that_is_not_there_is_an_error_of_the_store(own_redis) -> None:
    """The error has its type, and no part of the URL."""
    own_redis.stop()
    url = f"redis://user:planted-password@127.0.0.1:{own_redis.port}/0"
    async with _open(url) as store:
        leases = (store.claim("id", 1), store.renew("id", 1, 1), store.release("id", 1))
        for operation in (store.get("id"), store.put("id", b""), *leases):
            with pytest.raises(StoreError) as caught:
                await operation
            assert str(caught.value) == "the redis store failed: the server cannot be reached"


@pytest.mark.skipif(PROGRAM is None, reason="redis-server is not on PATH")
async def test_a_wrong_password_is_an_error_of_the_store_that_does_not_tell_it() -> None:
    """The server's own text is not repeated."""
    with run_redis("--requirepass", "right-password") as server:
        url = f"redis://:planted-password@127.0.0.1:{server.port}/0"
        async with _open(url) as store:
            with pytest.raises(
                StoreError, match=r"^the redis store failed: the server refuses the user name or the password$"
            ):
                await store.get("id")


async def test_a_server_that_is_silent_is_an_error_of_the_store(own_redis) -> None:
    """The caller does not wait for it. The server is used again as soon as it answers."""
    async with _open(f"{own_redis.url}?socket_timeout=0.3") as store:
        await store.put("id", b"sealed")
        with own_redis.frozen(), pytest.raises(StoreError, match="the server does not answer in time"):
            await store.get("id")

        assert await store.get("id") == b"sealed"


async def test_a_server_that_was_restarted_is_used_again(own_redis) -> None:
    """It has lost its earlier data."""
    async with _open(own_redis.url) as store:
        await store.put("id", b"old")
        await asyncio.to_thread(own_redis.stop)
        await asyncio.to_thread(own_redis.start)

        assert await store.put("id", b"new") == b"new"


async def test_a_caller_that_leaves_does_not_mix_up_the_answers(own_redis) -> None:
    """A late answer of the server reaches no other caller."""
    async with _open(own_redis.url) as store:
        for name in "ab":
            await store.put(name, name.encode())
        with own_redis.frozen():
            await _begin_and_leave(store.get("a"))

        assert await store.get("b") == b"b"


async def test_what_a_caller_that_leaves_has_begun_is_ended(redis_at) -> None:
    """The law holds even if the store is closed at once."""
    async with _open(redis_at.url) as store:
        await _begin_and_leave(store.put("id", b"sealed"))

    async with _open(redis_at.url) as store:
        assert await store.get("id") == b"sealed"


async def test_an_error_that_nobody_waits_for_is_nobodys(own_redis) -> None:
    """Asyncio does not report it as never retrieved."""
    reports: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.append(report))
    own_redis.stop()
    async with _open(own_redis.url) as store:
        await _begin_and_leave(store.get("id"))
        await store._tasks.settle()
        gc.collect()

    assert reports == []


async def test_a_server_that_may_not_be_written_is_an_error_of_the_store(own_redis) -> None:
    """The server is full, read-only or forbidden."""
    async with _open(own_redis.url) as store:
        with redis.Redis(port=own_redis.port) as client:
            client.config_set("maxmemory", 1)
        with pytest.raises(StoreError, match="the server's memory is full"):
            await store.put("id", b"sealed")


@asynccontextmanager
async def _open(url: str) -> AsyncIterator[RedisStore]:
    store = RedisStore(url, ttl_seconds=TTL_SECONDS)
    try:
        yield store
    finally:
        await store.close()


async def _begin_and_leave(operation: Coroutine[Any, Any, object]) -> None:
    task = asyncio.get_running_loop().create_task(operation)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
