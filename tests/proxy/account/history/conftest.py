"""A table, in memory and in a file that two processes share."""

import pytest

from trimtab.proxy.account.history.kept import History, Places, SharedLog
from trimtab.proxy.account.history.table import open_in_memory
from trimtab.proxy.account.history.texts import attach


def fail(error):
    raise AssertionError from error if isinstance(error, BaseException) else AssertionError(error)


@pytest.fixture
def connection():
    """A connection to an empty table."""
    found = open_in_memory()
    attach(found, ":memory:")
    yield found
    found.close()


@pytest.fixture(params=["sqlite", "redis", "workers of a replica"])
async def twins(request, tmp_path, log):
    """Two workers of one proxy, two replicas, or two workers of a replica."""
    files, texts, logs = [], ":memory:", [None, None]
    if request.param != "redis":
        files, texts = [tmp_path / "events"], str(tmp_path / "texts")
    if request.param != "sqlite":
        url = request.getfixturevalue("redis_url")
        logs = [SharedLog(url, ttl_seconds=60) for _ in range(2)]
    places = [Places(files, texts, each, number, 2) for number, each in enumerate(logs, 1)]
    pair = [History(keeps_text=True, places=each, log=log, on_error=fail, on_fault=fail) for each in places]
    yield pair
    for each in pair:
        await each.close()
