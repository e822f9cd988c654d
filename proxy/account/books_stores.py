"""Statistics in a SQLite file and on Redis or Valkey, to which several processes add; and the opening of a store.

Law: the event loop never waits for the disk. A batch is added as a whole, or not at all: in one transaction of the
file, by one script on the server, so all keys there share a hash tag. Statistics are where summaries are: in memory, in
a file beside theirs, or on the same server.
"""

import asyncio
import sqlite3
from collections.abc import Mapping
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from trimtab.proxy.account.books import (
    DAY_SECONDS,
    KEPT_DAYS,
    NAMES,
    Batch,
    MemoryStatistics,
    Place,
    StatisticsStore,
    Sums,
    go_back,
)
from trimtab.proxy.config.schema import Config
from trimtab.proxy.store.opening import find_beside, require_store
from trimtab.proxy.store.sqlite import FileForm, SqliteFile, SqliteThread, writing
from trimtab.proxy.store.store import PREFIX, StoreError

FILE_NAME = "statistics.sqlite3"
WRITER_DAYS = 2  # How long a writer's last batch is known. Chosen: longer than a batch is ever tried again.
_COLUMNS = ", ".join(f"{name} INTEGER NOT NULL" for name in NAMES)
FORM = FileForm(
    0x7472696E,  # the letters `trin`: the number after that of the summaries' file
    1,
    f"""
CREATE TABLE sums (day TEXT NOT NULL, model TEXT NOT NULL, client TEXT NOT NULL, {_COLUMNS},
  PRIMARY KEY (day, model, client)) WITHOUT ROWID;
CREATE TABLE writers (writer TEXT PRIMARY KEY, number INTEGER NOT NULL, day TEXT NOT NULL)
""",
)
_ADD_ROWS = (
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
    with writing(connection):
        row = connection.execute("SELECT number FROM writers WHERE writer = ?", (batch.writer,)).fetchone()
        if row is not None and row[0] >= batch.number:
            return
        numbered = "INSERT OR REPLACE INTO writers (writer, number, day) VALUES (?, ?, ?)"
        connection.execute(numbered, (batch.writer, batch.number, batch.today))
        connection.executemany(_ADD_ROWS, [(*place, *sums.to_dict().values()) for place, sums in batch.rows.items()])
        connection.execute("DELETE FROM sums WHERE day < ?", (batch.oldest_day,))
        connection.execute("DELETE FROM writers WHERE day < ?", (go_back(batch.today, WRITER_DAYS),))


WRITER_SECONDS = WRITER_DAYS * DAY_SECONDS
_ADD = """
local number = tonumber(redis.call('GET', KEYS[1]) or '0')
if number >= tonumber(ARGV[1]) then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
local days = #KEYS - 1
for at = 3 + days, #ARGV, 3 do
  redis.call('HINCRBY', KEYS[1 + tonumber(ARGV[at])], ARGV[at + 1], ARGV[at + 2])
end
for day = 1, days do
  redis.call('EXPIRE', KEYS[1 + day], ARGV[2 + day])
end
return 1
"""
"""Arguments: the number, the lifetimes of the writer's key and of each day, then day, field and amount of each sum."""


def day_key(day: str) -> str:
    return f"{PREFIX}statistics:{{statistics}}:{day}"


def writer_key(writer: str) -> str:
    return f"{PREFIX}statistics:{{statistics}}:writer:{writer}"


class RedisStatistics:
    """A StatisticsStore on Redis. It connects at the first use."""

    name = "redis"

    def __init__(self, url: str) -> None:
        """Raises ValueError or TypeError if the URL is invalid or has unknown options."""
        from trimtab.proxy.store.redis import RedisStore  # noqa: PLC0415  an optional package

        self._server = RedisStore(url, ttl_seconds=WRITER_SECONDS)

    async def add(self, batch: Batch) -> None:
        """Add a batch, unless it was added before. The server deletes what is too old."""
        days = sorted({place.day for place in batch.rows if place.day >= batch.oldest_day})
        keys = [writer_key(batch.writer), *map(day_key, days)]
        arguments: list[Any] = [batch.number, WRITER_SECONDS]
        arguments += [DAY_SECONDS * (KEPT_DAYS + 1 - _count_days(day, batch.today)) for day in days]
        for place, sums in batch.rows.items():
            if place.day not in days:
                continue
            for name, amount in sums.to_dict().items():
                if amount:
                    field = orjson.dumps([place.model, place.client, name])
                    arguments += [days.index(place.day) + 1, field, amount]
        await self._server.run(_ADD, keys, arguments)

    async def read(self, first_day: str, today: str) -> dict[Place, Sums]:
        rows: dict[Place, Sums] = {}
        for back in range(min(_count_days(first_day, today), KEPT_DAYS), -1, -1):
            day = go_back(today, back)
            figures = await self._server.ask(partial(self._server.commands.hgetall, day_key(day)))
            try:
                rows |= await asyncio.to_thread(_read_day, day, figures)
            except (TypeError, ValueError) as error:
                raise StoreError(self.name, "a figure in it is not one of trimtab's") from error
        return rows

    async def close(self) -> None:
        await self._server.close()


def _read_day(day: str, figures: Mapping[bytes, bytes]) -> dict[Place, Sums]:
    rows: dict[Place, Sums] = {}
    for field, amount in sorted(figures.items()):
        model, client, name = orjson.loads(field)
        place = Place.read(day, model, client)
        rows[place] = rows.get(place, Sums()) + Sums.read({name: int(amount)})
    return rows


def _count_days(earlier: str, later: str) -> int:
    return (date.fromisoformat(later) - date.fromisoformat(earlier)).days


def find_file(config: Config) -> Path | None:
    return find_beside(config, ".statistics", FILE_NAME)


def open_statistics(config: Config, log: Any) -> StatisticsStore:
    """The store of statistics. Raises ConfigError if the Redis package is missing or the URL is unusable."""
    if config.store == "memory":
        return MemoryStatistics()
    file = find_file(config)
    if file is not None:
        return SqliteStatistics(file, log=log)
    require_store(config)
    return RedisStatistics(config.store)
