"""Profiles for all property tests; a real proxy over real sockets, in front of the fake upstream.

`trimtab`: few examples, the same at every run, however slow the machine. `thorough` (`--hypothesis-profile=thorough`):
many, and others at each run, to look for what the few have missed. `few`: for a run that looks for other things than
broken laws, such as versions of libraries that do not fit.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack

import aiohttp
import pytest
import structlog
from hypothesis import HealthCheck, settings
from support.model_learning import ListLog
from upstreams.recording import FakeUpstream, run_upstream

from proxy.compaction.pool import Compactors
from proxy.config.load import load_config
from proxy.server.app import Proxy, run_proxy
from proxy.wire.codec import Codec
from proxy.wire.dialects import CODECS

QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large)

settings.register_profile(
    "trimtab", deadline=None, derandomize=True, database=None, max_examples=30, suppress_health_check=QUIET
)
settings.register_profile("thorough", deadline=None, database=None, max_examples=1500, suppress_health_check=QUIET)
settings.register_profile(
    "few", deadline=None, derandomize=True, database=None, max_examples=3, suppress_health_check=QUIET
)
settings.load_profile("trimtab")

StartProxy = Callable[..., Awaitable[Proxy]]


@pytest.fixture(autouse=True)
def _own_data_directory(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test finds what another has stored, or what the user has."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))


@pytest.fixture(autouse=True)
def _own_log() -> Iterator[None]:
    """No test logs as another has told the process to."""
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def compactors() -> Compactors:
    """The vocabulary, loaded once."""
    return Compactors(ListLog())


@pytest.fixture
def log() -> ListLog:
    """What the proxy logs."""
    return ListLog()


@pytest.fixture
async def upstream() -> AsyncIterator[FakeUpstream]:
    """The fake upstream."""
    async with run_upstream() as running:
        yield running


@pytest.fixture
async def start_proxy(upstream: FakeUpstream, compactors: Compactors, log: ListLog) -> AsyncIterator[StartProxy]:
    """Start a proxy with `dotted.key=value` settings, in front of the fake upstream unless they say otherwise."""
    async with AsyncExitStack() as stack:

        async def start(*settings: str, codecs: Iterable[Codec] = CODECS) -> Proxy:
            base = (
                "listen=127.0.0.1:0",
                f"upstream.base_url={upstream.url}",
                "limits.drain_seconds=2",
                "store=memory",
            )
            config = load_config(settings=(*base, *settings), environment={})
            return await stack.enter_async_context(run_proxy(config, log, compactors, codecs=codecs))

        yield start


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    """An HTTP client that leaves bodies as they are."""
    async with aiohttp.ClientSession(auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar()) as session:
        yield session
