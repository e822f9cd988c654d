"""The thread of a SQLite file: the event loop never waits for the disk."""

import asyncio
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from trimtab.proxy.store import sqlite
from trimtab.proxy.store.store import StoreError


def _lock(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    return connection


async def test_a_busy_file_does_not_hold_the_event_loop_and_a_caller_may_leave(open_sqlite, path) -> None:
    """A caller that has left keeps no transaction open, so others can write at once."""
    is_writing = threading.Event()
    await open_sqlite().get("id")
    store = open_sqlite(clock=lambda: is_writing.set() or 1.0)
    await store.get("id")
    is_writing.clear()
    with closing(_lock(path)) as other:
        writing = asyncio.get_running_loop().create_task(store.put("id", b"sealed"))
        await asyncio.to_thread(is_writing.wait)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        other.execute("ROLLBACK")
        assert await store.get("id") == b"sealed"
        other.execute("BEGIN IMMEDIATE")


async def test_a_file_that_stays_busy_is_an_error_of_the_store(open_sqlite, path, monkeypatch) -> None:
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.0)
    store = open_sqlite()
    await store.get("id")
    with (
        closing(_lock(path)),
        pytest.raises(
            StoreError, match=r"^the sqlite store failed: another process has locked the file \(SQLITE_BUSY\)$"
        ),
    ):
        await store.put("id", b"sealed")


async def test_a_disk_that_is_too_slow_is_an_error_of_the_store(open_sqlite, path) -> None:
    store = open_sqlite()
    await store.get("id")
    with closing(_lock(path)) as other:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sqlite, "OPERATION_SECONDS", 0.01)
            with pytest.raises(StoreError, match="it does not answer in time"):
                await store.put("id", b"sealed")
        other.execute("ROLLBACK")
