"""Clients of Redis: for one server, for the master that sentinels name, and for the nodes of a cluster.

Law: all three have the same commands. A server that is silent for a second counts as gone. Only the cluster's client
retries, once, because it learns only from a failed command that a node is gone.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster, Sentinel, SSLConnection
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.backoff import NoBackoff

from trimtab.proxy.config.network.urls import StoreServers, read_servers

CONNECT_SECONDS = 1.0
OPERATION_SECONDS = 1.0
"""Chosen, both: a request waits for the store at most this long before memory takes its place."""
MAX_CONNECTIONS = 32
"""Chosen: summaries are rare compared with requests, so few operations are in progress at once."""
CLUSTER_RETRIES = 1  # chosen: enough to follow a slot that has moved; a store that is out must fail soon


@dataclass(frozen=True, slots=True)
class RedisClient:
    """`commands` return bytes. `close` closes all connections."""

    commands: Any
    close: Callable[[], Awaitable[None]]


def make_client(store: str) -> RedisClient:
    """The client for a store's URL. It connects at the first use.

    Raises ValueError or TypeError if the URL is invalid or has unknown options.
    """
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
