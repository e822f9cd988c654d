"""What every store of statistics promises."""

import asyncio
from pathlib import Path

import pytest

from trimtab.proxy.account.books import KEPT_DAYS, Batch, Place, Sums, go_back
from trimtab.proxy.account.books_stores import find_file, open_statistics
from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.load import load_config
from trimtab.proxy.store.opening import data_directory, find_key_file

TODAY = "2026-11-23"
HERE = Place(TODAY, "gpt-*", "-")
ONE = Sums(requests=1, sent_tokens=2**40, fresh_nanodollars=2**55)


async def test_what_two_writers_add_at_the_same_time_is_all_there(twins) -> None:
    """Exactly: no float, no lost update."""
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
