"""The demo's replay: sends a session through the real proxy over real sockets, and measures it.

Law: every number comes from this run: from what the upstream received, or from the responses that the client got.
"""

import hashlib
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
from aiohttp import web

from proxy.cli.demo.session import MODEL, Session
from proxy.cli.demo.upstream import Cost, PromptCache, Served, SimulatedUpstream
from proxy.compaction.pool import Compactors
from proxy.config.load import load_config
from proxy.config.policies.policy import PolicyConfig
from proxy.server.app import listen_at, run_proxy
from proxy.telemetry.logs import get_log

WINDOW_TOKENS = 32_000
"""Chosen: the whole session is more than three times as long, so that many requests need compaction."""
RESERVE_TOKENS = 4_000
"""Room for the completion. Chosen: above every completion of the session."""

_RULE = re.compile(r"([a-z_]+);saved=")
_OVERHEAD_MS = re.compile(r"\btrimtab;dur=([\d.]+)")
CACHED_INPUT_PRICE, INPUT_PRICE, OUTPUT_PRICE = 0.1, 1.0, 4.0
"""Dollars for a million tokens: cached, uncached, of completions. Source: usual ratios of list prices."""
PRICES = f"prices={{unit: usd, input: {INPUT_PRICE}, cached_input: {CACHED_INPUT_PRICE}, output: {OUTPUT_PRICE}}}"
"""The setting for them. The upstream is local, but the demo shows what a session costs at a provider."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request of the client, and its response through the proxy.

    original: the prompt as the client sent it, with the cached tokens that an unlimited window would have given.
    status: of the response.
    answer_hash: SHA-256 of the response body that the client got.
    rules: the rules that changed the request.
    overhead_ms: the time that trimtab added.
    """

    original: Cost
    status: int
    answer_hash: str
    rules: frozenset[str]
    overhead_ms: float


@dataclass(frozen=True, slots=True)
class Replay:
    """What was measured. `served` holds every request that the upstream got, those for summaries included."""

    exchanges: list[Exchange]
    served: list[Served]

    def sum_cost(self, *, is_stream: bool) -> Cost:
        """Tokens of the successful requests: the client's, which are streams, or those for summaries, which are not."""
        return sum((one.cost for one in self.served if one.is_stream == is_stream and one.status == 200), Cost())


@asynccontextmanager
async def run_stage(
    session: Session, window_tokens: int = WINDOW_TOKENS, *, keeps_text: bool = False
) -> AsyncIterator[tuple[str, SimulatedUpstream]]:
    """Run the simulated upstream and the proxy in front of it until the block is left.

    window_tokens: the upstream's real window. The proxy always assumes WINDOW_TOKENS.
    keeps_text: whether the dashboard shows texts, too.

    Yields the proxy's URL and the upstream.
    """
    log = get_log()
    compactors = Compactors(log)
    upstream = SimulatedUpstream(session, window_tokens, compactors.choose(PolicyConfig(), MODEL).count)
    window = f"defaults={{context_window: {WINDOW_TOKENS}, completion_reserve: {RESERVE_TOKENS}}}"
    server = web.Server(upstream.handle, access_log=None)
    async with listen_at(server, "127.0.0.1:0") as (_, upstream_url):
        text = f"dashboard.keep_text={str(keeps_text).lower()}"
        settings = (f"upstream.base_url={upstream_url}/v1", "listen=127.0.0.1:0", "store=memory", window, PRICES, text)
        config = load_config(settings=settings, environment={})
        async with run_proxy(config, log, compactors) as proxy:
            yield proxy.url, upstream


async def replay_session(url: str, upstream: SimulatedUpstream, session: Session, turns: Iterable[int]) -> Replay:
    """Send the requests before these turns of the session to `url`, one after the other, as the client would."""
    exchanges: list[Exchange] = []
    endless = PromptCache(upstream.count)
    headers = {"Authorization": "Bearer demo", "Content-Type": "application/json"}
    async with aiohttp.ClientSession(f"{url}/", headers=headers) as client:
        for turn in turns:
            body = session.request_body(turn)
            original = endless.read(body)
            async with client.post("v1/chat/completions", data=body) as answer:
                answer_hash = hashlib.sha256(await answer.read()).hexdigest()
            rules = frozenset(_RULE.findall(answer.headers.get("x-trimtab-decisions", "")))
            overhead_ms = sum(map(float, _OVERHEAD_MS.findall(answer.headers.get("server-timing", ""))))
            exchanges.append(Exchange(original, answer.status, answer_hash, rules, overhead_ms))
    return Replay(exchanges, upstream.served)
