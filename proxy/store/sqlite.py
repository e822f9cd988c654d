"""Summaries in a SQLite file, which outlives the process and which several processes share.

Law: the event loop never waits for the disk. A caller that leaves never leaves a transaction open, because each
operation is one function that runs to its end in the store's own thread.
"""

import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from trimtab.proxy.store.sqlite_file import SqliteFile, SqliteThread

P = ParamSpec("P")
T = TypeVar("T")

MAX_BYTES = 256 * 1024 * 1024
"""The most bytes of encrypted summaries; the file is a little larger. Chosen: it suits any disk."""
MAX_LEASE_SECONDS = 3600.0
"""A lease that ends later than this is void: it was granted before the clock was set back.

Chosen: far longer than any lease that is asked for.
"""
TOUCHES_PER_TTL = 16
"""How often, at most, reads renew a summary's lifetime within that time. Chosen: each renewal writes to the disk."""


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
        with connection:
            connection.execute("BEGIN IMMEDIATE")
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
        with connection:
            connection.execute("BEGIN IMMEDIATE")
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
