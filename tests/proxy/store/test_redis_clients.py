"""One server, sentinels and a cluster, all real, and what happens if a server goes away."""

import asyncio

import pytest
import redis
from programs import redis_server
from programs.redis_groups import run_cluster, run_watched

from trimtab.proxy.store import redis_clients
from trimtab.proxy.store.redis import RedisStore
from trimtab.proxy.store.redis_clients import MAX_CONNECTIONS, make_client
from trimtab.proxy.store.store import StoreError

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
    """It still has what the old master had replicated."""
    with run_watched() as watched:
        store = RedisStore(watched.url, ttl_seconds=1000)
        await store.put("before", b"sealed")
        with redis.Redis(port=watched.master.port) as client:
            assert client.wait(1, 5000) == 1
        await asyncio.to_thread(watched.master.stop)
        await put_until_kept(store, "after")

        with redis.Redis(port=watched.replica.port) as client:
            assert client.keys("*after*") == [b"trimtab:1:summary:{after}"]
        assert await store.get("before") == b"sealed"
        await store.close()


async def test_a_service_that_no_sentinel_knows_is_an_error_of_the_store(watched) -> None:
    """The message is trimtab's own."""
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


@needs_redis
async def test_a_node_that_was_restarted_is_used_again() -> None:
    """Its connections are broken, so a command that used one is sent once more."""
    with run_cluster() as cluster:
        store = RedisStore(cluster.url, ttl_seconds=1000)
        for number in range(8):
            await store.put(f"id{number}", b"sealed")
        await asyncio.to_thread(cluster.nodes[1].stop)
        await asyncio.to_thread(cluster.nodes[1].start)
        for number in range(8):
            await put_until_kept(store, f"other{number}")
        await store.close()


async def test_a_cluster_that_is_not_there_is_an_error_of_the_store() -> None:
    """The message is trimtab's own."""
    store = RedisStore("redis+cluster://:planted@127.0.0.1:1", ttl_seconds=1000)
    with pytest.raises(StoreError, match=r"^the redis store failed: the cluster cannot be reached") as caught:
        await store.get("id")
    assert "planted" not in str(caught.value)
    await store.close()


@pytest.mark.parametrize("kind", ["redis_at", "watched", "cluster"])
async def test_who_finds_no_connection_free_waits(kind, request, monkeypatch) -> None:
    """Many callers at once are no fault of the store."""
    monkeypatch.setattr(redis_clients, "OPERATION_SECONDS", WAIT_SECONDS)
    store = RedisStore(request.getfixturevalue(kind).url, ttl_seconds=1000)
    puts = (store.put(f"id{number}", b"sealed") for number in range(4 * MAX_CONNECTIONS))
    assert set(await asyncio.gather(*puts)) == {b"sealed"}
    await store.close()


@pytest.mark.parametrize("kind", ["redis://h", "redis+sentinel://h/s", "redis+cluster://h"])
def test_an_option_that_there_is_not_is_refused_at_the_start(kind) -> None:
    """It is refused before the store is first used."""
    with pytest.raises((ValueError, TypeError)):
        make_client(f"{kind}?planted=planted")
