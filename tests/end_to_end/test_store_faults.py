"""A store that fails during a session, and a clock that jumps: the forwarded requests stay the same.

Law: no request fails because of the store. One table lists each fault, its effect on the store, and its log events.
"""

import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from programs.redis_server import PROGRAM, RedisServer, run_redis
from support.client import SMALL, post, settle
from support.leaks import read_sample
from support.sessions import make_session, requests_of

from trimtab.proxy.server.app import Proxy
from trimtab.proxy.store import opening, sqlite

SETTINGS = (*SMALL, "defaults.overflow_strategy=summarize", "defaults.summary.max_tokens=300")
STEPS = 42
OUT, BACK, ASIDE = "store_unreachable", "store_reachable", "store_set_aside"
LOCK = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); c.execute('BEGIN EXCLUSIVE')"
DAY_SECONDS = 86400.0


@dataclass(frozen=True, slots=True)
class Place:
    """The path of the store, and the proxy that uses it."""

    path: Path
    proxy: Proxy
    server: RedisServer | None = None

    @property
    def durable(self) -> Any:
        """The durable store below the one in memory."""
        return self.proxy.services.summaries._store._durable


Inflict = Callable[[Place], Any]


@contextmanager
def lock(place: Place) -> Iterator[None]:
    """Another process begins a write and does not finish it."""
    command = [sys.executable, "-c", f"{LOCK}; print(1, flush=True); sys.stdin.read()", str(place.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline()
        yield
        process.communicate()


@contextmanager
def fill_disk(_: Place) -> Iterator[None]:
    """No file of this process may grow."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def forbid_writing(place: Place) -> Iterator[None]:
    """The file can only be read, as on a file system that was remounted after an error."""

    def allow(value: str) -> None:
        def work() -> None:
            place.durable._thread._file._connect().execute(f"PRAGMA query_only = {value}")

        place.durable._thread._thread.submit(work).result()

    allow("ON")
    yield
    allow("OFF")


@contextmanager
def damage(place: Place) -> Iterator[None]:
    """The bytes of the file are overwritten while it is open."""
    for path in place.path.parent.glob(f"{place.path.name}*"):
        if path.suffix != ".lock":
            path.write_bytes(b"\x55" * max(path.stat().st_size, 4096))
    yield


@contextmanager
def remove(place: Place) -> Iterator[None]:
    """Somebody deletes the whole directory."""
    shutil.rmtree(place.path.parent)
    yield


@contextmanager
def stop_server(place: Place) -> Iterator[None]:
    """The server dies with all its data, and is started again."""
    place.server.stop()
    yield
    place.server.start()


@contextmanager
def freeze_server(place: Place) -> Iterator[None]:
    """The server accepts connections but does not answer."""
    with place.server.frozen():
        yield


@contextmanager
def leap(place: Place, days: float) -> Iterator[None]:
    """The clock jumps by a number of days, and stays there."""
    place.durable._clock = lambda: time.time() + days * DAY_SECONDS
    yield


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of the store.

    said: the events that the log must contain.
    errors: whether operations of the store fail.
    server: whether the store is a Redis server.
    lost: whether a summary is lost.
    """

    name: str
    inflict: Inflict
    said: tuple[str, ...] = ()
    errors: bool = False
    server: bool = False
    lost: bool = False


FAULTS = (
    Fault("locked by another process", lock, (OUT, BACK), errors=True),
    Fault("disk full", fill_disk, (OUT, BACK), errors=True),
    Fault("read-only", forbid_writing, (OUT, BACK), errors=True),
    Fault("corrupt", damage, (ASIDE,)),
    Fault("gone", remove),
    Fault("a day ahead", lambda place: leap(place, 1)),
    Fault("a day back", lambda place: leap(place, -1)),
    Fault("a month ahead, beyond every summary's life", lambda place: leap(place, 30)),
    Fault("a month back", lambda place: leap(place, -30), lost=True),
    Fault("server stopped", stop_server, (OUT, BACK), errors=True, server=True),
    Fault("server silent", freeze_server, (OUT, BACK), errors=True, server=True),
)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the store's waiting times for the tests."""
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.05)
    monkeypatch.setattr(opening, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(opening, "MAX_PAUSE_SECONDS", 0.02)


@pytest.fixture(scope="module")
def bodies() -> list[dict[str, Any]]:
    """The requests of a session."""
    session = make_session(STEPS, result_words=120)
    return [{"model": "m", "messages": messages, "tools": session["tools"]} for messages in requests_of(session)]


async def ask_all(client: Any, proxy: Proxy, bodies: list[dict[str, Any]]) -> None:
    """Send requests, and wait after each for the summary that it may have started in the background."""
    for body in bodies:
        response, _ = await post(client, proxy.url + "/v1/chat/completions", body)
        assert response.status == 200
        await settle(proxy)


async def recover(proxy: Proxy) -> None:
    """Wait until the durable store is reachable again."""
    await proxy.services.summaries._store.settle()


@contextmanager
def place_store(fault: Fault, directory: Path) -> Iterator[tuple[str, RedisServer | None]]:
    """The setting for the store, and its server if it has one."""
    if not fault.server:
        yield f"sqlite:///{directory}/own/summaries.sqlite3", None
        return
    if PROGRAM is None:
        pytest.skip("redis-server is not on PATH")
    with run_redis() as server:
        yield f"{server.url}?socket_timeout=0.1&socket_connect_timeout=0.1", server


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
async def test_a_store_that_fails_in_mid_session_changes_nothing(fault, bodies, client, upstream, request) -> None:
    """The forwarded bytes are those of a store without faults, during the fault and after it. No summary is lost."""
    serve, log, directory = map(request.getfixturevalue, ("serve", "log", "tmp_path"))
    async with serve("store=memory") as proxy:
        await ask_all(client, proxy, bodies)
    alone = [recorded.body for recorded in upstream.chats]
    upstream.requests.clear()
    with place_store(fault, directory) as (store, server):
        async with serve(f"store={store}") as proxy:
            await ask_all(client, proxy, bodies[: STEPS // 3])
            with fault.inflict(Place(directory / "own" / "summaries.sqlite3", proxy, server)):
                await ask_all(client, proxy, bodies[STEPS // 3 : -STEPS // 6])
            await recover(proxy)
            await ask_all(client, proxy, bodies[-STEPS // 6 :])
            assert (read_sample(proxy, "trimtab_store_errors_total") > 0) is fault.errors
            assert read_sample(proxy, "trimtab_fail_open_total") == 0
        assert [recorded.body for recorded in upstream.chats] == alone
        assert tuple(line["event"] for line in log.lines if line["event"].startswith("store_")) == fault.said
        upstream.requests.clear()
        async with serve(f"store={store}") as proxy:
            await ask_all(client, proxy, bodies[-1:])
    # Summaries written during the fault are found after a restart, unless they have expired.
    assert [len(upstream.chats), len(upstream.summaries)] == [1, int(fault.lost)]
