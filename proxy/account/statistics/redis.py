"""Statistics on Redis or Valkey, to which several replicas add.

Law: a batch is added by one script, so it counts as a whole, or not at all. All keys share a hash tag for that.
"""

import asyncio
from collections.abc import Mapping
from datetime import date
from functools import partial
from typing import Any

import orjson

from trimtab.proxy.account.statistics.books import DAY_SECONDS, KEPT_DAYS, Batch, Place, Sums, go_back
from trimtab.proxy.store.redis import PREFIX, RedisStore
from trimtab.proxy.store.store import StoreError

WRITER_SECONDS = 2 * DAY_SECONDS
"""How long the number of a writer's last batch is kept. Chosen: longer than a batch is ever tried again."""
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
        """The sums of these days. Raises StoreError."""
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
