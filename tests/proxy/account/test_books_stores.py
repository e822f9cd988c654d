"""What every store of statistics promises."""

import asyncio
import sqlite3
from pathlib import Path

import pytest
import redis.asyncio

from trimtab.proxy.account.books import DAY_SECONDS, KEPT_DAYS, Batch, Place, Sums, go_back
from trimtab.proxy.account.books_stores import (
    RedisStatistics,
    SqliteStatistics,
    day_key,
    find_file,
    open_statistics,
    writer_key,
)
from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.load import load_config
from trimtab.proxy.store.opening import data_directory, find_key_file
from trimtab.proxy.store.sqlite import SqliteStore
from trimtab.proxy.store.store import StoreError

TODAY = "2026-11-23"
HERE = Place(TODAY, "gpt-*", "-")
ONE = Sums(requests=1, sent_tokens=2**40, fresh_nanodollars=2**55)


async def test_what_two_writers_add_at_the_same_time_is_all_there(twins) -> None:
    batches = [Batch(f"w{rank}", number, TODAY, {HERE: ONE}) for number in range(1, 11) for rank in range(2)]
    for number in range(10):
        await asyncio.gather(*[store.add(batches[2 * number + rank]) for rank, store in enumerate(twins)])
    found = await twins[1].read(TODAY, TODAY)
    assert found == {HERE: Sums(requests=20, sent_tokens=20 * 2**40, fresh_nanodollars=20 * 2**55)}


async def test_a_batch_that_is_written_twice_counts_once(twins) -> None:
    """A store may have kept a batch although its writer heard nothing of it."""
    batch = Batch("w", 1, TODAY, {HERE: ONE})
    for store in (*twins, *twins):
        await store.add(batch)
    assert await twins[0].read(TODAY, TODAY) == {HERE: ONE}


async def test_only_the_asked_days_are_read_and_old_ones_are_gone(twins) -> None:
    days = [go_back(TODAY, back) for back in (0, 1, KEPT_DAYS, KEPT_DAYS + 1)]
    await twins[0].add(Batch("w", 1, TODAY, {Place(day, "m", 'a"b'): ONE for day in days}))
    assert {place.day for place in await twins[1].read(go_back(TODAY, KEPT_DAYS), TODAY)} == set(days[:3])
    assert {place.day for place in await twins[1].read(days[1], days[1])} == {days[1]}
    assert {place.client for place in await twins[1].read(TODAY, TODAY)} == {'a"b'}


# Statistics are beside the summaries.


def _config(store: str):
    return load_config(settings=(f"store={store}",), environment={})


def test_the_file_is_in_the_same_folder() -> None:
    assert find_file(_config("sqlite")) == data_directory() / "statistics.sqlite3"
    named = _config("sqlite:////srv/trimtab.db")
    assert find_file(named) == Path("/srv/trimtab.db.statistics")
    assert find_key_file(named).parent == find_file(named).parent


@pytest.mark.parametrize(
    ("store", "name"), [("memory", "memory"), ("sqlite", "sqlite"), ("redis://127.0.0.1:9/0", "redis")]
)
async def test_the_store_decides(store, name, log) -> None:
    opened = open_statistics(_config(store), log)
    assert opened.name == name
    await opened.close()


def test_an_unusable_url_is_not_quoted(log) -> None:
    config = _config("redis://127.0.0.1:9/0").model_copy(update={"store": "redis://:secret@h:9/0?nonsense=1"})
    with pytest.raises(ConfigError) as raised:
        open_statistics(config, log)
    assert "secret" not in str(raised.value)


async def test_reading_makes_no_file(tmp_path, log) -> None:
    store = SqliteStatistics(tmp_path / "none.sqlite3", log=log)
    assert await store.read("2026-01-01", "2026-11-23") == {}
    await store.close()
    assert not list(tmp_path.iterdir())


async def test_another_programs_file_is_left_alone(tmp_path, log) -> None:
    summaries = SqliteStore(tmp_path / "s.sqlite3", ttl_seconds=9, log=log)
    await summaries.put("id", b"sealed")
    await summaries.close()
    store = SqliteStatistics(tmp_path / "s.sqlite3", log=log)
    with pytest.raises(StoreError, match="another program's"):
        await store.add(Batch("w", 1, TODAY, {HERE: Sums(1)}))
    await store.close()


async def test_the_file_is_only_the_owners_and_has_only_sums(tmp_path, log) -> None:
    path = tmp_path / "statistics.sqlite3"
    store = SqliteStatistics(path, log=log)
    await store.add(Batch("w", 1, TODAY, {HERE: Sums(1)}))
    await store.close()
    assert path.stat().st_mode & 0o777 == 0o600
    connection = sqlite3.connect(path)
    columns = {row[1]: row[2] for row in connection.execute("PRAGMA table_info(sums)")}
    connection.close()
    assert {name for name, kind in columns.items() if kind == "TEXT"} == {"day", "model", "client"}


@pytest.mark.parametrize(
    ("change", "value"),
    [
        *[("UPDATE sums SET requests = ?", value) for value in ("abc", 1e300, -5, b"x", 1.5)],
        ("UPDATE sums SET model = ?", b"\xff\xfe"),
    ],
)
async def test_a_file_with_foreign_values_is_damaged(change: str, value: object, tmp_path, log) -> None:
    path = tmp_path / "statistics.sqlite3"
    store = SqliteStatistics(path, log=log)
    await store.add(Batch("w", 1, TODAY, {HERE: Sums(1)}))
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(change, (value,))
    connection.close()
    with pytest.raises(StoreError, match="a figure in it" if "requests" in change else "a name in it"):
        await store.read(TODAY, TODAY)
    await store.close()


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
