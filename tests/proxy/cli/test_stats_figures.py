"""What is shown: sums by model, client or day, whose totals are the same."""

import pytest

from trimtab.proxy.account.statistics.books import Batch, Place, Sums
from trimtab.proxy.account.statistics.store import open_statistics
from trimtab.proxy.cli.options import StoppedError
from trimtab.proxy.cli.stats import describe, gather, read_statistics
from trimtab.proxy.config.load import load_config

ROWS = {
    Place("2026-11-22", "a", "ann"): Sums(requests=1, fresh_nanodollars=5 * 10**9, without_nanodollars=4 * 10**9),
    Place("2026-11-23", "a", "bob"): Sums(requests=2, summary_nanodollars=10**9, without_nanodollars=9 * 10**9),
    Place("2026-11-23", "b", "ann"): Sums(requests=4, completion_nanodollars=7 * 10**9),
}


@pytest.mark.parametrize(
    ("by", "names"), [("model", ["b", "a"]), ("client", ["ann", "bob"]), ("day", ["2026-11-22", "2026-11-23"])]
)
def test_each_group_has_its_sums_and_all_have_the_same_total(by, names) -> None:
    """Days are in order; others begin with the dearest."""
    shown = gather(ROWS, "2026-11-17", "2026-11-23", by)
    assert [name for name, _ in shown.groups] == names
    assert sum((sums for _, sums in shown.groups), Sums()) == shown.total == sum(ROWS.values(), Sums())


def test_json_has_dollars_and_a_loss_is_negative() -> None:
    told = describe(gather(ROWS, "2026-11-17", "2026-11-23", "day"))
    assert told["rows"][0] | {"day": "2026-11-22", "cost_usd": 5, "without_usd": 4, "saved_usd": -1} == told["rows"][0]
    assert told["total"]["cost_usd"] == 13
    assert not [name for name in told["total"] if "nano" in name]


async def test_a_store_in_memory_has_nothing_to_read() -> None:
    with pytest.raises(StoppedError, match="memory keeps nothing"):
        await read_statistics(load_config(settings=("store=memory",), environment={}), "7d", "day")


def test_money_that_is_not_known_is_null() -> None:
    """Requests without a price did not cost nothing. What summaries have cost may be known all the same."""
    rows = {Place("2026-11-23", "a", "ann"): Sums(requests=3, unpriced_requests=3, summaries=1, unpriced_summaries=1)}
    total = describe(gather(rows, "2026-11-17", "2026-11-23", "day"))["total"]
    assert {name: value for name, value in total.items() if name.endswith("_usd") and value is not None} == {}
    assert total["cost_usd"] is total["saved_usd"] is None
    priced = rows | {Place("2026-11-23", "b", "ann"): Sums(summaries=1, summary_nanodollars=10**9)}
    total = describe(gather(priced, "2026-11-17", "2026-11-23", "day"))["total"]
    assert (total["cost_usd"], total["summary_usd"]) == (None, 1)
    nothing = describe(gather({}, "2026-11-17", "2026-11-23", "day"))["total"]
    assert (nothing["cost_usd"], nothing["requests"]) == (0, 0)


async def test_one_model_or_one_client_can_be_asked_for(tmp_path) -> None:
    config = load_config(settings=(f"store=sqlite:///{tmp_path}/summaries.sqlite3",), environment={})
    store = open_statistics(config, None)
    await store.add(Batch("w", 1, "2026-11-23", ROWS))
    await store.close()
    for wanted, requests in (
        ({}, 7),
        ({"model": "a"}, 3),
        ({"client": "ann"}, 5),
        ({"model": "a", "client": "bob"}, 2),
    ):
        shown = await read_statistics(config, "2026-11-20", "day", lambda: 1_795_400_000.0, **wanted)
        assert shown.total.requests == requests
