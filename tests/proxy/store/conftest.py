"""Every store, with a clock that only the test moves."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis
from programs import redis_server
from programs.redis_groups import Cluster, Watched, run_cluster, run_watched
from programs.redis_server import RedisServer, run_redis

from trimtab.proxy.store import redis as redis_store
from trimtab.proxy.store.opening import LayeredStore
from trimtab.proxy.store.redis import RedisStore
from trimtab.proxy.store.sqlite import SqliteStore
from trimtab.proxy.store.store import MemoryStore, SummaryStore

OpenStore = Callable[..., SqliteStore]
TTL_SECONDS = 1000.0


class Clock:
    """A time that stands still until it is moved."""

    def __init__(self) -> None:
        self.seconds = 1_000_000.0

    def __call__(self) -> float:
        return self.seconds


@dataclass(frozen=True, slots=True)
class Subject:
    """A store under test.

    `twin` shares its data, as another process would. `age` lets this many seconds pass for both.
    """

    store: SummaryStore
    twin: SummaryStore
    ttl_seconds: float
    age: Callable[[float], Awaitable[None]]


@pytest.fixture(autouse=True)
def wait_long(monkeypatch) -> None:
    """Beside other tests, a server may answer late. A test of lateness sets its own limit."""
    monkeypatch.setattr(redis_store, "OPERATION_SECONDS", 30.0)
    monkeypatch.setattr(redis_store, "CONNECT_SECONDS", 30.0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def shared_redis() -> Iterator[RedisServer]:
    if redis_server.PROGRAM is None:
        pytest.skip("redis-server is not on PATH")
    with run_redis() as server:
        yield server


@pytest.fixture
def redis_at(shared_redis) -> RedisServer:
    with redis.Redis(port=shared_redis.port) as client:
        client.flushall()
    return shared_redis


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    if redis_server.PROGRAM is None:
        pytest.skip("redis-server is not on PATH")
    with run_redis() as server:
        yield server


@pytest.fixture(scope="session")
def shared_watched() -> Iterator[Watched]:
    if redis_server.PROGRAM is None:
        pytest.skip("redis-server is not on PATH")
    with run_watched() as watched:
        yield watched


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[Cluster]:
    if redis_server.PROGRAM is None:
        pytest.skip("redis-server is not on PATH")
    with run_cluster() as cluster:
        yield cluster


@pytest.fixture
def watched(shared_watched) -> Watched:
    _empty(shared_watched.master)
    return shared_watched


@pytest.fixture
def cluster(shared_cluster) -> Cluster:
    _empty(*shared_cluster.nodes)
    return shared_cluster


def _empty(*servers: RedisServer) -> None:
    for server in servers:
        with redis.Redis(port=server.port) as client:
            client.flushall()


@pytest.fixture(params=["memory", "sqlite", "redis", "redis+sentinel", "redis+cluster", "layered"])
async def subject(request, tmp_path, clock, log) -> AsyncIterator[Subject]:
    """Each kind of store in turn."""
    age = _make_clock_age(clock)
    if request.param == "memory":
        store = twin = MemoryStore(ttl_seconds=TTL_SECONDS, clock=clock)
    elif request.param.startswith("redis"):
        url, servers = _find_redis(request)
        store, twin = (RedisStore(url, ttl_seconds=TTL_SECONDS) for _ in range(2))
        age = _make_redis_age(*servers)
    else:
        make = _make_sqlite if request.param == "sqlite" else _make_layered
        store, twin = (make(tmp_path, clock, log) for _ in range(2))
    async with AsyncExitStack() as stack:
        for each in {store, twin}:
            stack.push_async_callback(each.close)
        yield Subject(store, twin, TTL_SECONDS, age)


def _make_sqlite(directory: Path, clock: Clock, log) -> SqliteStore:
    return SqliteStore(directory / "summaries.sqlite3", ttl_seconds=TTL_SECONDS, clock=clock, log=log)


def _make_layered(directory: Path, clock: Clock, log) -> LayeredStore:
    durable = _make_sqlite(directory, clock, log)
    return LayeredStore(durable, ttl_seconds=TTL_SECONDS, on_error=pytest.fail, log=log, clock=clock)


def _make_clock_age(clock: Clock):
    async def age(seconds: float) -> None:
        clock.seconds += seconds

    return age


def _find_redis(request) -> tuple[str, tuple[RedisServer, ...]]:
    """The URL of a kind of Redis, and the servers that keep its data."""
    if request.param == "redis":
        server = request.getfixturevalue("redis_at")
        return server.url, (server,)
    if request.param == "redis+sentinel":
        watched = request.getfixturevalue("watched")
        return watched.url, (watched.master,)
    cluster = request.getfixturevalue("cluster")
    return cluster.url, cluster.nodes


def _make_redis_age(*servers: RedisServer):
    """The servers have their own clocks, so the expiry of every key is brought nearer instead."""

    async def age(seconds: float) -> None:
        for server in servers:
            async with redis.asyncio.Redis(port=server.port) as client:
                for key in await client.keys():
                    remaining = await client.pttl(key)
                    if remaining >= 0:
                        await client.pexpire(key, remaining - round(seconds * 1000))

    return age


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "data" / "summaries.sqlite3"


@pytest.fixture
async def open_sqlite(path, clock, log) -> AsyncIterator[OpenStore]:
    async with AsyncExitStack() as stack:

        def open_it(**settings) -> SqliteStore:
            store = SqliteStore(**{"path": path, "ttl_seconds": 1600, "clock": clock, "log": log, **settings})
            stack.push_async_callback(store.close)
            return store

        yield open_it
