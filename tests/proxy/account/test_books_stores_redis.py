"""Statistics on a server."""

import pytest
import redis.asyncio

from trimtab.proxy.account.books import DAY_SECONDS, KEPT_DAYS, Batch, Place, Sums, go_back
from trimtab.proxy.account.books_stores import RedisStatistics, day_key, writer_key
from trimtab.proxy.store.store import StoreError

TODAY = "2026-11-23"


async def test_the_server_forgets_a_day_after_a_year(redis_url) -> None:
    store, old = RedisStatistics(redis_url), go_back(TODAY, KEPT_DAYS)
    await store.add(Batch("w", 1, TODAY, {Place(day, "m", "-"): Sums(1) for day in (TODAY, old)}))
    async with redis.asyncio.Redis.from_url(redis_url) as server:
        assert (await server.ttl(day_key(TODAY))) // DAY_SECONDS in {KEPT_DAYS, KEPT_DAYS + 1}
        assert 0 < await server.ttl(day_key(old)) <= DAY_SECONDS
        assert await server.ttl(writer_key("w")) > 0
    await store.close()


async def test_a_server_that_is_not_there_is_a_fault() -> None:
    store = RedisStatistics("redis://127.0.0.1:9/0")
    with pytest.raises(StoreError, match="redis store failed"):
        await store.add(Batch("w", 1, TODAY, {Place(TODAY, "m", "-"): Sums(1)}))
    await store.close()
