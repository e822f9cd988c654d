"""Statistics in a SQLite file, to which several processes add.

Law: the event loop never waits for the disk. A batch is added in one transaction, or not at all.
"""

import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

from proxy.account.statistics.store import Batch
from proxy.account.statistics.sums import NAMES, Place, Sums, go_back
from proxy.state.stores.sqlite_file import FileForm, SqliteFile
from proxy.state.stores.sqlite_thread import SqliteThread
from proxy.state.stores.store import StoreError

APPLICATION_ID = 0x7472696E
"""The letters `trin`: the number after that of the summaries' file."""
SCHEMA_VERSION = 1  # raised whenever the tables change
WRITER_DAYS = 2
"""Days for which the number of a writer's last batch is kept. Chosen: longer than a batch is ever tried again."""
_COLUMNS = ", ".join(f"{name} INTEGER NOT NULL" for name in NAMES)
FORM = FileForm(
    APPLICATION_ID,
    SCHEMA_VERSION,
    f"""
CREATE TABLE sums (day TEXT NOT NULL, model TEXT NOT NULL, client TEXT NOT NULL, {_COLUMNS},
  PRIMARY KEY (day, model, client)) WITHOUT ROWID;
CREATE TABLE writers (writer TEXT PRIMARY KEY, number INTEGER NOT NULL, day TEXT NOT NULL)
""",
)
_ADD = (
    f"INSERT INTO sums (day, model, client, {', '.join(NAMES)}) VALUES ({', '.join('?' * (3 + len(NAMES)))})"  # noqa: S608 - our own names
    f" ON CONFLICT DO UPDATE SET {', '.join(f'{name} = {name} + excluded.{name}' for name in NAMES)}"
)
_READ = f"SELECT day, model, client, {', '.join(NAMES)} FROM sums WHERE day BETWEEN ? AND ? ORDER BY day, model, client"  # noqa: S608 - our own names


class SqliteStatistics:
    """A StatisticsStore in one file."""

    name = "sqlite"

    def __init__(self, path: Path, *, log: Any) -> None:
        self._path = path
        self._thread = SqliteThread(self.name, SqliteFile(path, lambda _: None, log, FORM))

    async def add(self, batch: Batch) -> None:
        """Add a batch, unless it was added before, and delete what is too old."""
        await self._thread.use(partial(_add, batch=batch))

    async def read(self, first_day: str, today: str) -> dict[Place, Sums]:
        """The sums of these days; none if there is no file yet. Raises StoreError."""
        if not self._path.exists():
            return {}
        rows = await self._thread.use(lambda connection: connection.execute(_READ, (first_day, today)).fetchall())
        try:
            return {Place.read(*row[:3]): Sums.read(dict(zip(NAMES, row[3:], strict=True))) for row in rows}
        except ValueError as error:
            raise StoreError(self.name, str(error)) from error

    async def close(self) -> None:
        """Close the file and end the thread."""
        await self._thread.close()


def _add(connection: sqlite3.Connection, batch: Batch) -> None:
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        row = connection.execute("SELECT number FROM writers WHERE writer = ?", (batch.writer,)).fetchone()
        if row is not None and row[0] >= batch.number:
            return
        numbered = "INSERT OR REPLACE INTO writers (writer, number, day) VALUES (?, ?, ?)"
        connection.execute(numbered, (batch.writer, batch.number, batch.today))
        connection.executemany(_ADD, [(*place, *sums.to_dict().values()) for place, sums in batch.rows.items()])
        connection.execute("DELETE FROM sums WHERE day < ?", (batch.oldest_day,))
        connection.execute("DELETE FROM writers WHERE day < ?", (go_back(batch.today, WRITER_DAYS),))
