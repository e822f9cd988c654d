"""`trimtab stats`: what it prints, and its status."""

from io import StringIO
from pathlib import Path

import orjson
import pytest
from rich.console import Console
from support.command_line import run_trimtab

from trimtab.proxy.account.statistics.books import Batch, Place, Sums
from trimtab.proxy.account.statistics.store import open_statistics
from trimtab.proxy.cli.options import StoppedError
from trimtab.proxy.cli.stats import describe, find_first_day, gather, print_table, read_statistics
from trimtab.proxy.config.load import load_config


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        ((), 0, "no answered requests from"),
        (("--set", "store=memory"), 1, "trimtab: store: memory keeps nothing"),
        (("--set", "store=redis://127.0.0.1:9/0"), 1, "trimtab: the redis store failed"),
        (("--set", "mode=maybe"), 2, "mode: 'maybe' must be"),
        (("--since", "yesterday"), 2, "7d, 24h, 2w"),
        (("--by", "weather"), 2, "'weather' is not one of"),
    ],
)
def test_the_command_says_in_plain_words_what_is_wrong(arguments, status, sentence, tmp_path: Path) -> None:
    done = run_trimtab("stats", *arguments, HOME=str(tmp_path))
    assert done.exit_code == status
    assert sentence in done.output


def test_json_without_requests_is_still_json(tmp_path: Path) -> None:
    done = run_trimtab("stats", "--json", "--by", "client", "--since", "2w", HOME=str(tmp_path))
    told = orjson.loads(done.stdout)
    assert (told["rows"], told["total"]["requests"], told["by"]) == ([], 0, "client")


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


LOSS = Sums(
    requests=3,
    unpriced_requests=1,
    estimated_requests=2,
    original_tokens=12_345,
    summaries=1,
    fresh_nanodollars=2 * 10**9,
    summary_nanodollars=10**9,
    without_nanodollars=2 * 10**9,
)


def _print(sums: Sums, **options) -> str:
    written = StringIO()
    shown = gather({Place("2026-11-23", "gpt-[4]*", "-"): sums}, "2026-11-17", "2026-11-23", "model")
    print_table(shown, Console(file=written, width=160, **options))
    return written.getvalue()


def test_a_loss_has_a_minus_and_is_red_on_a_terminal() -> None:
    assert "-$1.00" in _print(LOSS)
    assert "\x1b[31m-$1.00" in _print(LOSS, force_terminal=True, color_system="standard")
    gain = LOSS + Sums(without_nanodollars=5 * 10**9)
    assert "\x1b[31m" not in _print(gain, force_terminal=True, color_system="standard")


def test_what_is_missing_is_said() -> None:
    text = _print(LOSS)
    for told in ("gpt-[4]*", "12.3k", "1.500", "1 of 3 requests", "2 requests are estimated", "1 answered call"):
        assert told in text


def test_what_has_no_price_is_not_free() -> None:
    """A sum that lacks a part is marked; one of which nothing is known has no amount."""
    assert "$3.00*" in _print(LOSS)
    unknown = _print(Sums(requests=2, unpriced_requests=2, original_tokens=10))
    row = next(line for line in unknown.splitlines() if "gpt-[4]*" in line)
    assert "$" not in row
    assert "- means that no request has a known price" in unknown
    assert "0 of 0" not in unknown


def test_a_name_cannot_control_the_terminal() -> None:
    """The store may be damaged, or another program's."""
    written = StringIO()
    shown = gather({Place("2026-11-23", "\x1b[2J[red]m", "-"): LOSS}, "2026-11-17", "2026-11-23", "model")
    print_table(shown, Console(file=written, width=160, force_terminal=True))
    assert "\x1b[2J" not in written.getvalue()
    assert "[red]m" in written.getvalue()


TODAY = "2026-11-23"


@pytest.mark.parametrize(
    ("since", "first_day"),
    [
        ("7d", "2026-11-17"),
        ("1d", TODAY),
        ("24h", TODAY),
        ("25h", "2026-11-22"),
        ("2w", "2026-11-10"),
        (" 7D ", "2026-11-17"),
        ("2026-11-01", "2026-11-01"),
        ("9999d", "2025-11-22"),
        ("1999-01-01", "2025-11-22"),
    ],
)
def test_a_period_ends_today_and_is_a_year_at_most(since, first_day) -> None:
    assert find_first_day(since, TODAY) == first_day


@pytest.mark.parametrize("since", ["", "0d", "7", "d", "7m", "-7d", "2026-13-01", "yesterday", "7d7d", "1.5d"])
def test_anything_else_is_refused_with_what_is_allowed(since) -> None:
    with pytest.raises(ValueError, match=r"7d, 24h, 2w"):
        find_first_day(since, TODAY)


@pytest.mark.parametrize("since", ["2026-11-24", "2027-01-01"])
def test_a_day_to_come_is_refused_with_the_day_that_it_is(since) -> None:
    """Days are in UTC, so a user's own date may be a day ahead."""
    with pytest.raises(ValueError, match=f"{since} is in the future: today is {TODAY} in UTC"):
        find_first_day(since, TODAY)
    assert find_first_day(TODAY, TODAY) == TODAY
