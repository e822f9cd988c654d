"""Budgets of clients: what is spent, what it costs them, and when it is new."""

import asyncio
from collections.abc import Callable

import pytest
from support.client import CHAT
from upstreams.recording import FakeUpstream

from trimtab.proxy.account.books import Batch, Books, MemoryStatistics, Place, Sums
from trimtab.proxy.account.budgets import WHOLE_SECONDS, Budgets
from trimtab.proxy.config.clients import Budget
from trimtab.proxy.server.reload import adopt
from trimtab.proxy.store.store import StoreError
from trimtab.proxy.telemetry.metrics import Metrics

NOON = 1_798_632_000.0
"""2026-12-30T12:00:00Z."""
DOLLAR = 10**9


class Clock:
    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


def make(log, store: MemoryStatistics | None = None, **limits) -> tuple[Budgets, Books, Clock]:
    clock = Clock()
    books = Books(Metrics(), store, clock=clock)
    return Budgets(books, log, {"alice": Budget(**limits)}), books, clock


def spend(books: Books, client: str = "alice", tokens: int = 100, dollars: int = 1) -> None:
    thirds = {"sent_tokens": tokens - 2, "completion_tokens": 1, "summary_tokens": 1}
    books.book("m", client, Sums(requests=1, original_tokens=10 * tokens, fresh_nanodollars=dollars * DOLLAR, **thirds))


@pytest.mark.parametrize(
    ("limits", "name", "until", "seconds"),
    [
        ({"tokens_per_minute": 200}, "tokens a minute", "2026-12-30T12:01:00Z", 61),
        ({"tokens_per_day": 200}, "tokens a day", "2026-12-31T00:00:00Z", 43_201),
        ({"tokens_per_month": 200}, "tokens a month", "2027-01-01T00:00:00Z", 129_601),
        ({"dollars_per_day": 1.5}, "dollars a day", "2026-12-31T00:00:00Z", 43_201),
        ({"dollars_per_month": 2}, "dollars a month", "2027-01-01T00:00:00Z", 129_601),
    ],
)
async def test_a_budget_is_spent_by_answers_and_is_new_later(
    limits: dict[str, float], name: str, until: str, seconds: int, log
) -> None:
    budgets, books, clock = make(log, **limits)
    spend(books, "bob", 10_000, 100)
    spend(books)
    assert budgets.check("alice") is None
    spend(books)
    spent = budgets.check("alice")
    assert (spent.name, spent.seconds, spent.refuses) == (name, seconds, True)
    assert until in spent.message
    assert spent.header == f'spent;limit={next(iter(limits.values())):g};of="{name}";reset={seconds}'
    assert budgets.check("bob") is None
    clock.now += seconds
    assert budgets.check("alice") is None


async def test_of_several_the_one_that_is_new_last_is_told(log) -> None:
    """So Retry-After is true. Large budgets are written in full, as a header may have them, and as people read them."""
    budgets, books, _ = make(log, tokens_per_minute=1, tokens_per_month=20_000_000, dollars_per_day=1)
    spend(books, tokens=20_000_000)
    spent = budgets.check("alice")
    assert spent.name == "tokens a month"
    assert spent.header.startswith("spent;limit=20000000;of=")
    assert "20,000,000 tokens a month" in spent.message


async def test_it_is_logged_once_each_time_that_it_is_spent(log) -> None:
    budgets, books, clock = make(log, tokens_per_day=1)
    for _ in range(2):
        spend(books)
        budgets.check("alice")
        budgets.check("alice")
        clock.now += 86_400
    assert [line["event"] for line in log.lines] == ["budget_spent"] * 2
    assert log.lines[0]["client"] == "alice"


async def test_processes_share_what_is_spent_through_the_store(log) -> None:
    store = MemoryStatistics()
    await store.add(Batch("other", 1, "2026-12-30", {Place("2026-12-30", "m", "alice"): Sums(sent_tokens=60)}))
    await store.add(Batch("other", 2, "2026-12-30", {Place("2026-11-30", "m", "alice"): Sums(sent_tokens=900)}))
    budgets, books, _ = make(log, store, tokens_per_month=160)
    assert budgets.check("alice") is None
    spend(books)
    await budgets.refresh()
    assert budgets.check("alice") is not None
    await books.flush()
    budgets.adopt({"alice": Budget(tokens_per_month=161)})
    await budgets.refresh()
    assert budgets.check("alice") is None


class _Slow(MemoryStatistics):
    """Something is booked while it is read; then it takes no batch."""

    def __init__(self, during: Callable[[], None]) -> None:
        super().__init__()
        self.during, self.is_broken, self.first_days = during, False, []

    async def add(self, batch: Batch) -> None:
        if self.is_broken:
            raise StoreError(self.name, "broken")
        await super().add(batch)

    async def read(self, first_day: str, today: str) -> dict[Place, Sums]:
        self.first_days.append(first_day)
        asyncio.get_running_loop().call_soon(self.during)  # as soon as something waits
        return await super().read(first_day, today)


async def test_what_is_spent_while_the_store_is_read_or_out_counts(log) -> None:
    store = _Slow(lambda: spend(books))
    budgets, books, _ = make(log, store, tokens_per_month=400)
    spend(books)
    await budgets.refresh()
    await books.flush()
    store.is_broken = True
    spend(books)
    await books.flush()
    store.during = lambda: None
    await budgets.refresh()
    assert budgets.check("alice") is None
    spend(books)
    assert budgets.check("alice") is not None


async def test_days_that_are_over_are_read_once(log) -> None:
    store = _Slow(lambda: None)
    await store.add(Batch("other", 1, "2026-12-30", {Place("2026-12-03", "m", "alice"): Sums(sent_tokens=60)}))
    await store.add(Batch("other", 2, "2026-12-30", {Place("2026-12-03", "m", "bob"): Sums(sent_tokens=60)}))
    budgets, _, clock = make(log, store, tokens_per_month=60)
    for _ in range(2):
        await budgets.refresh()
        assert budgets.check("alice") is not None
    budgets.adopt({"bob": Budget(tokens_per_month=60)})
    await budgets.refresh()
    assert budgets.check("bob") is not None
    assert store.first_days == ["2026-12-01", "2026-12-29", "2026-12-01"]
    clock.now += 3 * 86_400
    await budgets.refresh()
    assert budgets.check("bob") is None


async def test_what_another_process_writes_late_counts_within_the_hour(log) -> None:
    store = MemoryStatistics()
    budgets, _, clock = make(log, store, tokens_per_month=60)
    await budgets.refresh()
    await store.add(Batch("other", 1, "2026-12-30", {Place("2026-12-03", "m", "alice"): Sums(sent_tokens=60)}))
    clock.now += WHOLE_SECONDS
    await budgets.refresh()
    assert budgets.check("alice") is not None


KEYS = "client_keys={alice: {key: key-a, tokens_per_day: 5, over_budget: %s}, bob: key-b}"
ALICE, BOB = {"Authorization": "Bearer key-a"}, {"Authorization": "Bearer key-b"}


async def test_a_client_over_its_budget_gets_429_until_it_is_new(
    client, start_proxy: Callable, upstream: FakeUpstream
) -> None:
    """Other clients are served. A reload that raises the budget is heeded at once."""
    proxy = await start_proxy(KEYS % "refuse")

    async def ask(headers: dict[str, str]) -> tuple[int, str | None]:
        async with client.post(f"{proxy.url}/v1/chat/completions", json=CHAT, headers=headers) as response:
            if response.status == 429:
                assert (await response.json())["error"]["code"] == "client_budget_spent"
                assert 0 < int(response.headers["Retry-After"]) <= 86_401
            return response.status, response.headers.get("x-trimtab-outcome")

    assert await ask(ALICE) == (200, "unchanged")
    proxy.services.recorder.drain()
    assert [await ask(ALICE), await ask(BOB)] == [(429, "limited"), (200, "unchanged")]
    assert len(upstream.requests) == 2
    config = proxy.services.config
    higher = {**config.client_keys, "alice": config.client_keys["alice"].model_copy(update={"tokens_per_day": 10**9})}
    adopt(proxy.current, config.model_copy(update={"client_keys": higher}))
    assert await ask(ALICE) == (200, "unchanged")


async def test_a_budget_that_only_tells_refuses_nothing(client, start_proxy: Callable) -> None:
    proxy = await start_proxy(KEYS % "tell")
    for expected in (None, 'spent;limit=5;of="tokens a day"'):
        async with client.post(f"{proxy.url}/v1/chat/completions", json=CHAT, headers=ALICE) as response:
            assert response.status == 200
            told = response.headers.get("x-trimtab-budget")
            assert told == expected if expected is None else told.startswith(expected)
        proxy.services.recorder.drain()
