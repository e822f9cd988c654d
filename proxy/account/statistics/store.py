"""Statistics in a SQLite file, to which several processes add; and the opening of the store that is configured.

Law: the event loop never waits for the disk. A batch is added in one transaction, or not at all. Statistics are where
summaries are: in memory, in a file beside theirs, or on the same server.
"""

import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

from trimtab.proxy.account.statistics.books import NAMES, Batch, MemoryStatistics, Place, StatisticsStore, Sums, go_back
from trimtab.proxy.config.schema import Config
from trimtab.proxy.store.opening import data_directory, require_store
from trimtab.proxy.store.sqlite import FileForm, SqliteFile, SqliteThread
from trimtab.proxy.store.store import StoreError

FILE_NAME = "statistics.sqlite3"
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
        try:
            return await self._thread.use(partial(_read, days=(first_day, today)))
        except ValueError as error:
            raise StoreError(self.name, str(error)) from error

    async def close(self) -> None:
        await self._thread.close()


def _read(connection: sqlite3.Connection, days: tuple[str, str]) -> dict[Place, Sums]:
    rows = connection.execute(_READ, days)
    return {Place.read(*row[:3]): Sums.read(dict(zip(NAMES, row[3:], strict=True))) for row in rows}


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


def find_file(config: Config) -> Path | None:
    scheme, _, rest = config.store.partition("://")
    if scheme != "sqlite":
        return None
    return Path(f"{rest[1:]}.statistics").expanduser() if rest else data_directory() / FILE_NAME


def open_statistics(config: Config, log: Any) -> StatisticsStore:
    """The store of statistics. Raises ConfigError if the Redis package is missing or the URL is unusable."""
    if config.store == "memory":
        return MemoryStatistics()
    file = find_file(config)
    if file is not None:
        return SqliteStatistics(file, log=log)
    require_store(config)
    from trimtab.proxy.account.statistics.redis import RedisStatistics  # noqa: PLC0415  an optional package

    return RedisStatistics(config.store)
