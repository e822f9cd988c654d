"""The log of events that replicas share on Redis: each adds its rows, and copies those of all into its own table.

Law: figures and names only, never a text. While the server is out, nobody waits for it.
"""

import time
from collections.abc import Awaitable, Callable
from functools import partial
from math import inf
from typing import Any

import msgspec

from trimtab.proxy.account.history.table import MAX_EVENTS, Entry, Erased, Row
from trimtab.proxy.store.redis import PREFIX, RedisStore
from trimtab.proxy.store.store import StoreError

KEY = f"{PREFIX}events"
ENTRIES_AT_ONCE = 500
"""Entries of one answer. Chosen: a megabyte."""
PAUSE_SECONDS = 5.0
"""After a failure, the server is asked again after this time. Chosen: pages wait for it once, and not each."""
MAX_NUMBER = 2**53
"""An item with a larger number is passed over, or the table could never copy what comes after it. Source: RFC 8259
section 6: other programs read no larger ones exactly."""
_ADD = """
for at = 3, #ARGV do
  redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', 'item', ARGV[at])
end
redis.call('EXPIRE', KEYS[1], ARGV[2])
"""
_encoder = msgspec.json.Encoder()
_rows, _erased = msgspec.json.Decoder(Row), msgspec.json.Decoder(Erased)


class SharedLog:
    """The log on a server. It connects at the first use."""

    name = "redis"

    def __init__(self, url: str, *, ttl_seconds: float) -> None:
        """Raises ValueError or TypeError if the URL is invalid or has unknown options."""
        self._server = RedisStore(url, ttl_seconds=ttl_seconds)
        self._ttl_seconds = max(1, round(ttl_seconds))
        self._out_until = -inf

    async def add(self, items: list[Row] | list[Erased]) -> None:
        """Add rows or orders. Raises StoreError."""
        if items:
            arguments = [MAX_EVENTS, self._ttl_seconds, *map(_encoder.encode, items)]
            await self._ask(lambda: self._server.run(_ADD, [KEY], arguments))

    async def read(self, position: str) -> list[Entry]:
        """The oldest entries after a position; none if there are no more. Raises StoreError."""
        start = f"({position}" if position else "-"
        read = partial(self._server.commands.xrange, KEY, min=start, max="+", count=ENTRIES_AT_ONCE)
        found = await self._ask(lambda: self._server.ask(read))
        return [_read(name.decode(), fields.get(b"item", b"")) for name, fields in found]

    async def erase(self, order: Erased, entries: list[str]) -> None:
        """Drop the entries of a session, and have all replicas erase it. Raises StoreError."""
        if entries:
            await self._ask(lambda: self._server.ask(partial(self._server.commands.xdel, KEY, *entries)))
        await self.add([order])  # the last step: who has carried it out does not know the entries any more

    async def close(self) -> None:
        """Close the connections. Raises StoreError."""
        await self._server.close()

    async def _ask(self, operation: Callable[[], Awaitable[Any]]) -> Any:
        if time.monotonic() < self._out_until:
            raise StoreError(self.name, "it did not answer a moment ago")
        try:
            return await operation()
        except StoreError:
            self._out_until = time.monotonic() + PAUSE_SECONDS
            raise


def _read(name: str, encoded: bytes) -> Entry:
    for decoder in (_rows, _erased):
        try:
            item = decoder.decode(encoded)
        except msgspec.MsgspecError:
            continue
        if not all(abs(value) <= MAX_NUMBER for value in item if isinstance(value, int | float)):
            break
        return Entry(name, item._replace(entry=name) if isinstance(item, Row) else item)
    return Entry(name, None)
