"""Values of one request, and real services for its stages. Only the upstream client is a fake, so nothing is sent."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from math import inf
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import orjson
from msgspec import structs
from multidict import CIMultiDict
from support.model_learning import ListLog
from support.sessions import make_session
from upstreams.recording import completion, write_note

from trimtab.proxy.account.recorder import Recorder
from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.config.load import load_config
from trimtab.proxy.exchange.arrival import Arrival, read_arrival
from trimtab.proxy.exchange.attempt import Attempt, Call
from trimtab.proxy.exchange.compact import compact, prepare_call
from trimtab.proxy.exchange.route import Route, Target, choose_route
from trimtab.proxy.exchange.services import Services
from trimtab.proxy.http.client import UpstreamClient
from trimtab.proxy.http.relay import Reply
from trimtab.proxy.http.request_body import Uploads
from trimtab.proxy.http.tenancy import Tenancy
from trimtab.proxy.memory import Memory
from trimtab.proxy.models.service import Models
from trimtab.proxy.store.store import MemoryStore
from trimtab.proxy.summaries.calls import SummaryCalls
from trimtab.proxy.summaries.cold_cuts import ColdCuts
from trimtab.proxy.summaries.kept_texts import FoundTexts, Originals
from trimtab.proxy.summaries.service import Summaries
from trimtab.proxy.telemetry.metrics import Metrics
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.codec import Request
from trimtab.rules.conversation import Decision

TENANCY = Tenancy("authorization", b"a key of this proxy's own")
TARGET = Target("local", "m", "m", match="m*", mode="enforce")
DECISIONS = (
    Decision("truncate", "2 tool results over 4000 tokens", 900, 400, 2, 3),
    Decision("pairing", "1 calls answered", 400, 408, 1, 7),
)
NOTE = write_note("SUMMARY of the work so far.")


def _arrive(**headers: str) -> Arrival:
    path, raw = CHAT.path, tuple((name.encode(), value.encode()) for name, value in headers.items())
    request: Any = SimpleNamespace(method="POST", path=path, raw_path=path, raw_headers=raw)
    return structs.replace(read_arrival(request, CHAT, TENANCY), request_id="id", started_at=100.0)


ARRIVAL = _arrive()


def arrive(**headers: str) -> Arrival:
    """A request with a credential and these headers."""
    return _arrive(**{"Authorization": "Bearer sk-of-the-client", **headers})


def read(messages: list[dict[str, Any]], **more: Any) -> Request:
    """The request with this transcript."""
    return CHAT.read(orjson.dumps({"model": "m", "messages": messages, **more}))


def read_session(steps: int, *, result_words: int = 120, **more: Any) -> Request:
    """The request of a session after `steps` steps."""
    return read(make_session(steps, result_words=result_words)["messages"][:-1], **more)


def make_reply() -> Reply:
    """A reply to a client to whom nothing was sent; any attempt to send raises."""
    return Reply(Mock(spec=()))


@dataclass
class _Answer:
    """A complete response."""

    status: int
    body: bytes
    headers: CIMultiDict[str] = field(default_factory=CIMultiDict)

    @property
    def content(self) -> "_Answer":
        return self

    async def iter_any(self) -> AsyncIterator[bytes]:
        yield self.body


class ScriptedClient(UpstreamClient):
    """Keeps requests instead of sending them, and answers them.

    asked: the questions. Each is answered by `status` and a note as soon as `released` is set.
    arrived: set after the first question.
    windows_asked: the headers of requests for a context window; they are answered by 404.
    """

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.windows_asked: list[CIMultiDict[str]] = []
        self.status = 200
        self.arrived, self.released = asyncio.Event(), asyncio.Event()
        self.released.set()

    async def close(self) -> None:
        """Do nothing: no connection is open."""

    @asynccontextmanager
    async def send(
        self, method: str, _url: Any, headers: CIMultiDict[str], body: bytes | None, _upstream: Any
    ) -> AsyncIterator[_Answer]:
        """Yield the response to a request."""
        if method == "GET" or body is None:
            self.windows_asked.append(headers)
            yield _Answer(404, b"")
            return
        self.asked.append(orjson.loads(body))
        self.arrived.set()
        await self.released.wait()
        yield _Answer(self.status, completion(NOTE).body)


@dataclass(frozen=True)
class Stages:
    """The services of stages, and functions for the stages before the one under test."""

    services: Services
    client: ScriptedClient
    log: ListLog

    def route(self, model: str = "m", **headers: str) -> Route:
        """The route of a request for a model."""
        return choose_route(self.services.config, arrive(**headers), CIMultiDict(headers), model, CHAT)

    async def prepare(self, request: Request, **headers: str) -> Call:
        """The call of a request."""
        arrival, route = arrive(**headers), self.route(request.model, **headers)
        return await prepare_call(self.services, arrival, route, request, self.services.lane(arrival.tenant))

    async def attempt(self, request: Request, **headers: str) -> Attempt:
        """The first attempt of a request."""
        arrival, route = arrive(**headers), self.route(request.model, **headers)
        lane = self.services.lane(arrival.tenant)
        return await compact(self.services, arrival, route, request, make_reply(), lane)

    async def settle(self) -> None:
        """Wait until no facts about models are being learned."""
        await self.services.models.settle()

    def count(self, metric: str, **labels: str) -> float:
        """The value of a metric; 0 if it has none for these labels."""
        return self.services.recorder.metrics.registry.get_sample_value(f"trimtab_{metric}", labels) or 0.0


MakeStages = Callable[..., Awaitable[Stages]]


@asynccontextmanager
async def run_stages(compactors: Compactors, *settings: str) -> AsyncIterator[Stages]:
    """Services with these settings and a store in memory. Window and prices are configured: no upstream is asked."""
    base = ("upstream.base_url=http://127.0.0.1:9/v1", "defaults.context_window=8000", "store=memory", "prices={}")
    config = load_config(settings=(*base, *settings), environment={})
    client, store, metrics, log = ScriptedClient(), MemoryStore(), Metrics(), ListLog()
    summaries = Summaries(store, client, SummaryCalls(metrics, log))
    models = Models(store, client, metrics, log)
    uploads = Uploads(inf, config.limits.client_silence_seconds)
    tenancy = replace(TENANCY, tenant=config.tenant)
    recorder = Recorder(metrics, log)
    services = Services(
        config,
        client,
        summaries,
        recorder,
        tenancy,
        compactors,
        models,
        uploads,
        Memory(config.limits.max_memory_bytes),
        ColdCuts(store),
        Originals(store),
        FoundTexts(store),
    )
    try:
        yield Stages(services, client, log)
    finally:
        await summaries.close()
        await models.close()
