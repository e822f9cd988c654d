"""A Redis server for the tests of what several processes share."""

import pytest
from programs.redis_server import PROGRAM, RedisServer


@pytest.fixture
def redis_url(tmp_path):
    """The URL of a Redis server for this test only."""
    if PROGRAM is None:
        pytest.skip("redis-server is not on PATH")
    server = RedisServer(tmp_path)
    server.start()
    yield server.url
    server.stop()
