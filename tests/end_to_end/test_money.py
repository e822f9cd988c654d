"""A week through the proxy: `trimtab stats` says what the upstream's own books say, and what it would have charged.

The upstream keeps books in its own way: from the bytes that it gets, with a cache of its own, in decimal dollars.
"""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web
from programs.serving import serving
from support.client import SMALL, post, settle
from support.dialects.spoken.all_dialects import DIALECTS
from support.dialects.spoken.dialect import Dialect
from support.sessions import make_session, requests_of
from upstreams.recording import FakeUpstream, Recorded, run_upstream, write_note
from yarl import URL

from trimtab.proxy.cli.stats import Statistics, read_statistics
from trimtab.proxy.config.load import load_config
from trimtab.proxy.exchange import answer
from trimtab.proxy.server.app import Proxy, run_proxy

BLOCK, MINIMUM, DAY = 128, 1024, 86400
ESTIMATE_ERROR = 0.06
"""trimtab counts the tokens that it removed, and the upstream does not, so their cost is a little off."""
MONDAY = 1_767_571_200.0
"""2026-01-05, midnight in UTC."""
PRICES = {"input": "2.5", "cached_input": "0.25", "cache_write": "3.125", "output": "10"}
"""Dollars for a million tokens."""
WORDS = ["the", "sea", "air", "bay", "fog", "ice", "oar", "log", "map", "sun", "sky", "bow", "dry", "wet", "low", "top"]
"""With the space, each is a token of four bytes."""
SETTINGS = (
    *SMALL,
    "defaults.overflow_strategy=summarize",
    "prices={unit: usd, " + ", ".join(f"{key}: {value}" for key, value in PRICES.items()) + "}",
)
each_dialect = pytest.mark.parametrize("dialect", DIALECTS, ids=str)


class Clock:
    """The time of day, which only the test moves."""

    def __init__(self) -> None:
        self.seconds = MONDAY

    def __call__(self) -> float:
        return self.seconds

    @property
    def day(self) -> str:
        """The day of the week of the test, as the statistics name it."""
        return f"2026-01-{5 + int(self.seconds - MONDAY) // DAY:02d}"


@dataclass
class Ledger:
    """The upstream's books. A token is four bytes. `caches`: whether it has a prompt cache."""

    clock: Clock
    caches: bool = True
    dollars: Counter[str] = field(default_factory=Counter)
    summary_dollars: Decimal = Decimal(0)
    prompts: list[bytes] = field(default_factory=list)
    requests: int = 0

    async def answer(self, recorded: Recorded, _: web.BaseRequest) -> web.Response:
        """Answer, and charge for it."""
        dialect, body = recorded.dialect, recorded.json
        heads = [body.get(name) for name in ("model", "tools", "system", "instructions")]
        prompt = orjson.dumps(heads) + orjson.dumps(body[dialect.transcript])
        tokens, cached = len(prompt) // 4, self._read(prompt)
        written = tokens - cached if dialect.name == "messages" and tokens >= MINIMUM else 0
        text = write_note("SUMMARY of the work so far.") if recorded.asks_for_summary else "All good."
        completion = len(text) // 4
        amounts = (tokens - cached - written, cached, written, completion)
        charge = sum(
            (count * Decimal(price) / 10**6 for count, price in zip(amounts, PRICES.values(), strict=True)), Decimal(0)
        )
        self.dollars[self.clock.day] += charge  # type: ignore[assignment] - a Counter of decimals
        self.requests += not recorded.asks_for_summary
        self.summary_dollars += charge if recorded.asks_for_summary else 0
        whole = orjson.loads(dialect.write_answer(text, prompt_tokens=tokens, completion_tokens=completion))
        whole["usage"] = _write_usage(dialect, tokens, cached, written, completion)
        return web.Response(body=orjson.dumps(whole), content_type="application/json")

    def _read(self, prompt: bytes) -> int:
        """The cached tokens of a prompt, which is cached from now on."""
        common = max((_count_common(prompt, known) for known in self.prompts), default=0) // 4
        self.prompts.append(prompt)
        return common // BLOCK * BLOCK if self.caches and common >= MINIMUM else 0

    @property
    def total(self) -> float:
        """All that it has charged, in dollars."""
        return float(sum(self.dollars.values()))


def _count_common(one: bytes, other: bytes) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle - 1)
    return low


def _write_usage(dialect: Dialect, tokens: int, cached: int, written: int, completion: int) -> dict[str, Any]:
    if dialect.name == "messages":
        used = {"cache_read_input_tokens": cached, "cache_creation_input_tokens": written}
        return {"input_tokens": tokens - cached - written, "output_tokens": completion, **used}
    if dialect.name == "responses":
        return {"input_tokens": tokens, "output_tokens": completion, "input_tokens_details": {"cached_tokens": cached}}
    details = {"cached_tokens": cached}
    return {"prompt_tokens": tokens, "completion_tokens": completion, "prompt_tokens_details": details}


def requests_of_day(dialect: Dialect, day: int) -> Iterator[dict[str, Any]]:
    """The requests of a session of this day: it is longer than the window."""
    session = make_session(18 + day, system="You are a careful agent. " * 40)
    session["messages"][1]["content"] += f" It is day {day}."
    random = Random(day)  # noqa: S311 - not for security
    for message in session["messages"]:
        if message["role"] == "tool":  # words of which each is a token, so that both sides count alike
            message["content"] = " ".join(random.choice(WORDS) for _ in range(500))
    for messages in requests_of(session):
        yield dialect.write(messages, session["tools"])


@asynccontextmanager
async def run_proxies(
    count: int, upstream: FakeUpstream, clock: Clock, kept: tuple[Any, Any], *settings: str
) -> AsyncIterator[list[Proxy]]:
    """Proxies that share a store. `kept`: the compactors and the log."""
    compactors, log = kept
    base = ("listen=127.0.0.1:0", f"upstream.base_url={upstream.url}", *SETTINGS, *settings)
    config = load_config(settings=base, environment={})
    async with AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(run_proxy(config, log, compactors)) for _ in range(count)]
        for proxy in proxies:
            proxy.services.recorder.books.clock = clock
        yield proxies


async def ask_day(client: Any, proxies: list[Proxy], dialect: Dialect, clock: Clock, day: int) -> None:
    """Replay the session of a day, each request to the next proxy, a minute apart."""
    for index, body in enumerate(requests_of_day(dialect, day)):
        proxy = proxies[index % len(proxies)]
        response, _ = await post(client, f"{proxy.url}{dialect.path}", body)
        assert response.status == 200
        await proxy.services.lifecycle.idle.wait()  # the cost is booked then
        await settle(proxy)
        clock.seconds += 60


async def replay_week(
    client: Any, upstream: FakeUpstream, dialect: Dialect, kept: tuple[Any, Any], *settings: str, count: int = 1
) -> Clock:
    """Sessions on three of seven days. All proxies are restarted after the second one."""
    clock = Clock()
    upstream.answer.__self__.clock = clock  # type: ignore[attr-defined] - the ledger
    for days in ((0, 1), (6,)):
        async with run_proxies(count, upstream, clock, kept, *settings) as proxies:
            for day in days:
                clock.seconds = MONDAY + day * DAY + 3600
                await ask_day(client, proxies, dialect, clock, day)
    return clock


async def read(store: str, by: str, clock: Clock) -> Statistics:
    """What `trimtab stats` shows."""
    return await read_statistics(load_config(settings=(store,), environment={}), "7d", by, clock)


@each_dialect
async def test_the_statistics_of_a_week_are_the_upstreams_own_books(dialect, client, compactors, log, tmp_path) -> None:
    """To the cent, and much closer: with summaries, two proxies at one file, and a restart.

    What the week would have cost is what the same upstream charges for the same week with mode off.
    """
    store, kept = f"store=sqlite:///{tmp_path}/summaries.sqlite3", (compactors, log)
    async with run_upstream() as upstream:
        ledger = Ledger(Clock())
        upstream.answer = ledger.answer
        clock = await replay_week(client, upstream, dialect, kept, store, count=2)
    by_day, by_model = await read(store, "day", clock), await read(store, "model", clock)

    days = {name: sums.cost_nanodollars / 1e9 for name, sums in by_day.groups}
    assert days == {day: pytest.approx(float(dollars), abs=1e-6) for day, dollars in ledger.dollars.items()}
    assert len(days) == 3
    total = by_model.total
    assert total == by_day.total
    assert total.requests == ledger.requests
    assert total.summaries
    assert total.summary_nanodollars / 1e9 == pytest.approx(float(ledger.summary_dollars), abs=1e-6)
    assert not total.unpriced_requests
    assert not total.estimated_requests

    async with run_upstream() as upstream:
        alone = Ledger(Clock())
        upstream.answer = alone.answer
        await replay_week(client, upstream, dialect, kept, "mode=off", "store=memory")
    assert total.without_nanodollars / 1e9 == pytest.approx(alone.total, rel=ESTIMATE_ERROR)
    assert total.saved_nanodollars == total.without_nanodollars - total.cost_nanodollars


async def test_an_upstream_without_a_cache_is_not_said_to_have_one(client, compactors, log, tmp_path) -> None:
    """What the sessions would have cost is what they cost there with mode off."""
    dialect = DIALECTS[0]
    store, kept = f"store=sqlite:///{tmp_path}/summaries.sqlite3", (compactors, log)
    totals = []
    for settings in ((store,), ("mode=off", "store=memory")):
        async with run_upstream() as upstream:
            ledger = Ledger(Clock(), caches=False)
            upstream.answer = ledger.answer
            clock = Clock()
            ledger.clock = clock
            async with run_proxies(1, upstream, clock, kept, *settings) as proxies:
                await ask_day(client, proxies, dialect, clock, 1)
            totals.append(ledger.total)
    sums = (await read(store, "model", clock)).total
    assert sums.cost_nanodollars / 1e9 == pytest.approx(totals[0], abs=1e-6)
    assert sums.without_nanodollars / 1e9 == pytest.approx(totals[1], rel=ESTIMATE_ERROR)


async def test_two_workers_write_their_sums_when_they_are_stopped(tmp_path: Path) -> None:
    """SIGTERM comes long before the next write. No sum of either process is lost."""
    store = f"store=sqlite:///{tmp_path}/summaries.sqlite3"
    async with run_upstream() as upstream:
        ledger = Ledger(Clock())
        upstream.answer = ledger.answer
        settings = [word for setting in (*SETTINGS, store, "workers=2") for word in ("--set", setting)]
        async with serving("--upstream", upstream.url, *settings) as (process, url):
            body = {"model": "m", "messages": [{"role": "user", "content": "hi " * 500}]}
            for _ in range(24):
                async with aiohttp.ClientSession() as session:  # a new connection each, so that both workers get some
                    answered, _ = await post(session, f"{url}/chat/completions", body)
                assert answered.status == 200
            process.terminate()
            assert await process.wait() == 0
    shown = await read_statistics(load_config(settings=(store,), environment={}), "2d", "model")
    assert shown.total.requests == 24
    assert shown.total.cost_nanodollars / 1e9 == pytest.approx(ledger.total, abs=1e-6)


async def test_a_client_that_leaves_with_its_answer_has_paid_for_it(start_proxy, monkeypatch, tmp_path) -> None:
    """Many close the connection as soon as they have read the last byte, while trimtab still writes into the store."""
    proxy = await start_proxy(*SETTINGS, f"store=sqlite:///{tmp_path}/a.sqlite3")
    begun, release = asyncio.Event(), asyncio.Event()
    remembered: list[bool] = []

    async def hold(*_values: Any) -> None:
        begun.set()
        await release.wait()
        remembered.append(True)

    monkeypatch.setattr(answer, "remember", hold)
    address = URL(proxy.url)
    reader, writer = await asyncio.open_connection(address.host, address.port)
    body = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]})
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {address.host}\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    length = re.search(rb"content-length: (\d+)", (await reader.readuntil(b"\r\n\r\n")).lower())
    await reader.readexactly(int(length[1]))
    await begun.wait()
    writer.transport.abort()
    for _ in range(100):  # until the proxy has noticed
        await asyncio.sleep(0)
    release.set()
    await proxy.services.lifecycle.idle.wait()
    page = proxy.services.recorder.metrics.render().decode()
    assert 'trimtab_cost_without_usd_total{model="m"}' in page
    assert remembered
