"""The demo's replay: a session sent through the real proxy over real sockets, and what was measured on the way.

Law: every number comes from this run, from what the upstream received and from what the client was answered.
"""

import hashlib
import re
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import structlog

from proxy.cli.demo.session import MODEL, Session
from proxy.cli.demo.upstream import PromptCache, Served, SimulatedUpstream, run_upstream
from proxy.compaction.pool import Compactors
from proxy.config.load import load_config
from proxy.config.schema import PolicyConfig
from proxy.server.app import run_proxy
from rules.conversation import CountTokens

WINDOW_TOKENS = 32_000
RESERVE_TOKENS = 4_000
CACHED_INPUT_PRICE, INPUT_PRICE, OUTPUT_PRICE = 0.1, 1.0, 4.0
"""Per prompt token that is cached, one that is not, and a completion token. Source: the usual ratios of list prices."""

_LIMIT = re.compile(r"\blimit=(\d+)")
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
    count: CountTokens
    faults: FaultLog


@dataclass(frozen=True, slots=True)
class Cost:
    """What requests took of an upstream, in tokens."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.prompt_tokens + other.prompt_tokens,
            self.cached_tokens + other.cached_tokens,
            self.completion_tokens + other.completion_tokens,
        )

    @property
    def cached_share(self) -> float:
        """The share of the prompt tokens that the upstream had seen before."""
        return self.cached_tokens / max(self.prompt_tokens, 1)

    @property
    def price(self) -> float:
        """In the price of one uncached prompt token."""
        uncached_tokens = self.prompt_tokens - self.cached_tokens
        cached = self.cached_tokens * CACHED_INPUT_PRICE
        return uncached_tokens * INPUT_PRICE + cached + self.completion_tokens * OUTPUT_PRICE


@dataclass(frozen=True, slots=True)
class DemoReport:
    """What was measured.

    `original` is the session as the client sent it, had a boundless upstream answered; `sent` is what the upstream
    answered in its place; `summaries` are what it was asked for besides. `refused_originals` are the client's requests
    that are larger than the upstream's window. `intact` counts answers that reached the client byte for byte.
    """

    requests: int
    refused: int
    intact: int
    refused_originals: int
    largest_original_tokens: int
    largest_prompt_tokens: int
    limit_tokens: int
    original: Cost
    sent: Cost
    summaries: Cost
    summary_requests: int
    decisions: tuple[tuple[str, int], ...]
    overhead_ms: float
    seconds: float
    faults: tuple[str, ...]

    @property
    def cost_ratio(self) -> float:
        """The price with trimtab, its summaries included, over the price without."""
        return (self.sent + self.summaries).price / self.original.price


@dataclass(slots=True)
class Tally:
    """The replay so far, as the client sees it. One entry per request, oldest first; `sizes` are of the originals."""

    sizes: list[int] = field(default_factory=list)
    original_cached_tokens: int = 0
    statuses: list[int] = field(default_factory=list)
    answer_hashes: list[str] = field(default_factory=list)
    limits: list[int] = field(default_factory=list)
    rules: Counter[str] = field(default_factory=Counter)
    overheads_ms: list[float] = field(default_factory=list)

    def add_answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        """Write down one answer; `headers` by their names in lower case."""
        self.statuses.append(status)
        self.answer_hashes.append(hashlib.sha256(body).hexdigest())
        self.limits += map(int, _LIMIT.findall(headers.get("x-trimtab-tokens", "")))
        self.rules.update(set(_RULE.findall(headers.get("x-trimtab-decisions", ""))))
        self.overheads_ms += map(float, _OVERHEAD_MS.findall(headers.get("server-timing", "")))


Progressed = Callable[[Tally, list[Served]], None]


@asynccontextmanager
async def run_stage(session: Session) -> AsyncIterator[Stage]:
    """The simulated upstream and the proxy in front of it, until the block is left."""
    faults = FaultLog()
    log: Any = structlog.wrap_logger(structlog.ReturnLogger(), processors=[faults])
    compactors = Compactors(log)
    count = compactors.choose(PolicyConfig(), MODEL).count
    upstream = SimulatedUpstream(session, WINDOW_TOKENS, count)
    async with run_upstream(upstream) as base_url:
        settings = [
            f"upstream.base_url={base_url}",
            "listen=127.0.0.1:0",
            "store=memory",
            f"defaults.context_window={WINDOW_TOKENS}",
            f"defaults.completion_reserve={RESERVE_TOKENS}",
        ]
        config = load_config(settings=settings, environment={})
        async with run_proxy(config, log, compactors) as proxy:
            yield Stage(proxy.url, session, upstream, count, faults)


async def replay_session(stage: Stage, progressed: Progressed) -> DemoReport:
    """Send the session's requests, one behind the other, as its client would; `progressed` is told after each."""
    tally = Tally()
    endless = PromptCache(stage.count)  # what an upstream without a window would have cached
    started = time.perf_counter()
    async with aiohttp.ClientSession(f"{stage.url}/") as client:
        for turn in stage.session.turns:
            body = stage.session.request_body(turn)
            original = endless.read(body)
            endless.admit(original)
            tally.sizes.append(original.tokens)
            tally.original_cached_tokens += original.cached_tokens
            headers = {"Authorization": "Bearer demo", "Content-Type": "application/json"}
            async with client.post("v1/chat/completions", data=body, headers=headers) as answer:
                names = {name.lower(): value for name, value in answer.headers.items()}
                tally.add_answer(answer.status, names, await answer.read())
            progressed(tally, stage.upstream.served)
    return _sum_up(stage, tally, time.perf_counter() - started)


def _sum_up(stage: Stage, tally: Tally, seconds: float) -> DemoReport:
    streams = [served for served in stage.upstream.served if served.is_stream]
    others = [served for served in stage.upstream.served if not served.is_stream]
    answered = {served.answer_hash for served in streams}
    sent = sum((_cost(served) for served in streams if served.status == 200), Cost())
    return DemoReport(
        requests=len(tally.statuses),
        refused=sum(status != 200 for status in tally.statuses),
        intact=sum(answer_hash in answered for answer_hash in tally.answer_hashes),
        refused_originals=sum(size > WINDOW_TOKENS for size in tally.sizes),
        largest_original_tokens=max(tally.sizes),
        largest_prompt_tokens=max((served.prompt_tokens for served in stage.upstream.served), default=0),
        limit_tokens=min(tally.limits, default=0),
        original=Cost(sum(tally.sizes), tally.original_cached_tokens, sent.completion_tokens),
        sent=sent,
        summaries=sum(map(_cost, others), Cost()),
        summary_requests=len(others),
        decisions=tuple(tally.rules.most_common()),
        overhead_ms=statistics.median(tally.overheads_ms or [0.0]),
        seconds=seconds,
        faults=tuple(sorted(stage.faults.events)),
    )


def _cost(served: Served) -> Cost:
    return Cost(served.prompt_tokens, served.cached_tokens, served.completion_tokens)
