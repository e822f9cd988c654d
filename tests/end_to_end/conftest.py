"""Proxies one after the other or side by side, an upstream that misbehaves, and a check of what libraries log."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from support.dialects.agent_session import AgentSession
from support.dialects.agents import Agent
from support.model_learning import ListLog
from upstreams.raw import RawUpstream, run_raw_upstream
from upstreams.recording import FakeUpstream
from upstreams.strict import StrictModel

from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.config.load import load_config
from trimtab.proxy.server.app import Proxy, run_proxy

Serve = Callable[..., AbstractAsyncContextManager[Proxy]]


@pytest.fixture
async def raw() -> AsyncIterator[RawUpstream]:
    async with run_raw_upstream() as upstream:
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
def open_session(client, upstream: FakeUpstream) -> Callable[[Proxy, StrictModel, Agent], AgentSession]:
    """A function that begins an agent's session, with the model behind the fake upstream."""

    def begin(proxy: Proxy, model: StrictModel, agent: Agent) -> AgentSession:
        session = AgentSession(proxy, client, model, agent)
        upstream.answer = session.receive
        agent.say("Read all logs of the harbour, and tell why the clearance is wrong.")
        return session

    return begin


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No library logs a warning or an error, and no task's exception goes unnoticed."""
    yield
    assert not [record.message for record in caplog.records if record.levelname in {"WARNING", "ERROR", "CRITICAL"}]
