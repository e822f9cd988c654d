"""Summaries in a SQLite file."""

import asyncio
import os
import sqlite3
import sys
import time
from pathlib import Path

import pytest

from trimtab.proxy.store.sqlite import SqliteStore
from trimtab.proxy.store.store import StoreError

ROOT = Path(__file__).parents[4]


async def test_a_restarted_process_finds_what_was_kept(open_sqlite, path, log) -> None:
    """The file stays after the store is closed, and is complete: no log file is next to it."""
    first = SqliteStore(path, ttl_seconds=1600, log=log)
    await first.put("id", b"sealed")
    await first.close()

    assert not list(path.parent.glob("*-wal"))
    assert await open_sqlite(clock=time.time).get("id") == b"sealed"


async def test_only_the_owner_can_read_it(open_sqlite, path) -> None:
    """For any umask, this holds for directory, file, log and index. A file that was open to all is closed to others."""
    before = os.umask(0)
    try:
        store = open_sqlite()
        await store.put("id", b"sealed")
    finally:
        os.umask(before)

    assert {name.name: oct(name.stat().st_mode & 0o777) for name in path.parent.iterdir()} == dict.fromkeys(
        (path.name, f"{path.name}-wal", f"{path.name}-shm", f"{path.name}.lock"), "0o600"
    )
    assert oct(path.parent.stat().st_mode & 0o777) == "0o700"
    path.chmod(0o644)
    await open_sqlite().get("id")
    assert oct(path.stat().st_mode & 0o777) == "0o600"


async def test_the_least_recently_used_goes_first(open_sqlite, clock) -> None:
    """The bound is in bytes. If two of three summaries have room, the one that was not read is dropped."""
    store = open_sqlite(max_bytes=2000)
    for name in ("a", "b", "a", "c"):
        clock.seconds += 200
        if await store.get(name) is None:
            await store.put(name, name.encode() * 1000)

    assert [await store.get(name) for name in "abc"] == [b"a" * 1000, None, b"c" * 1000]


async def test_a_summary_larger_than_the_store_is_returned_but_drives_nothing_out(open_sqlite) -> None:
    """The writer can still use its own text."""
    store = open_sqlite(max_bytes=1000)
    await store.put("id", b"sealed")

    assert await store.put("large", b"x" * 1001) == b"x" * 1001
    assert [await store.get("id"), await store.get("large")] == [b"sealed", None]


async def test_reading_writes_only_now_and_then(open_sqlite, clock) -> None:
    """A sixteenth of a summary's lifetime is between two writes."""
    store = open_sqlite()
    await store.put("id", b"sealed")
    noted = []
    for _ in range(4):
        clock.seconds += 60
        await store.get("id")
        noted.append(await store._do(_read_used_at))

    assert [used_at - noted[0] for used_at in noted] == [0, 120, 120, 240]


async def test_what_has_expired_is_removed_when_the_file_is_opened(open_sqlite, clock) -> None:
    """It need not be read for that."""
    first = open_sqlite()
    await first.put("id", b"sealed")
    clock.seconds += 1600

    assert await open_sqlite()._do(_count_summaries) == 0


async def test_a_clock_that_goes_back_prolongs_no_lease(open_sqlite, clock) -> None:
    """A holder that has died delays nobody for a day, because the length of a lease is bounded."""
    store = open_sqlite()
    await store.claim("id", 1e9)
    clock.seconds -= 86400
    assert await store.claim("id", 60) is not None


async def test_a_clock_that_goes_back_ends_no_lease_that_is_renewed(open_sqlite, clock) -> None:
    """The next renewal uses the new time."""
    store = open_sqlite()
    lease = await store.claim("id", 60)
    clock.seconds -= 86400
    assert await store.renew("id", lease, 1e9)
    assert await store.claim("id", 60) is None
    clock.seconds += 3601
    assert await store.claim("id", 60) is not None


async def test_a_full_disk_is_an_error_of_the_store(open_sqlite) -> None:
    """SQLite's own limit simulates the full disk."""
    store = open_sqlite()
    await store.put("id", b"sealed")
    await store._do(lambda connection: connection.execute("PRAGMA max_page_count = 1").fetchone())

    with pytest.raises(StoreError, match=r"the disk is full \(SQLITE_FULL\)"):
        await store.put("large", b"x" * 100_000)


async def test_what_cannot_be_written_can_still_be_read(open_sqlite, clock) -> None:
    """The use of the summary is not recorded then."""
    store = open_sqlite()
    await store.put("id", b"sealed")
    await store._do(lambda connection: connection.execute("PRAGMA query_only = 1").fetchone())
    clock.seconds += 200

    assert await store.get("id") == b"sealed"
    with pytest.raises(StoreError, match=r"the file cannot be written \(SQLITE_READONLY"):
        await store.put("other", b"sealed")


@pytest.mark.parametrize("name", ["file/summaries.sqlite3", "directory"])
async def test_a_place_where_no_file_can_be_is_an_error_of_the_store(open_sqlite, tmp_path, name) -> None:
    """The error comes each time, and the store can still be closed."""
    (tmp_path / "file").touch()
    (tmp_path / "directory").mkdir()
    store = open_sqlite(path=tmp_path / name)
    for _ in range(2):
        with pytest.raises(StoreError):
            await store.get("id")


PROCESS = """
import asyncio, sys
from pathlib import Path
from trimtab.proxy.store.sqlite import SqliteStore

async def main(path, name):
    store = SqliteStore(Path(path), ttl_seconds=1000, log=None)
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(50):
        lease = await store.claim(str(number), 60)
        kept = await store.put(str(number), name.encode())
        print(number, kept.decode(), "" if lease is None else lease)
    await store.close()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_two_processes_share_a_file(path) -> None:
    """Each summary is claimed by one of them, and both get the same text. The numbers of leases grow over both."""
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            PROCESS,
            path,
            name,
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        for name in ("first", "second")
    ]
    for process in processes:
        await process.stdout.readline()
    outputs = await asyncio.gather(*(process.communicate(b"go\n") for process in processes))
    told = [[line.split(" ") for line in output.decode().splitlines()] for output, _ in outputs]

    assert [row[:2] for row in told[0]] == [row[:2] for row in told[1]]
    assert all((mine[2] == "") != (other[2] == "") for mine, other in zip(*told, strict=True))
    leases = [[int(row[2]) for row in rows if row[2]] for rows in told]
    assert all(each == sorted(each) for each in leases)
    assert len({*leases[0], *leases[1]}) == 50


def _lock(path: Path) -> sqlite3.Connection:
    """Another process in the middle of a write."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    return connection


def _read_used_at(connection: sqlite3.Connection) -> float:
    return connection.execute("SELECT used_at FROM summaries").fetchone()[0]


def _count_summaries(connection: sqlite3.Connection) -> int:
    return connection.execute("SELECT COUNT(*) FROM summaries").fetchone()[0]
