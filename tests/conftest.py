"""Hypothesis profiles for all property tests, and a real proxy on real sockets in front of the fake upstream.

`trimtab`: few examples, the same in every run, without a deadline.
`thorough` (`--hypothesis-profile=thorough`): many examples, different in every run, to find what `trimtab` missed.
`few`: for runs that look for other problems than broken laws, for example incompatible library versions.
"""

import gc
import itertools
import os
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import pytest
import structlog
import tiktoken
from hypothesis import HealthCheck, settings
from support.late_connections import close_late_connections
from support.model_learning import ListLog
from upstreams.forward_proxy import run_forward_proxy
from upstreams.recording import FakeUpstream, run_upstream
from yarl import URL

from trimtab.proxy.compaction import pool
from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.compaction.tokenizers.exact import load_encoding, read_vocabulary
from trimtab.proxy.config.load import load_config
from trimtab.proxy.server.app import Proxy, run_proxy
from trimtab.proxy.telemetry.logs import reset_log
from trimtab.proxy.wire.codec import Codec
from trimtab.proxy.wire.dialects import CODECS

YOUNG_OBJECTS = 20_000
"""New objects after which Python looks for garbage; its own number is 700. Chosen."""
QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large)

settings.register_profile(
    "trimtab", deadline=None, derandomize=True, database=None, max_examples=30, suppress_health_check=QUIET
)
settings.register_profile("thorough", deadline=None, database=None, max_examples=1500, suppress_health_check=QUIET)
settings.register_profile(
    "quick", deadline=None, derandomize=True, database=None, max_examples=10, suppress_health_check=QUIET
)
settings.register_profile(
    "few", deadline=None, derandomize=True, database=None, max_examples=3, suppress_health_check=QUIET
)
settings.load_profile("trimtab")

pytest_plugins = [
    "support.tracing",
    "support.slow_tests",
    "support.first_cases",
    "support.elsewhere",
    "support.one_report",
]

StartProxy = Callable[..., Awaitable[Proxy]]

_data = pytest.StashKey[Path]()
_numbers = itertools.count()


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name a gzip file without its bytes: the time in its head differs from process to process."""
    return "gzip" if isinstance(val, bytes) and val.startswith(b"\x1f\x8b") else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Collect no garbage while tests are collected: that takes a quarter of the time.

    Later garbage collections leave out the collected tests: else a full one examines them anew, for a second each.
    And they are rarer than Python's own, which take a twentieth of the tests' time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS)
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Iterator[object]:
    """What all tests of a process share. Were each a fixture, pytest would look at it again for each test.

    SIGINT is heeded: a shell lets background processes ignore it, and what the tests start would inherit that. The
    tests' servers close connections that are accepted while they end. The machine's TRIMTAB_ variables set no key of a
    test's configuration. Whatever loads a vocabulary shares it with all others: to load it takes a third of a second.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    shared, ranks = cache(load_encoding), cache(read_vocabulary)
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder, pytest.MonkeyPatch.context() as monkeypatch:
        session.config.stash[_data] = Path(folder)
        monkeypatch.setenv("XDG_DATA_HOME", folder)
        close_late_connections(monkeypatch)
        for name in list(os.environ):
            if name.startswith("TRIMTAB_") and name != "TRIMTAB_CLIENTS":
                monkeypatch.delenv(name)
        monkeypatch.setattr(pool, "load_encoding", lambda name, _=None: shared(name))
        monkeypatch.setattr(pool, "read_vocabulary", ranks)
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    """A test sees no other's store, and not the user's; it has its own seed, and leaves no configuration of the log.

    Only what writes data makes their directory. The number of the process is for forks, which go on from one count.
    """
    random.seed(item.nodeid)
    os.environ["XDG_DATA_HOME"] = str(item.config.stash[_data] / f"{os.getpid()}-{next(_numbers)}")
    try:
        return (yield)
    finally:
        reset_log()
        structlog.reset_defaults()


@pytest.fixture(scope="session")
def encoding() -> tiktoken.Encoding:
    """The packed vocabulary of the newer models."""
    return pool.load_encoding("o200k_base")


@pytest.fixture(scope="session")
def compactors() -> Compactors:
    """The tokenizers of all tests. Loaded: else the first tests' answers are told when a thread has loaded them."""
    loaded = Compactors(ListLog())
    loaded.load()
    return loaded


@pytest.fixture
def log() -> ListLog:
    """The lines that the proxy logs."""
    return ListLog()


@pytest.fixture
async def upstream() -> AsyncIterator[FakeUpstream]:
    """The fake upstream."""
    async with run_upstream() as running:
        yield running


@pytest.fixture
async def start_proxy(upstream: FakeUpstream, compactors: Compactors, log: ListLog) -> AsyncIterator[StartProxy]:
    """A function that starts a proxy with `dotted.key=value` settings, by default in front of the fake upstream."""
    async with AsyncExitStack() as stack:

        async def start(*settings: str, codecs: Iterable[Codec] = CODECS) -> Proxy:
            base = (
                "listen=127.0.0.1:0",
                f"upstream.base_url={upstream.url}",
                "limits.drain_seconds=2",
                "limits.max_plan_seconds=30",  # on a busy machine, work waits long for a thread
                "store=memory",
                "prices={}",  # as of an upstream that charges for tokens, although it is local
            )
            config = load_config(settings=(*base, *settings), environment={})
            proxy = await stack.enter_async_context(run_proxy(config, log, compactors, codecs=codecs))
            log.fill.append(proxy.services.recorder.drain)
            return proxy

        yield start


@pytest.fixture
async def start_known(start_proxy: StartProxy, upstream: FakeUpstream) -> AsyncIterator[StartProxy]:
    """A function that starts a proxy in front of the fake upstream, which has the name of a known host."""
    async with run_forward_proxy() as forward:

        async def start(host: str, *settings: str) -> Proxy:
            base = f"upstream.base_url=http://{host}:{URL(upstream.url).port}/v1"
            return await start_proxy(base, f"upstream.proxy=http://{forward.address}", *settings)

        yield start


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    """An HTTP client that does not decompress response bodies."""
    async with aiohttp.ClientSession(auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar()) as session:
        yield session
