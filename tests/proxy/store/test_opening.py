"""Opens the store that the configuration names."""

import os
import sys
from pathlib import Path

import pytest

from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.schema import Config
from trimtab.proxy.store.opening import data_directory, open_store


@pytest.fixture
def open_url(tmp_path, log, monkeypatch):
    monkeypatch.setattr("trimtab.proxy.store.opening.data_directory", lambda: tmp_path / "data")

    def open_it(url: str, on_error=pytest.fail):
        return open_store(Config.model_construct(store=url), on_error, log)

    return open_it


async def test_memory_leaves_no_trace(open_url, tmp_path) -> None:
    store = open_url("memory")
    await store.put("id", b"sealed")

    assert store.name == "memory"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("sqlite", "data/summaries.sqlite3"),
        ("sqlite:///relative/file.db", "relative/file.db"),
        ("sqlite:///{directory}/absolute.db", "absolute.db"),
    ],
)
async def test_sqlite_is_a_file(open_url, tmp_path, monkeypatch, url, name) -> None:
    """It is in the data directory, or where the URL says: three slashes precede the path, which may be absolute."""
    monkeypatch.chdir(tmp_path)
    store = open_url(url.format(directory=tmp_path))
    await store.put("id", b"sealed")
    await store.close()

    assert store.name == "sqlite"
    assert (tmp_path / name).is_file()


async def test_a_server_that_is_not_there_keeps_nothing_from_starting(open_url, own_redis, log) -> None:
    own_redis.stop()
    errors: list[str] = []
    store = open_url(own_redis.url, errors.append)

    assert await store.put("id", b"sealed") == b"sealed"
    assert await store.get("id") == b"sealed"
    await store.close()
    assert errors == ["redis"]
    assert log.lines == [{"event": "store_unreachable", "store": "redis", "reason": "the server cannot be reached"}]


@pytest.mark.parametrize(
    "url",
    ["rediss://:planted@host/0?socket_timeout=planted", "redis://host?planted=planted"],
)
def test_a_url_that_is_none_is_a_mistake_in_the_configuration(open_url, url) -> None:
    with pytest.raises(ConfigError, match=r"^store: not a URL of a Redis server") as caught:
        open_url(url)
    assert "planted" not in str(caught.value)


def test_a_missing_package_is_named_with_what_installs_it(open_url, monkeypatch) -> None:
    """The package is an optional extra."""
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    monkeypatch.delitem(sys.modules, "trimtab.proxy.store.redis", raising=False)

    with pytest.raises(ConfigError, match=r"pip install 'trimtab\[redis\]'"):
        open_url("redis://127.0.0.1")


def test_the_users_stores_are_in_the_users_data_directory() -> None:
    assert data_directory() == Path(os.environ["XDG_DATA_HOME"]) / "trimtab"
