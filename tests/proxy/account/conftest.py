"""A Redis server for the tests of what several processes share, and every store of statistics."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from programs.redis_server import PROGRAM, RedisServer

from trimtab.proxy.account.books import MemoryStatistics, StatisticsStore
from trimtab.proxy.account.books_stores import RedisStatistics, SqliteStatistics


@pytest.fixture
def redis_url(tmp_path):
    """The URL of a Redis server for this test only."""
    if PROGRAM is None:
        pytest.skip("redis-server is not on PATH")
    server = RedisServer(tmp_path)
    server.start()
    yield server.url
    server.stop()


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
