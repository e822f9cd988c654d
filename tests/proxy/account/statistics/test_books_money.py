"""The metrics and the books get the same money."""

from trimtab.proxy.account.statistics.books import Books
from trimtab.proxy.catalogue.prices import Bill, Cost, PriceList, PriceSource, PriceTier, Tokens
from trimtab.proxy.telemetry.metrics import Metrics

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


def test_without_a_price_no_series_appears() -> None:
    metrics = Metrics()
    Books(metrics).charge("m", "", Bill(Tokens.of(10), Tokens.of(20)))
    assert "trimtab_cost_usd_total{" not in metrics.render().decode()
