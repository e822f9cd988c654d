"""The demo's replay: a session through the real proxy, over real sockets."""

import aiohttp
import orjson
import pytest
from structlog.testing import capture_logs

from trimtab.proxy.cli.demo import (
    RESERVE_TOKENS,
    WINDOW_TOKENS,
    Cost,
    price,
    replay_session,
    run_stage,
    share_cached,
)
from trimtab.proxy.cli.demo_session import make_session

MODULES = 10
"""Chosen: the session is then more than twice as large as the window."""


async def test_replay_keeps_a_long_session_inside_the_window() -> None:
    """No request is refused, no prompt exceeds the limit, the prefix stays warm, and all of it costs less.

    The dashboard shows the same tokens.
    """
    session = make_session(MODULES)
    with capture_logs() as logs:
        async with run_stage(session) as (url, upstream):
            replay = await replay_session(url, upstream, session, session.turns)
            async with aiohttp.ClientSession() as client, client.get(f"{url}/trimtab/api/overview") as response:
                totals = orjson.loads(await response.read())["totals"]
    answered = {served.answer_hash for served in replay.served if served.is_stream}
    assert {exchange.status for exchange in replay.exchanges} == {200}
    assert all(exchange.answer_hash in answered for exchange in replay.exchanges)
    assert {entry["log_level"] for entry in logs} <= {"debug", "info"}
    assert len(replay.exchanges) == len(session.turns)
    assert max(exchange.original.prompt_tokens for exchange in replay.exchanges) > WINDOW_TOKENS
    assert WINDOW_TOKENS - RESERVE_TOKENS >= max(served.cost.prompt_tokens for served in replay.served) > 0
    sent, summaries = replay.sum_cost(is_stream=True), replay.sum_cost(is_stream=False)
    assert sent.cached_tokens > 0.8 * sent.prompt_tokens
    original = sum((one.original for one in replay.exchanges), Cost(completion_tokens=sent.completion_tokens))
    assert 0 < price(sent + summaries) < price(original)
    shown = (totals["original_tokens"], totals["sent_tokens"], totals["cached_share"])
    assert shown == (original.prompt_tokens, sent.prompt_tokens, share_cached(sent))
    assert summaries.completion_tokens > 0
    assert all(exchange.overhead_ms > 0 for exchange in replay.exchanges)
    rules = frozenset[str]().union(*(exchange.rules for exchange in replay.exchanges))
    assert {"truncate", "dedupe", "prune", "summarise"} >= rules >= {"truncate", "summarise"}


async def test_what_the_client_was_refused_is_not_paid_for() -> None:
    """If the upstream refuses everything, each request counts as refused, and none costs anything."""
    session = make_session(1)
    async with run_stage(session, window_tokens=100) as (url, upstream):
        replay = await replay_session(url, upstream, session, session.turns)
    assert [exchange.status for exchange in replay.exchanges] == [400] * len(session.turns)
    assert replay.sum_cost(is_stream=True) == Cost()


async def test_replay_logs_faults_of_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of the proxy is logged where a person sees it, and the requests go on."""

    def fail(*_: object, **__: object) -> None:
        message = "planted"
        raise RuntimeError(message)

    session = make_session(1)
    with capture_logs() as logs:
        async with run_stage(session) as (url, upstream):
            monkeypatch.setattr("trimtab.proxy.compaction.compactor.plan", fail)
            replay = await replay_session(url, upstream, session, session.turns)
    assert {entry["event"] for entry in logs if entry["log_level"] == "error"} == {"fail_open"}
    assert {(exchange.status, exchange.rules) for exchange in replay.exchanges} == {(200, frozenset())}
