"""Summaries on a real Redis server."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis
from programs import redis_server
from programs.redis_groups import run_watched
from programs.redis_server import PROGRAM, run_redis
from redis.asyncio import RedisCluster

from trimtab.proxy.store import redis as store_module
from trimtab.proxy.store.redis import MAX_CONNECTIONS, RedisStore, make_client
from trimtab.proxy.store.store import StoreError

TTL_SECONDS = 1000.0


async def test_keys_are_namespaced_and_end_by_themselves(redis_at) -> None:
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
    with run_redis("--requirepass", "right-password") as server:
        url = f"redis://:planted-password@127.0.0.1:{server.port}/0"
        async with _open(url) as store:
            with pytest.raises(
                StoreError, match=r"^the redis store failed: the server refuses the user name or the password$"
            ):
                await store.get("id")


async def test_a_server_that_is_silent_is_an_error_of_the_store(own_redis) -> None:
    """The caller does not wait for it. The server is used again as soon as it answers."""
    async with _open(f"{own_redis.url}?socket_timeout=3") as store:
        await store.put("id", b"sealed")
        with own_redis.frozen(), pytest.raises(StoreError, match="the server does not answer in time"):
            await store.get("id")

        assert await store.get("id") == b"sealed"


async def test_a_server_that_was_restarted_is_used_again(own_redis) -> None:
    async with _open(own_redis.url) as store:
        await store.put("id", b"old")
        await asyncio.to_thread(own_redis.stop)
        await asyncio.to_thread(own_redis.start)

        assert await store.put("id", b"new") == b"new"


async def test_a_caller_that_leaves_does_not_mix_up_the_answers(own_redis) -> None:
    async with _open(own_redis.url) as store:
        for name in "ab":
            await store.put(name, name.encode())
        with own_redis.frozen():
            await _begin_and_leave(store.get("a"))

        assert await store.get("b") == b"b"


async def test_what_a_caller_that_leaves_has_begun_is_ended(redis_at) -> None:
    async with _open(redis_at.url) as store:
        await _begin_and_leave(store.put("id", b"sealed"))

    async with _open(redis_at.url) as store:
        assert await store.get("id") == b"sealed"


async def test_a_server_that_may_not_be_written_is_an_error_of_the_store(own_redis) -> None:
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


WAIT_SECONDS = 30.0
needs_redis = pytest.mark.skipif(redis_server.PROGRAM is None, reason="redis-server is not on PATH")


async def put_until_kept(store: RedisStore, summary_id: str) -> None:
    """Repeat a write, as the layered store does, until the servers have recovered."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            try:
                assert await store.put(summary_id, b"sealed") == b"sealed"
            except StoreError:
                await asyncio.sleep(0.05)
            else:
                return


@needs_redis
async def test_the_replica_that_sentinels_make_the_master_is_used() -> None:
    with run_watched() as watched:
        store = RedisStore(watched.url, ttl_seconds=1000)
        await store.put("before", b"sealed")
        with redis.Redis(port=watched.master.port) as client:
            assert client.wait(1, 30_000) == 1
        await asyncio.to_thread(watched.master.stop)
        watched.miss_master_after(300)
        await put_until_kept(store, "after")

        with redis.Redis(port=watched.replica.port) as client:
            assert client.keys("*after*") == [b"trimtab:1:summary:{after}"]
        assert await store.get("before") == b"sealed"
        await store.close()


async def test_a_service_that_no_sentinel_knows_is_an_error_of_the_store(watched) -> None:
    store = RedisStore(watched.url.replace("/kept", "/other"), ttl_seconds=1000)
    with pytest.raises(StoreError, match="no reachable sentinel knows a master of this service"):
        await store.get("id")
    await store.close()


async def test_each_node_of_a_cluster_has_its_share(cluster) -> None:
    """A summary and its lease are on one node. Summaries are on all nodes."""
    store = RedisStore(cluster.url, ttl_seconds=1000)
    for number in range(40):
        lease = await store.claim(f"id{number}", 60)
        assert await store.put(f"id{number}", b"sealed", lease) == b"sealed"
    await store.close()

    for node in cluster.nodes:
        with redis.Redis(port=node.port, decode_responses=True) as client:
            keys = client.keys()
        names = {kind: {key.rpartition(":")[2] for key in keys if f":{kind}:" in key} for kind in ("summary", "lease")}
        assert names["summary"] == names["lease"] != set()


async def test_a_node_that_has_closed_its_connections_is_asked_again_at_once(cluster) -> None:
    """As one that was restarted."""
    async with _open(cluster.url) as store:
        for name in ("before", "after"):
            for number in range(8):
                assert await store.put(f"{name}{number}", b"sealed") == b"sealed"
            for node in cluster.nodes:
                with redis.Redis(port=node.port) as client:
                    client.execute_command("CLIENT KILL TYPE normal SKIPME yes")


async def test_a_command_of_a_cluster_waits_for_its_turn_in_bounds_and_gives_it_back_if_it_fails(monkeypatch) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise redis.ConnectionError

    monkeypatch.setattr(RedisCluster, "execute_command", refuse)
    monkeypatch.setattr(store_module, "OPERATION_SECONDS", 0.05)
    store = RedisStore("redis+cluster://h", ttl_seconds=1000)
    for _ in range(2):
        with pytest.raises(StoreError, match="the server cannot be reached"):
            await store.get("id")
    await store.commands._turn.acquire()
    with pytest.raises(StoreError):
        async with asyncio.timeout(WAIT_SECONDS):
            await store.get("id")


async def test_a_cluster_that_is_not_there_is_an_error_of_the_store() -> None:
    store = RedisStore("redis+cluster://:planted@127.0.0.1:1", ttl_seconds=1000)
    with pytest.raises(StoreError, match=r"^the redis store failed: the cluster cannot be reached") as caught:
        await store.get("id")
    assert "planted" not in str(caught.value)
    await store.close()


@pytest.mark.parametrize("kind", ["redis_at", "cluster"])
async def test_who_finds_no_connection_free_waits(kind, request) -> None:
    store = RedisStore(request.getfixturevalue(kind).url, ttl_seconds=1000)
    puts = (store.put(f"id{number}", b"sealed") for number in range(4 * MAX_CONNECTIONS))
    assert set(await asyncio.gather(*puts)) == {b"sealed"}
    await store.close()


@pytest.mark.parametrize("kind", ["redis://h", "redis+sentinel://h/s", "redis+cluster://h"])
def test_an_option_that_there_is_not_is_refused_at_the_start(kind) -> None:
    with pytest.raises((ValueError, TypeError)):
        make_client(f"{kind}?planted=planted")
