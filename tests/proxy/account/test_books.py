"""The sums of a process reach the store once each, whatever the store does."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.account.books import NAMES, Batch, Books, MemoryStatistics, Place, Sums
from trimtab.proxy.catalogue.prices import Bill, Cost, PriceList, PriceSource, PriceTier, Tokens
from trimtab.proxy.store.store import StoreError
from trimtab.proxy.telemetry.metrics import Metrics

DAY = "1970-01-02"
PLACE = Place(DAY, "m", "-")


class Moody(MemoryStatistics):
    """A store that fails while `is_out`; before that it keeps the batch if `keeps`."""

    def __init__(self) -> None:
        super().__init__()
        self.is_out = self.keeps = False

    async def add(self, batch: Batch) -> None:
        if self.keeps or not self.is_out:
            await super().add(batch)
        if self.is_out:
            raise StoreError(self.name, "it is out")


def _books(store, **options) -> Books:
    return Books(Metrics(), store, clock=lambda: 90_000.0, **options)


@pytest.mark.parametrize("keeps", [False, True])
async def test_after_an_outage_every_request_is_counted_once(keeps, log) -> None:
    store, errors = Moody(), []
    books = _books(store, on_error=errors.append, log=log)
    store.is_out, store.keeps = True, keeps
    for _ in range(3):
        books.book("m", "", Sums(1))
        await books.flush()
    assert errors == ["memory"] * 3
    assert [line["event"] for line in log.lines if line["event"] == "statistics_unwritten"] == ["statistics_unwritten"]
    store.is_out = False
    await books.flush()
    assert await store.read(DAY, DAY) == {PLACE: Sums(3)}


async def test_the_books_write_on_their_own_and_at_the_end() -> None:
    store, turns, ended = MemoryStatistics(), asyncio.Queue(), asyncio.Queue()

    async def sleep(_: float) -> None:
        ended.put_nowait(None)
        await turns.get()

    books = _books(store, sleep=sleep)
    books.start()
    books.book("m", "", Sums(1))
    turns.put_nowait(None)
    for _ in range(2):  # the second sleep comes after the first write
        await ended.get()
    assert await store.read(DAY, DAY) == {PLACE: Sums(1)}
    books.book("m", "ann", Sums(1))
    await books.close()
    assert await store.read(DAY, DAY) == {PLACE: Sums(1), Place(DAY, "m", "ann"): Sums(1)}


# The metrics and the books get the same money.

PRICES = PriceList((PriceTier(0, 1, 0.1, 1.25, 4),), PriceSource.CONFIGURED, is_in_dollars=True)


async def test_both_get_the_same_parts() -> None:
    metrics = Metrics()
    books = Books(metrics)
    cost = Cost(10**9, 2 * 10**9, 3 * 10**9, 4 * 10**9)
    books.charge("m", "ann", Bill(Tokens.of(10), Tokens.of(20), cost, Cost(5 * 10**9)))
    books.charge_summary("m", "ann", Tokens.of(10**6, 0, 0, 10**6), PRICES)
    books.charge_summary("m", "ann", Tokens.of(10**6), None)
    await books.flush()
    (sums,) = (await books.store.read("2000-01-01", "9999-01-01")).values()
    value = metrics.registry.get_sample_value
    parts = {"fresh": 1, "cached": 2, "written": 3, "completion": 4, "summary": 5}
    assert {part: value("trimtab_cost_usd_total", {"model": "m", "part": part}) for part in parts} == parts
    assert value("trimtab_cost_without_usd_total", {"model": "m"}) == 5
    assert sums.cost_nanodollars == 15 * 10**9
    assert sums.saved_nanodollars == -10 * 10**9
    assert (sums.summaries, sums.unpriced_summaries) == (2, 1)


# Sums are exact in any order, and what is saved is what is left.

sums = st.builds(Sums, *[st.integers(0, 2**50)] * len(NAMES))


@given(sums, sums, sums)
def test_sums_are_the_same_in_any_order(one, two, three) -> None:
    assert one + (two + three) == (three + one) + two
    assert (one + two).saved_nanodollars == one.saved_nanodollars + two.saved_nanodollars


def test_what_has_no_price_is_counted_but_not_in_the_money() -> None:
    total = Sums.of_bill(Bill(Tokens.of(10), Tokens.of(20))) + Sums.of_summary(Tokens.of(5), None)
    assert (total.requests, total.unpriced_requests, total.unpriced_summaries) == (1, 1, 1)
    assert (total.original_tokens, total.sent_tokens) == (20, 10)
    assert total.cost_nanodollars == total.without_nanodollars == 0
