"""Summaries on Redis or Valkey (6.2 or newer), shared by replicas: one server, sentinels, or a cluster.

Law: an atomic step is one script on one server, so the keys of a summary share a hash tag. A server that is silent for
a second counts as gone. An operation that has begun runs to its end, even if its caller leaves.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from redis import exceptions
from redis.asyncio.sentinel import MasterNotFoundError

from trimtab.proxy.store.redis_clients import make_client
from trimtab.proxy.store.store import StoreError, describe_fault
from trimtab.proxy.tasks import Tasks

PREFIX = "trimtab:1:"
_FAULTS: tuple[tuple[type[Exception], str], ...] = (
    (MasterNotFoundError, "no reachable sentinel knows a master of this service"),
    (exceptions.RedisClusterException, "the cluster cannot be reached, or serves only a part of its keys"),
    (exceptions.ClusterDownError, "the cluster serves only a part of its keys"),
    (exceptions.AuthenticationError, "the server refuses the user name or the password"),
    (exceptions.BusyLoadingError, "the server is still loading its data"),
    (exceptions.MaxConnectionsError, "all connections to the server are in use"),
    (exceptions.NoPermissionError, "the server's user may not do what is needed"),
    (exceptions.ReadOnlyError, "the server accepts no writes: it is a replica"),
    (exceptions.OutOfMemoryError, "the server's memory is full"),
    (exceptions.TimeoutError, "the server does not answer in time"),
    (exceptions.ConnectionError, "the server cannot be reached"),
)
"""Subclasses are before their base classes, because the first match counts."""

_PUT = """
local kept = redis.call('GET', KEYS[1])
if kept then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return kept
end
local holder = redis.call('GET', KEYS[2])
if holder and ARGV[3] ~= '' and holder ~= ARGV[3] then
  return false
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]
"""
_CLAIM = """
if redis.call('EXISTS', KEYS[1]) == 1 then
  return false
end
local now = redis.call('TIME')
local lease = string.format('%.0f', now[1] * 1000000 + now[2])
redis.call('SET', KEYS[1], lease, 'PX', ARGV[1])
return lease
"""
"""The lease is the server's time in microseconds. A counter would be one key for all ids, so one node of a
cluster would serve them all."""
_RENEW = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
"""
_RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
end
"""


def summary_key(summary_id: str) -> str:
    """The server's key of a summary. The part in braces selects the node of a cluster."""
    return f"{PREFIX}summary:{{{summary_id}}}"


def lease_key(summary_id: str) -> str:
    return f"{PREFIX}lease:{{{summary_id}}}"


class RedisStore:
    name = "redis"

    def __init__(self, url: str, *, ttl_seconds: float) -> None:
        """Raises ValueError or TypeError if the URL is invalid or has unknown options."""
        self._client = make_client(url)
        self.commands = self._client.commands
        self._ttl_milliseconds = _to_milliseconds(ttl_seconds)
        self._tasks = Tasks(lambda _: None)  # the caller of an operation gets its error

    async def get(self, summary_id: str) -> bytes | None:
        key = summary_key(summary_id)
        sealed = await self.ask(lambda: self.commands.getex(key, px=self._ttl_milliseconds))
        return sealed if isinstance(sealed, bytes) else None

    async def put(self, summary_id: str, sealed: bytes, lease: int | None = None) -> bytes | None:
        keys = [summary_key(summary_id), lease_key(summary_id)]
        arguments: list[bytes | str | int] = [sealed, self._ttl_milliseconds, "" if lease is None else lease]
        kept: bytes | None = await self.run(_PUT, keys, arguments)
        return kept

    async def claim(self, summary_id: str, seconds: float) -> int | None:
        lease: bytes | None = await self.run(_CLAIM, [lease_key(summary_id)], [_to_milliseconds(seconds)])
        return None if lease is None else int(lease)

    async def renew(self, summary_id: str, lease: int, seconds: float) -> bool:
        prolonged: int = await self.run(_RENEW, [lease_key(summary_id)], [lease, _to_milliseconds(seconds)])
        return prolonged == 1

    async def release(self, summary_id: str, lease: int) -> None:
        await self.run(_RELEASE, [lease_key(summary_id)], [lease])

    async def close(self) -> None:
        await self._tasks.settle()
        await self.ask(self._client.close)

    async def run(self, script: str, keys: list[str], arguments: list[Any]) -> Any:
        # The whole script, not its hash: a server that was restarted or took over does not know the hash.
        return await self.ask(lambda: self.commands.eval(script, len(keys), *keys, *arguments))

    async def ask(self, operation: Callable[[], Awaitable[Any]]) -> Any:
        """The server's answer. Raises StoreError if there is none.

        The operation runs to its end even if the caller is cancelled: redis-py can swallow a cancellation, or lose a
        connection through it.
        """
        task = self._tasks.start(self._perform(operation))
        await asyncio.wait({task})
        return task.result()

    async def _perform(self, operation: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return await operation()
        except (exceptions.RedisError, exceptions.RedisClusterException, OSError) as error:
            raise StoreError(self.name, _describe(error)) from error


def _describe(error: Exception) -> str:
    if isinstance(error, OSError):
        return describe_fault(error)
    return next((words for kind, words in _FAULTS if isinstance(error, kind)), "the server reports an error")


def _to_milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))
