"""Proxies one after the other or side by side, an upstream that misbehaves, and a check of what libraries log."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from support.model_learning import ListLog
from upstreams.faulty import FaultyUpstream, run_faulty_upstream
from upstreams.recording import FakeUpstream

from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.config.load import load_config
from trimtab.proxy.server.app import Proxy, run_proxy

Serve = Callable[..., AbstractAsyncContextManager[Proxy]]


@pytest.fixture
async def raw() -> AsyncIterator[FaultyUpstream]:
    async with run_faulty_upstream() as upstream:
        yield upstream


@pytest.fixture
def serve(upstream: FakeUpstream, compactors: Compactors, log: ListLog, request: pytest.FixtureRequest) -> Serve:
    """A function that runs a proxy with the module's `SETTINGS` and further ones while a block runs."""

    @asynccontextmanager
    async def run(*settings: str) -> AsyncIterator[Proxy]:
        base = ("listen=127.0.0.1:0", f"upstream.base_url={upstream.url}", *request.module.SETTINGS)
        async with run_proxy(load_config(settings=(*base, *settings), environment={}), log, compactors) as proxy:
            yield proxy

    return run


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No library logs a warning or an error, and no task's exception goes unnoticed."""
    yield
    assert not [record.message for record in caplog.records if record.levelname in {"WARNING", "ERROR", "CRITICAL"}]
