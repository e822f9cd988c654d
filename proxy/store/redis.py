"""Summaries on Redis or Valkey (6.2 or newer), shared by replicas: one server, sentinels, or a cluster.

Law: an atomic step is one script on one server, so the keys of a summary share a hash tag. A server that is silent for
a second counts as gone. An operation that has begun runs to its end, even if its caller leaves.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster, Sentinel, SSLConnection
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError, SentinelConnectionPool
from redis.backoff import NoBackoff

from trimtab.proxy.config.network import StoreServers, read_servers
from trimtab.proxy.store.store import PREFIX, StoreError, describe_fault
from trimtab.proxy.tasks import Tasks

# The clients for one server, for the master that sentinels name, and for the nodes of a cluster have the same commands.
# Only the cluster's client retries, once, because it learns only from a failed command that a node is gone.
CONNECT_SECONDS = 1.0
OPERATION_SECONDS = 1.0  # chosen, both: a request waits for the store at most this long before memory takes its place
MAX_CONNECTIONS = 32  # chosen: summaries are rare compared with requests, so few operations are in progress at once
CLUSTER_RETRIES = 1  # chosen: enough to follow a slot that has moved; a store that is out must fail soon


class RedisClient(msgspec.Struct, frozen=True):
    """`commands` return bytes. `close` closes all connections."""

    commands: Any
    close: Callable[[], Awaitable[None]]


def make_client(store: str) -> RedisClient:
    """The client for a store's URL. It connects at the first use. Raises ValueError or TypeError if it is unusable."""
    servers = read_servers(store)
    if servers.kind == "sentinel":
        return _make_sentinel_client(servers)
    return _make_cluster_client(servers) if servers.kind == "cluster" else _make_server_client(servers)


def _make_server_client(servers: StoreServers) -> RedisClient:
    pool = BlockingConnectionPool.from_url(
        servers.url, max_connections=MAX_CONNECTIONS, timeout=OPERATION_SECONDS, **_make_limits()
    )
    pool.connection_class(**pool.connection_kwargs)  # opens nothing; raises if an option is unknown
    client = Redis.from_pool(pool)
    return RedisClient(client, client.aclose)


class _SentinelPool(SentinelConnectionPool, BlockingConnectionPool):
    """Connections to the master that the sentinels name at the opening. If none is free, the caller waits."""


def _make_sentinel_client(servers: StoreServers) -> RedisClient:
    options = _read_options(servers)
    # TLS and its files apply to the sentinels too. User and password do not: the sentinels have their own.
    shared = {name: value for name, value in options.items() if name.startswith(("socket_", "ssl"))}
    own = {**_make_limits(), **shared, **dict(servers.sentinel_options)}
    sentinel = Sentinel(servers.hosts, sentinel_kwargs=own)  # type: ignore[no-untyped-call]
    limits = {"max_connections": MAX_CONNECTIONS, "timeout": OPERATION_SECONDS}
    settings = limits | _make_limits() | options
    pool = _SentinelPool(servers.service, sentinel, **settings)  # type: ignore[no-untyped-call]
    pool.connection_class(**pool.connection_kwargs)
    client = Redis.from_pool(pool)

    async def close() -> None:
        await client.aclose()
        for one in sentinel.sentinels:
            await one.aclose()

    return RedisClient(client, close)


class _Cluster(RedisCluster):
    """A cluster client that sends one command at a time. A command that waits longer than OPERATION_SECONDS fails.

    Several commands at once break each other's connections while redis-py opens them (seen with 8.1: "closed by
    server", AttributeError). One at a time is enough, because memory holds the texts that were read.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._turn = asyncio.Lock()

    async def execute_command(self, *arguments: Any, **options: Any) -> Any:
        async with asyncio.timeout(OPERATION_SECONDS):
            _ = await self._turn.acquire()
        try:
            return await super().execute_command(*arguments, **options)
        finally:
            self._turn.release()


def _make_cluster_client(servers: StoreServers) -> RedisClient:
    options = _make_limits() | _read_options(servers) | {"retry": Retry(NoBackoff(), CLUSTER_RETRIES)}
    nodes = [ClusterNode(host, port) for host, port in servers.hosts]
    client = _Cluster(startup_nodes=nodes, max_connections=MAX_CONNECTIONS, **options)
    return RedisClient(client, client.aclose)


def _make_limits() -> dict[str, Any]:
    return {
        "socket_timeout": OPERATION_SECONDS,
        "socket_connect_timeout": CONNECT_SECONDS,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,  # protocol 3, with its notifications, uses a connection once more after the server has closed it
    }


def _read_options(servers: StoreServers) -> dict[str, Any]:
    options: dict[str, Any] = dict(parse_url(servers.url))
    if options.pop("connection_class", None) is SSLConnection:
        options["ssl"] = True
    for name in ("host", "port"):
        options.pop(name, None)
    return options


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
