"""Every store of statistics."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from trimtab.proxy.account.statistics.books import MemoryStatistics, StatisticsStore
from trimtab.proxy.account.statistics.redis import RedisStatistics
from trimtab.proxy.account.statistics.store import SqliteStatistics


@pytest.fixture(params=["memory", "sqlite", "redis"])
async def twins(request, tmp_path, log) -> AsyncIterator[tuple[StatisticsStore, StatisticsStore]]:
    """Two stores with the same data, as two processes have them."""
    stores: list[StatisticsStore]
    if request.param == "memory":
        stores = [MemoryStatistics()] * 2
    elif request.param == "sqlite":
        stores = [SqliteStatistics(tmp_path / "statistics.sqlite3", log=log) for _ in range(2)]
    else:
        url = request.getfixturevalue("redis_url")
        stores = [RedisStatistics(url) for _ in range(2)]
    async with AsyncExitStack() as stack:
        for each in stores:
            stack.push_async_callback(each.close)
        yield stores[0], stores[1]
