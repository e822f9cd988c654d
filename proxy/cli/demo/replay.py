"""The demo's replay: a session sent through the real proxy over real sockets, and what was measured on the way.

Law: every number comes from this run, from what the upstream received and from what the client was answered.
"""

import hashlib
import re
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import structlog

from proxy.cli.demo.session import MODEL, Session
from proxy.cli.demo.upstream import Cost, PromptCache, Served, SimulatedUpstream, run_upstream
from proxy.compaction.pool import Compactors
from proxy.config.load import load_config
from proxy.config.schema import PolicyConfig
from proxy.server.app import run_proxy

WINDOW_TOKENS = 32_000
RESERVE_TOKENS = 4_000

_RULE = re.compile(r"([a-z_]+);saved=")
_OVERHEAD_MS = re.compile(r"\btrimtab;dur=([\d.]+)")


class FaultLog:
    """A structlog processor that drops every event, and keeps the names of those that say that something is wrong."""

    def __init__(self) -> None:
        self.events: set[str] = set()

    def __call__(self, _: object, method: str, event: structlog.typing.EventDict) -> str:
        """Keep what is a warning or worse."""
        if method not in {"debug", "info"}:
            self.events.add(str(event["event"]))
        raise structlog.DropEvent


@dataclass(frozen=True, slots=True)
class Stage:
    """A proxy that listens at `url`, and what stands behind it and beside it."""

    url: str
    session: Session
    upstream: SimulatedUpstream
    faults: FaultLog


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request of the client, and its answer through the proxy; `original` is the prompt as the client sent it.

    Its cached tokens are those that an upstream with a boundless window would have had. `rules` acted on it.
    """

    original: Cost
    status: int
    answer_hash: str
    rules: frozenset[str]
    overhead_ms: float


@dataclass(frozen=True, slots=True)
class Replay:
    """What was measured; `served` is what the upstream was asked, summaries and all."""

    exchanges: list[Exchange]
    served: list[Served]
    seconds: float
    faults: frozenset[str] = frozenset()

    def sum_cost(self, *, is_stream: bool) -> Cost:
        """What the upstream answered: the client's requests, which are streams, or the summaries, which are not."""
        return sum((one.cost for one in self.served if one.is_stream == is_stream and one.status == 200), Cost())


@asynccontextmanager
async def run_stage(session: Session, window_tokens: int = WINDOW_TOKENS) -> AsyncIterator[Stage]:
    """The simulated upstream, with a window of so many tokens, and the proxy in front of it, until the block is left.

    The proxy takes the window for WINDOW_TOKENS.
    """
    faults = FaultLog()
    log: Any = structlog.wrap_logger(structlog.ReturnLogger(), processors=[faults])
    compactors = Compactors(log)
    upstream = SimulatedUpstream(session, window_tokens, compactors.choose(PolicyConfig(), MODEL).count)
    window = f"defaults={{context_window: {WINDOW_TOKENS}, completion_reserve: {RESERVE_TOKENS}}}"
    async with run_upstream(upstream) as base_url:
        settings = (f"upstream.base_url={base_url}", "listen=127.0.0.1:0", "store=memory", window)
        config = load_config(settings=settings, environment={})
        async with run_proxy(config, log, compactors) as proxy:
            yield Stage(proxy.url, session, upstream, faults)


async def replay_session(stage: Stage, turns: Iterable[int]) -> Replay:
    """Send the requests that these turns of the session answer, one behind the other, as its client would."""
    exchanges: list[Exchange] = []
    endless = PromptCache(stage.upstream.count)
    started = time.perf_counter()
    headers = {"Authorization": "Bearer demo", "Content-Type": "application/json"}
    async with aiohttp.ClientSession(f"{stage.url}/", headers=headers) as client:
        for turn in turns:
            body = stage.session.request_body(turn)
            original = endless.read(body)
            async with client.post("v1/chat/completions", data=body) as answer:
                answer_hash = hashlib.sha256(await answer.read()).hexdigest()
            rules = frozenset(_RULE.findall(answer.headers.get("x-trimtab-decisions", "")))
            overhead_ms = sum(map(float, _OVERHEAD_MS.findall(answer.headers.get("server-timing", ""))))
            exchanges.append(Exchange(original, answer.status, answer_hash, rules, overhead_ms))
    return Replay(exchanges, stage.upstream.served, time.perf_counter() - started, frozenset(stage.faults.events))
