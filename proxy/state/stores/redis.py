"""Summaries on a Redis or Valkey server (6.2 or newer), shared by replicas.

Law: what must be one step is one script on the server. Nothing is asked twice; a server that is silent for a second
counts as gone. An operation once begun is ended, whoever leaves.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from proxy.state.stores.store import StoreError, describe_fault
from proxy.tasks import Tasks

PREFIX = "trimtab:1:"
FENCE = f"{PREFIX}fence"
CONNECT_SECONDS = 1.0
OPERATION_SECONDS = 1.0
MAX_CONNECTIONS = 32
_FAULTS: tuple[tuple[type[exceptions.RedisError], str], ...] = (
    (exceptions.AuthenticationError, "the server refuses the user name or the password"),
    (exceptions.BusyLoadingError, "the server is still loading its data"),
    (exceptions.MaxConnectionsError, "all connections to the server are in use"),
    (exceptions.NoPermissionError, "the server's user may not do what is needed"),
    (exceptions.ReadOnlyError, "the server takes no writes: it is a replica"),
    (exceptions.OutOfMemoryError, "the server's memory is full"),
    (exceptions.TimeoutError, "the server does not answer in time"),
    (exceptions.ConnectionError, "the server cannot be reached"),
)
"""The narrower types first."""
_SCHEMES = {"valkey": "redis", "valkeys": "rediss"}

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
local lease = redis.call('INCR', KEYS[2])
redis.call('SET', KEYS[1], lease, 'PX', ARGV[1])
return lease
"""
_RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
end
"""


def summary_key(summary_id: str) -> str:
    """Where the server has a summary."""
    return f"{PREFIX}summary:{summary_id}"


def lease_key(summary_id: str) -> str:
    """Where the server has the lease of a summary."""
    return f"{PREFIX}lease:{summary_id}"


class RedisStore:
    """A SummaryStore on one server; it connects when it is first used.

    A server that lost its data counts leases anew; the worst of that is one summary made twice.
    """

    name = "redis"

    def __init__(self, url: str, *, ttl_seconds: float) -> None:
        """Raises ValueError or TypeError where the URL is none, or has options that there are not."""
        scheme, separator, rest = url.partition("://")
        pool = BlockingConnectionPool.from_url(
            _SCHEMES.get(scheme, scheme) + separator + rest,
            max_connections=MAX_CONNECTIONS,
            timeout=OPERATION_SECONDS,
            socket_timeout=OPERATION_SECONDS,
            socket_connect_timeout=CONNECT_SECONDS,
            retry=Retry(NoBackoff(), 0),
            protocol=2,  # with 3 and its notifications, a connection that the server has closed is used once more
        )
        pool.connection_class(**pool.connection_kwargs)  # not opened: only to see that it can be
        self._client = Redis.from_pool(pool)
        self._ttl_milliseconds = _to_milliseconds(ttl_seconds)
        self._tasks = Tasks(lambda _: None)  # an operation's error is for who asked, or for nobody
        self._put = self._client.register_script(_PUT)
        self._claim = self._client.register_script(_CLAIM)
        self._release = self._client.register_script(_RELEASE)

    async def get(self, summary_id: str) -> bytes | None:
        """The summary under an id, if it is there."""
        key = summary_key(summary_id)
        sealed = await self._ask(lambda: self._client.getex(key, px=self._ttl_milliseconds))
        return sealed if isinstance(sealed, bytes) else None

    async def put(self, summary_id: str, sealed: bytes, lease: int | None = None) -> bytes | None:
        """Keep a summary unless the id has one."""
        keys = [summary_key(summary_id), lease_key(summary_id)]
        arguments: list[bytes | str | int] = [sealed, self._ttl_milliseconds, "" if lease is None else lease]
        kept: bytes | None = await self._ask(lambda: self._put(keys, arguments))
        return kept

    async def claim(self, summary_id: str, seconds: float) -> int | None:
        """A lease, unless another holds."""
        keys = [lease_key(summary_id), FENCE]
        lease: int | None = await self._ask(lambda: self._claim(keys, [_to_milliseconds(seconds)]))
        return lease

    async def release(self, summary_id: str, lease: int) -> None:
        """Give a lease back."""
        await self._ask(lambda: self._release([lease_key(summary_id)], [lease]))

    async def close(self) -> None:
        """Let what is under way end, and let go of the connections."""
        await self._tasks.settle()
        await self._ask(self._client.aclose)

    async def _ask(self, operation: Callable[[], Awaitable[Any]]) -> Any:
        """The server's answer. Raises StoreError where there is none.

        A caller that is cancelled lets the operation end: the client can lose a cancellation, or a connection to it.
        """
        task = self._tasks.start(self._perform(operation))
        await asyncio.wait({task})
        return task.result()

    async def _perform(self, operation: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return await operation()
        except (exceptions.RedisError, OSError) as error:
            raise StoreError(self.name, _describe(error)) from error


def _describe(error: exceptions.RedisError | OSError) -> str:
    if isinstance(error, OSError):
        return describe_fault(error)
    return next((words for kind, words in _FAULTS if isinstance(error, kind)), "the server reports an error")


def _to_milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))
