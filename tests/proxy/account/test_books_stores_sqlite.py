"""Statistics in a file."""

import sqlite3

import pytest

from trimtab.proxy.account.books import Batch, Place, Sums
from trimtab.proxy.account.books_stores import SqliteStatistics
from trimtab.proxy.store.sqlite import SqliteStore
from trimtab.proxy.store.store import StoreError

PLACE = Place("2026-11-23", "m", "-")


async def test_reading_makes_no_file(tmp_path, log) -> None:
    store = SqliteStatistics(tmp_path / "none.sqlite3", log=log)
    assert await store.read("2026-01-01", "2026-11-23") == {}
    await store.close()
    assert not list(tmp_path.iterdir())


async def test_another_programs_file_is_left_alone(tmp_path, log) -> None:
    """Also the file of the summaries."""
    summaries = SqliteStore(tmp_path / "s.sqlite3", ttl_seconds=9, log=log)
    await summaries.put("id", b"sealed")
    await summaries.close()
    store = SqliteStatistics(tmp_path / "s.sqlite3", log=log)
    with pytest.raises(StoreError, match="another program's"):
        await store.add(Batch("w", 1, PLACE.day, {PLACE: Sums(1)}))
    await store.close()


async def test_the_file_is_only_the_owners_and_has_only_sums(tmp_path, log) -> None:
    path = tmp_path / "statistics.sqlite3"
    store = SqliteStatistics(path, log=log)
    await store.add(Batch("w", 1, PLACE.day, {PLACE: Sums(1)}))
    await store.close()
    assert path.stat().st_mode & 0o777 == 0o600
    connection = sqlite3.connect(path)
    columns = {row[1]: row[2] for row in connection.execute("PRAGMA table_info(sums)")}
    connection.close()
    assert {name for name, kind in columns.items() if kind == "TEXT"} == {"day", "model", "client"}


@pytest.mark.parametrize("figure", ["abc", 1e300, -5, b"x", 1.5])
async def test_a_file_with_foreign_values_is_damaged(figure: object, tmp_path, log) -> None:
    """It is told in a sentence, which quotes nothing."""
    path = tmp_path / "statistics.sqlite3"
    store = SqliteStatistics(path, log=log)
    await store.add(Batch("w", 1, PLACE.day, {PLACE: Sums(1)}))
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("UPDATE sums SET requests = ?", (figure,))
    connection.close()
    with pytest.raises(StoreError, match="a figure in it is not one of trimtab's"):
        await store.read(PLACE.day, PLACE.day)
    await store.close()


async def test_a_foreign_name_is_damage_too(tmp_path, log) -> None:
    path = tmp_path / "statistics.sqlite3"
    store = SqliteStatistics(path, log=log)
    await store.add(Batch("w", 1, PLACE.day, {PLACE: Sums(1)}))
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("UPDATE sums SET model = ?", (b"\xff\xfe",))
    connection.close()
    with pytest.raises(StoreError, match="a name in it"):
        await store.read(PLACE.day, PLACE.day)
    await store.close()
