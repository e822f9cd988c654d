"""A damaged SQLite file is set aside, and a new one is created."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest

from trimtab.proxy.store import sqlite
from trimtab.proxy.store.sqlite import SqliteFile, SqliteStore
from trimtab.proxy.store.store import StoreError

SIZE_BYTES = 100_000


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "summaries.sqlite3"


@pytest.fixture
async def open_sqlite(path, clock, log) -> AsyncIterator[Callable[[], SqliteStore]]:
    async with AsyncExitStack() as stack:

        def open_it() -> SqliteStore:
            store = SqliteStore(path, ttl_seconds=1600, clock=clock, log=log)
            stack.push_async_callback(store.close)
            return store

        yield open_it


@pytest.fixture
async def filled(path, clock, log) -> Path:
    store = SqliteStore(path, ttl_seconds=1600, clock=clock, log=log)
    for number in range(5):
        await store.put(f"{number}", bytes([number]) * SIZE_BYTES)
    await store.close()
    return path


def _write_garbage(path: Path) -> None:
    path.write_bytes(b"garbage" * 1000)


def _write_a_word(path: Path) -> None:
    path.write_bytes(b"word")


def _truncate(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def _spoil_the_tables(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))


def _spoil_a_name(path: Path) -> None:
    """SQLite's message then quotes bytes that are not UTF-8."""
    spoilt = path.read_bytes().replace(b"indexsummaries_by_use", b"index" + b"\xff" * 16, 1)
    path.write_bytes(spoilt.replace(b"CREATE INDEX", b"CREATE \xff\xff\xff\xff\xff", 1))


def _make_foreign(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE cats (name TEXT)")


def _make_other_version(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")


@pytest.mark.parametrize("make_foreign", [_make_foreign, _make_other_version])
async def test_a_sound_file_that_is_not_ours_is_left_alone(filled, make_foreign, open_sqlite, log) -> None:
    """It belongs to another program or another version. It is not renamed, not written, and its mode stays."""
    make_foreign(filled)
    filled.chmod(0o644)
    before = filled.read_bytes()

    with pytest.raises(StoreError, match="the file is another program's, or another version's"):
        await open_sqlite().put("1", b"new")
    assert (filled.read_bytes(), filled.stat().st_mode & 0o777, log.lines) == (before, 0o644, [])


async def test_a_lock_that_is_never_let_go_fails_the_operation(filled, open_sqlite, monkeypatch) -> None:
    """It fails in time, because a thread that hangs would keep the process from ending."""
    assert sqlite.BUSY_SECONDS < sqlite.OPERATION_SECONDS
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.0)
    with closing(sqlite3.connect(filled.with_name(filled.name + ".lock"), isolation_level=None)) as lock:
        lock.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreError, match="another process has locked the file"):
            await open_sqlite().get("1")


@pytest.mark.parametrize("damage", [_write_garbage, _write_a_word, _truncate, _spoil_the_tables, _spoil_a_name])
async def test_a_file_that_cannot_be_used_is_set_aside(filled, damage, open_sqlite, log) -> None:
    """It is renamed unchanged, and the log says so. After that, everything is as with a new file."""
    damage(filled)
    spoilt = filled.read_bytes()
    store = open_sqlite()

    assert await store.get("1") is None
    assert await store.put("1", b"new") == b"new"
    assert await open_sqlite().get("1") == b"new"
    assert _aside(filled).read_bytes() == spoilt
    assert log.lines == [{"event": "store_set_aside", "store": "sqlite", "renamed_to": "summaries.sqlite3.corrupt-1"}]


async def test_damage_that_is_found_in_use_sets_the_file_aside(filled, open_sqlite) -> None:
    store = open_sqlite()
    assert await store.get("1") == b"\x01" * SIZE_BYTES
    _spoil_the_tables(filled)

    assert await store.put("new", b"new") == b"new"
    assert await store.get("2") is None
    assert await store.put("2", b"new") == b"new"
    assert [await open_sqlite().get(summary_id) for summary_id in ("1", "2")] == [None, b"new"]
    assert _aside(filled).exists()


async def test_of_two_that_find_the_damage_at_once_one_sets_it_aside(filled, open_sqlite) -> None:
    """The other one uses the first one's new file."""
    stores = [open_sqlite(), open_sqlite()]
    for store in stores:
        await store.get("0")
    _spoil_the_tables(filled)
    assert await asyncio.gather(*(store.get("4") for store in stores)) == [None, None]
    await stores[0].put("4", b"new")
    assert await stores[1].get("4") == b"new"
    assert len(list(filled.parent.glob("*.corrupt-?"))) == 1


async def test_each_broken_file_has_a_name_of_its_own(filled, clock, log) -> None:
    """No file replaces another one."""
    for _ in range(2):
        _write_garbage(filled)
        store = SqliteStore(filled, ttl_seconds=1600, clock=clock, log=log)
        await store.get("1")
        await store.close()
    assert [line["renamed_to"][-9:] for line in log.lines] == ["corrupt-1", "corrupt-2"]


def test_damage_in_an_attached_file_leaves_the_file_alone(path, tmp_path, log) -> None:
    """It is intact: setting it aside would lose it and mend nothing. Whoever attached the other one has the fault."""
    beside = tmp_path / "texts.sqlite3"
    with closing(sqlite3.connect(beside)) as connection:
        connection.execute("CREATE TABLE texts (pack BLOB)")
    spoilt = beside.read_bytes()

    def attach(connection: sqlite3.Connection) -> None:
        connection.execute("ATTACH ? AS private", (str(beside),))
        connection.execute("SELECT pack FROM private.texts").fetchall()

    for damage in (_write_garbage, lambda file: file.write_bytes(spoilt[:4096] + b"\xff" * 4096)):
        beside.write_bytes(spoilt)
        file = SqliteFile(path, attach, log)
        file.use(_fill if not path.exists() else _read_all)
        damage(beside)
        with pytest.raises(sqlite3.DatabaseError):
            file.use(attach)
        file.close()
    beside.write_bytes(spoilt)
    file = SqliteFile(path, attach, log)
    assert len(file.use(_read_all)) == 1
    file.close()
    assert log.lines == []


def test_who_finds_the_damage_late_leaves_the_new_file_alone(path, log) -> None:
    """Meanwhile another process has set the damaged file aside and created a new one."""
    first, late = (SqliteFile(path, lambda _: None, log) for _ in range(2))
    first.use(_fill)

    def read_late(connection: sqlite3.Connection) -> list[tuple[bytes]]:
        if not _aside(path).exists():
            _spoil_the_tables(path)
            assert first.use(_read_all) == []
            first.use(_fill)
        return _read_all(connection)

    first.close()
    assert len(late.use(read_late)) == 1
    assert [line["renamed_to"] for line in log.lines] == [_aside(path).name]
    for file in (first, late):
        file.close()


async def test_a_file_that_was_removed_is_begun_anew(path, open_sqlite) -> None:
    """The process that notices first creates it, and the others use it."""
    stores = [open_sqlite(), open_sqlite()]
    for store in stores:
        await store.put("id", b"old")
    path.unlink()

    assert await stores[0].put("id", b"new") == b"new"
    assert await stores[1].get("id") == b"new"


async def test_an_empty_file_is_begun_not_set_aside(path, open_sqlite, log) -> None:
    """A crash at the very start may leave an empty file."""
    path.touch()

    assert await open_sqlite().put("id", b"sealed") == b"sealed"
    assert log.lines == []


def _aside(path: Path) -> Path:
    return path.with_name(f"{path.name}.corrupt-1")


def _fill(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO summaries VALUES ('id', ?, ?, 0)", (bytes(SIZE_BYTES), SIZE_BYTES))


def _read_all(connection: sqlite3.Connection) -> list[tuple[bytes]]:
    return connection.execute("SELECT sealed FROM summaries").fetchall()
