"""Opens the store that the configuration names: a durable one behind memory, which replaces it during an outage.

Law: the proxy starts if the store is unreachable now, but not if the store can never be reached. No request fails
because a store fails, and none waits for a store that is known to be out. After an outage, the summaries of that time
are written to the durable store. So is a summary in use that the durable store has lost. If another process has written
first, its text holds.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import platformdirs

from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.schema import Config
from trimtab.proxy.lru import BytesLRU
from trimtab.proxy.store.sqlite import SqliteStore
from trimtab.proxy.store.store import MemoryStore, StoreError, SummaryStore
from trimtab.proxy.tasks import Tasks, find_pause

T = TypeVar("T")

FRONT_SHARE = 0.5
"""The share of a summary's lifetime that memory keeps it. Then the durable store is asked again, and so learns that
the summary is still in use. Chosen: any share below 1 works; half leaves time for a retry."""
CONFIRM_SECONDS = 5.0
"""After this time, the next use of a summary in memory has the durable store asked whether it is still there. Chosen:
below the ten seconds after which the records of a model are read again, so that each such read notices a loss."""
CONFIRMED_BYTES = 1024 * 1024  # For when summaries were last confirmed. Chosen: some thousand.
FIRST_STAND_IN_LEASE = 1 << 62  # Of memory: larger than all of durable stores, so a lease shows who granted it
FIRST_PAUSE_SECONDS = 0.5  # Before a store that is out is probed, doubled each time. Chosen for short restarts.
MAX_PAUSE_SECONDS = 30.0  # chosen: a store that is back is used again within half a minute
PROBE_ID = "probe"
PROBE_SECONDS = 1.0  # Lease time of the probe. Chosen: it matters only if the process dies.
MAX_UNWRITTEN = 65536  # chosen: far more summaries than an outage brings, while their ids take only a few megabytes


class LayeredStore:
    """A SummaryStore that consists of two; its name is that of the durable one.

    `on_error` is called with the name once for each failed operation of the durable store. After an outage, at most the
    newest `max_unwritten` summaries are written to the durable store.
    """

    def __init__(
        self,
        durable: SummaryStore,
        *,
        ttl_seconds: float,
        on_error: Callable[[str], None],
        log: Any,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.name = durable.name
        self._durable = durable
        self._memory = MemoryStore(
            ttl_seconds=FRONT_SHARE * ttl_seconds, clock=clock, renews=False, first_lease=FIRST_STAND_IN_LEASE
        )
        self._on_error = on_error
        self._log = log
        self._clock = clock
        self._sleep = sleep
        self._confirmed: BytesLRU[str, float] = BytesLRU(CONFIRMED_BYTES, lambda summary_id, _: len(summary_id))
        self._unwritten: dict[str, None] = {}
        self.max_unwritten = MAX_UNWRITTEN
        self._tasks = Tasks(lambda error: log.error("store_fault", error=type(error).__name__))
        """At most one task, the recovery. While it runs, the durable store is out."""
        self._confirming = Tasks(lambda error: log.error("store_fault", error=type(error).__name__))

    async def get(self, summary_id: str) -> bytes | None:
        sealed = await self._memory.get(summary_id)
        if sealed is not None:
            self._confirm_soon(summary_id, sealed)
            return sealed
        return self._hold(summary_id, await self._ask(lambda store: store.get(summary_id)))

    async def put(self, summary_id: str, sealed: bytes, lease: int | None = None) -> bytes | None:
        async def keep(store: SummaryStore) -> bytes | None:
            if store is self._durable:
                is_own = lease is not None and lease < FIRST_STAND_IN_LEASE
                return await store.put(summary_id, sealed, lease if is_own else None)
            self._write_later(summary_id)
            return await store.put(summary_id, sealed)

        return self._hold(summary_id, await self._ask(keep))

    async def claim(self, summary_id: str, seconds: float) -> int | None:
        """A new lease; None while another one is valid. During an outage it excludes only callers of this process."""
        return await self._ask(lambda store: store.claim(summary_id, seconds))

    async def renew(self, summary_id: str, lease: int, seconds: float) -> bool:
        """Prolong a lease at the store that granted it. False during an outage of that store."""
        if lease >= FIRST_STAND_IN_LEASE:
            return await self._memory.renew(summary_id, lease, seconds)
        return await self._ask(lambda store: store.renew(summary_id, lease, seconds))

    async def release(self, summary_id: str, lease: int) -> None:
        if lease >= FIRST_STAND_IN_LEASE:
            await self._memory.release(summary_id, lease)
        else:
            await self._ask(lambda store: store.release(summary_id, lease))

    async def settle(self) -> None:
        """Wait until the durable store has what it lost and, if it is out, answers again and has what it missed."""
        await self._confirming.settle()
        await self._tasks.settle()

    async def close(self) -> None:
        await self._confirming.close()
        await self._tasks.close()
        with suppress(StoreError):
            await self._durable.close()

    # Strategy: while the durable store is well, every operation goes there first. Its first failure starts the one task
    # of recovery, and as long as that runs, nobody waits for the store: memory answers, and notes what was missed.
    async def _ask(self, operation: Callable[[SummaryStore], Awaitable[T]]) -> T:
        if self._tasks.is_idle:
            try:
                return await operation(self._durable)
            except StoreError as error:
                self._stand_in(error)
        return await operation(self._memory)

    def _hold(self, summary_id: str, kept: bytes | None) -> bytes | None:
        if kept is not None:
            self._memory.replace(summary_id, kept)
            self._confirmed[summary_id] = self._clock()
        return kept

    def _confirm_soon(self, summary_id: str, sealed: bytes) -> None:
        """Confirm in the background that the durable store still has a summary, if that is due."""
        now = self._clock()
        if now - (self._confirmed.get(summary_id) or 0.0) > CONFIRM_SECONDS and self._tasks.is_idle:
            self._confirmed[summary_id] = now
            _ = self._confirming.start(self._confirm(summary_id, sealed))

    async def _confirm(self, summary_id: str, sealed: bytes) -> None:
        async def confirm(store: SummaryStore) -> bytes | None:
            return await store.get(summary_id) or await store.put(summary_id, sealed)

        self._hold(summary_id, await self._ask(confirm))

    def _write_later(self, summary_id: str) -> None:
        self._unwritten[summary_id] = None
        if len(self._unwritten) > self.max_unwritten:  # dropping the oldest is safe: it costs one new summary
            del self._unwritten[next(iter(self._unwritten))]

    def _stand_in(self, error: StoreError) -> None:
        self._on_error(self.name)
        if self._tasks.is_idle:
            self._log.warning("store_unreachable", store=self.name, reason=error.fault)
            _ = self._tasks.start(self._recover())

    async def _recover(self) -> None:
        for failures in count(1):
            await self._sleep(find_pause(failures, FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS))
            try:
                await self._probe()
                await self._write_through()
            except StoreError:
                self._on_error(self.name)
            else:
                self._log.info("store_reachable", store=self.name)
                return

    async def _probe(self) -> None:
        # A write, because a full disk still answers reads.
        lease = await self._durable.claim(PROBE_ID, PROBE_SECONDS)
        if lease is not None:
            await self._durable.release(PROBE_ID, lease)

    async def _write_through(self) -> None:
        while self._unwritten:
            summary_id = next(iter(self._unwritten))
            sealed = await self._memory.get(summary_id)
            if sealed is not None:
                self._hold(summary_id, await self._durable.put(summary_id, sealed))
            self._unwritten.pop(summary_id, None)


FILE_NAME = "summaries.sqlite3"


def data_directory() -> Path:
    return Path(platformdirs.user_data_dir("trimtab", appauthor=False))


def find_beside(config: Config, ending: str, name: str) -> Path | None:
    """A file of `store: sqlite`: beside the one that is named, else `name` in the data directory."""
    scheme, _, rest = config.store.partition("://")
    if scheme != "sqlite":
        return None
    return Path(f"{rest[1:]}{ending}").expanduser() if rest else data_directory() / name


def find_key_file(config: Config) -> Path | None:
    return None if config.store == "memory" else find_beside(config, ".key", "key") or data_directory() / "key"


def open_store(config: Config, on_error: Callable[[str], None], log: Any) -> SummaryStore:
    """The store that the configuration names.

    `memory`; `sqlite`, a file in the data directory; `sqlite:///relative/path` or `sqlite:////absolute/path`;
    `redis://host:port/db`, `rediss://`, `valkey://`, `valkeys://`, each also with `+sentinel` or `+cluster`. The
    configuration accepts no others. Raises ConfigError if the Redis package is missing or the URL is unusable.
    """
    url, ttl_seconds = config.store, config.store_ttl_seconds
    if url == "memory":
        return MemoryStore(ttl_seconds=ttl_seconds)
    file = find_beside(config, "", FILE_NAME)
    durable = _open_redis(url, ttl_seconds) if file is None else SqliteStore(file, ttl_seconds=ttl_seconds, log=log)
    return LayeredStore(durable, ttl_seconds=ttl_seconds, on_error=on_error, log=log)


def require_store(config: Config) -> None:
    """Raise ConfigError if the configured store can never be opened. No file is opened, and no server is asked."""
    if config.store != "memory" and config.store.partition("://")[0] != "sqlite":
        _open_redis(config.store, config.store_ttl_seconds)


def _open_redis(url: str, ttl_seconds: float) -> SummaryStore:
    # The errors do not repeat the URL, because it may contain a password.
    try:
        from trimtab.proxy.store.redis import RedisStore  # noqa: PLC0415  an optional package, and slow to import
    except ImportError as error:
        raise ConfigError("store: Redis needs a package that is not installed: pip install 'trimtab[redis]'") from error
    try:
        return RedisStore(url, ttl_seconds=ttl_seconds)
    except (ValueError, TypeError) as error:
        raise ConfigError("store: not a URL of a Redis server; it must look like redis://host:port/db") from error
