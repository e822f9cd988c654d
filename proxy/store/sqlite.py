"""Summaries in a SQLite file that processes share: create it, open it, set it aside if it is damaged; and its thread.

Law: a damaged file is renamed, and a new one is created. A file that another process has just created, or that belongs
to another program, is never renamed. Only the owner can read the file. The event loop never waits for the disk: each
operation is one function that runs to its end in the file's own thread, even if its caller leaves. Every fault becomes
a StoreError.
"""

import asyncio
import itertools
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec

from trimtab.proxy.store.store import StoreError, describe_fault

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

APPLICATION_ID = 0x7472696D  # The letters `trim`, in the header of the file
SCHEMA_VERSION = 1  # raised whenever the tables change
_TABLES = """
CREATE TABLE summaries (id TEXT PRIMARY KEY, sealed BLOB NOT NULL, size_bytes INTEGER NOT NULL, used_at REAL NOT NULL);
CREATE INDEX summaries_by_use ON summaries (used_at, size_bytes);
CREATE TABLE leases
  (number INTEGER PRIMARY KEY AUTOINCREMENT, summary_id TEXT NOT NULL UNIQUE, expires_at REAL NOT NULL);
"""


class FileForm(msgspec.Struct, frozen=True):
    """What is in a file: its tables, and the numbers in its header by which its program and version are known."""

    application_id: int
    version: int
    tables: str


SUMMARIES = FileForm(APPLICATION_ID, SCHEMA_VERSION, _TABLES)
BUSY_SECONDS = 1.0  # The longest wait for the write of another process. Chosen: writes take milliseconds.
OPERATION_SECONDS = 2.0  # The longest wait of a caller; a slower disk counts as gone. Chosen: longer than BUSY_SECONDS.
PRIMARY_CODE = 0xFF  # The bits of the primary code in an extended result code. Source: SQLite, Result and Error Codes.
_WORDS = {
    sqlite3.SQLITE_BUSY: "another process has locked the file",
    sqlite3.SQLITE_LOCKED: "another process has locked the file",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened",
    sqlite3.SQLITE_CORRUPT: "the file is damaged",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the disk cannot be read or written",
    sqlite3.SQLITE_NOTADB: "the file is no SQLite database",
    sqlite3.SQLITE_PERM: "there is no permission to open the file",
    sqlite3.SQLITE_READONLY: "the file cannot be written",
}
_SIDE_FILES = ("-wal", "-shm")
_BROKEN = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_FAULTS = (sqlite3.DatabaseError, UnicodeDecodeError)  # The second if SQLite's message quotes damaged text


class ForeignFileError(sqlite3.DatabaseError):
    """An intact database of another program or another version."""


class DamagedError(sqlite3.DatabaseError):
    """A file that SQLite can open, but whose pages are damaged."""


class SqliteFile:
    """A connection to the file of a form, opened at the first use. `prepare` runs after each opening."""

    def __init__(self, path: Path, prepare: Work[None], log: Any, form: FileForm = SUMMARIES) -> None:
        self._form = form
        self._path = path
        self._prepare = prepare
        self._log = log
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None

    def use(self, work: Work[T]) -> T:
        """Do some work on the file; on a new one if it is damaged. Raises sqlite3.Error or OSError.

        A sound file is opened again, because the damage is in another one, which `prepare` attaches.
        """
        try:
            return work(self._connect())
        except _FAULTS as error:
            if not is_broken(error):
                raise
        with _alone(self._path):
            self.close()
            if _identify(self._path) == self._identity and not _is_sound(self._path):
                self._set_aside()
        return work(self._connect())

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connect(self) -> sqlite3.Connection:
        # Another process may have set the file aside and created a new one.
        if self._connection is None or _identify(self._path) != self._identity:
            self.close()
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _alone(self._path):
                self._identity = self._begin()
                self._connection = self._open()
        return self._connection

    def _begin(self) -> tuple[int, int] | None:
        if _identify(self._path) is None:
            for suffix in _SIDE_FILES:
                _beside(self._path, suffix).unlink(missing_ok=True)
            _create(self._path)
        return _identify(self._path)

    def _open(self) -> sqlite3.Connection:
        with ExitStack() as on_failure:
            connection = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None)
            on_failure.callback(connection.close)
            is_empty = _examine(connection, self._form)  # before any change, because it may be another program's file
            for suffix in ("", *_SIDE_FILES):
                with suppress(OSError):
                    _beside(self._path, suffix).chmod(0o600)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            if is_empty:
                _begin_schema(connection, self._form)
            self._prepare(connection)
            on_failure.pop_all()
        return connection

    def _set_aside(self) -> None:
        # The caller holds the lock of `_alone`.
        names = (_beside(self._path, f".corrupt-{number}") for number in itertools.count(1))
        aside = next(name for name in names if not name.exists())
        for suffix in ("", *_SIDE_FILES):
            with suppress(FileNotFoundError):
                _beside(self._path, suffix).rename(_beside(aside, suffix))
        self._log.warning("store_set_aside", store="sqlite", renamed_to=aside.name)


def _examine(connection: sqlite3.Connection, form: FileForm) -> bool:
    """Whether the file is empty. Raises ForeignFileError if another program wrote it."""
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if (application_id, version) == (form.application_id, form.version):
        return False
    (tables,) = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    if (application_id, version, tables) != (0, 0, 0):
        raise ForeignFileError
    return True


@contextmanager
def writing(connection: sqlite3.Connection) -> Iterator[None]:
    """One transaction, which nobody else's write can come between."""
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        yield


def _begin_schema(connection: sqlite3.Connection, form: FileForm) -> None:
    with writing(connection):
        for statement in form.tables.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {form.application_id}")
        connection.execute(f"PRAGMA user_version = {form.version}")


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """In the block no other process opens, makes or renames the file. Raises sqlite3.Error if another one hangs.

    The lock is on an empty database beside it, because the file itself may be damaged or missing. The system releases
    it if a process dies.
    """
    name = _beside(path, ".lock")
    with suppress(FileExistsError):
        _create(name)
    with closing(sqlite3.connect(name, timeout=BUSY_SECONDS, isolation_level=None)) as lock:
        lock.execute("BEGIN EXCLUSIVE")
        yield


def _create(path: Path) -> None:
    # O_EXCL: never open an existing file here, because closing it would drop this process's SQLite locks on it.
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _identify(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _is_sound(path: Path) -> bool:
    with suppress(*_FAULTS), closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as connection:
        return bool(connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))
    return False


def is_broken(error: sqlite3.DatabaseError | UnicodeDecodeError) -> bool:
    if isinstance(error, UnicodeDecodeError | DamagedError):
        return True
    return getattr(error, "sqlite_errorcode", 0) & PRIMARY_CODE in _BROKEN


class SqliteThread:
    """A file and its own thread. `name`: of the store, in errors."""

    def __init__(self, name: str, file: SqliteFile) -> None:
        self._name = name
        self._file = file
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    async def use(self, work: Work[T]) -> T:
        return await self._run(lambda: self._file.use(work))

    async def close(self) -> None:
        try:
            await self._run(self._file.close)
        finally:
            self._thread.shutdown(wait=False)

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            async with asyncio.timeout(OPERATION_SECONDS):
                return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except sqlite3.Error as error:
            raise StoreError(self._name, describe_error(error)) from error
        except (OSError, UnicodeDecodeError) as error:
            raise StoreError(self._name, describe_fault(error)) from error


def describe_error(error: sqlite3.Error) -> str:
    if isinstance(error, ForeignFileError):
        return "the file is another program's, or another version's"
    name: str | None = getattr(error, "sqlite_errorname", None)
    if name is None:
        return "SQLite refuses the operation"
    words = _WORDS.get(error.sqlite_errorcode & PRIMARY_CODE)
    return f"{words} ({name})" if words else name


P = ParamSpec("P")

MAX_BYTES = 256 * 1024 * 1024  # Of encrypted summaries; the file is a little larger. Chosen: it suits any disk.
MAX_LEASE_SECONDS = 3600.0  # A later end is void: the clock was set back. Chosen: far longer than any lease.
TOUCHES_PER_TTL = 16  # How often reads renew a summary's lifetime within it. Chosen: each renewal writes to the disk.


class SqliteStore:
    """A SummaryStore in one file. `clock` is the time of day, on which the processes must agree."""

    name = "sqlite"

    def __init__(
        self,
        path: Path,
        *,
        ttl_seconds: float,
        log: Any,
        max_bytes: int = MAX_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._ttl_seconds = ttl_seconds
        self._max_bytes = max_bytes
        self._clock = clock
        self._thread = SqliteThread(self.name, SqliteFile(path, self._sweep, log))

    async def get(self, summary_id: str) -> bytes | None:
        return await self._do(self._read, summary_id)

    async def put(self, summary_id: str, sealed: bytes, lease: int | None = None) -> bytes | None:
        """Keep a summary unless the id has one. A summary larger than the store is returned but not kept."""
        return await self._do(self._write, summary_id, sealed, lease)

    async def claim(self, summary_id: str, seconds: float) -> int | None:
        return await self._do(self._lend, summary_id, seconds)

    async def renew(self, summary_id: str, lease: int, seconds: float) -> bool:
        return await self._do(self._prolong, summary_id, lease, seconds)

    async def release(self, summary_id: str, lease: int) -> None:
        statement = "DELETE FROM leases WHERE summary_id = ? AND number = ?"
        await self._do(sqlite3.Connection.execute, statement, (summary_id, lease))

    async def close(self) -> None:
        await self._thread.close()

    async def _do(self, work: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._thread.use(lambda connection: work(connection, *args, **kwargs))

    def _read(self, connection: sqlite3.Connection, summary_id: str) -> bytes | None:
        now = self._clock()
        row: tuple[bytes, float] | None = connection.execute(
            "SELECT sealed, used_at FROM summaries WHERE id = ? AND used_at > ?", (summary_id, now - self._ttl_seconds)
        ).fetchone()
        if row is None:
            return None
        sealed, used_at = row
        if now - used_at >= self._ttl_seconds / TOUCHES_PER_TTL:
            with suppress(sqlite3.OperationalError):  # a full disk can still be read
                connection.execute("UPDATE summaries SET used_at = ? WHERE id = ?", (now, summary_id))
        return sealed

    def _write(self, connection: sqlite3.Connection, summary_id: str, sealed: bytes, lease: int | None) -> bytes | None:
        now = self._clock()
        with writing(connection):
            kept = self._read(connection, summary_id)
            if kept is not None:
                return kept
            held = "SELECT 1 FROM leases WHERE summary_id = ? AND number != ? AND expires_at > ?"
            if lease is not None and connection.execute(held, (summary_id, lease, now)).fetchone():
                return None
            if len(sealed) <= self._max_bytes:
                connection.execute(
                    "INSERT OR REPLACE INTO summaries (id, sealed, size_bytes, used_at) VALUES (?, ?, ?, ?)",
                    (summary_id, sealed, len(sealed), now),
                )
                self._sweep(connection)
        return sealed

    def _lend(self, connection: sqlite3.Connection, summary_id: str, seconds: float) -> int | None:
        now = self._clock()
        with writing(connection):
            latest = now + MAX_LEASE_SECONDS
            connection.execute("DELETE FROM leases WHERE expires_at <= ? OR expires_at > ?", (now, latest))
            row: tuple[int] | None = connection.execute(
                "INSERT INTO leases (summary_id, expires_at) VALUES (?, ?) ON CONFLICT DO NOTHING RETURNING number",
                (summary_id, min(now + seconds, latest)),
            ).fetchone()
        return row[0] if row is not None else None

    def _prolong(self, connection: sqlite3.Connection, summary_id: str, lease: int, seconds: float) -> bool:
        now = self._clock()
        prolonged = connection.execute(
            "UPDATE leases SET expires_at = ? WHERE summary_id = ? AND number = ? AND expires_at > ?",
            (now + min(seconds, MAX_LEASE_SECONDS), summary_id, lease, now),
        )
        return prolonged.rowcount == 1

    def _sweep(self, connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM summaries WHERE used_at <= ?", (self._clock() - self._ttl_seconds,))
        (total_bytes,) = connection.execute("SELECT COALESCE(SUM(size_bytes), 0) FROM summaries").fetchone()
        while total_bytes > self._max_bytes:
            (size_bytes,) = connection.execute(
                "DELETE FROM summaries WHERE rowid = (SELECT rowid FROM summaries ORDER BY used_at, rowid LIMIT 1)"
                " RETURNING size_bytes"
            ).fetchone()
            total_bytes -= size_bytes
