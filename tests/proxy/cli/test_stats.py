"""`trimtab stats`: what it prints, and its status."""

import asyncio
from io import StringIO
from pathlib import Path

import click
import orjson
import pytest
from msgspec import structs
from msgspec.structs import replace
from rich.console import Console
from support.command_line import run_trimtab
from support.events import ANSWERED, make_event
from support.recordings import keep, make_recording

from trimtab.proxy.account.books import Batch, Place, Sums
from trimtab.proxy.account.books_stores import open_statistics
from trimtab.proxy.account.recordings.format import Counted
from trimtab.proxy.cli.options import StoppedError
from trimtab.proxy.cli.records.inspect import WITHOUT_SUMMARIES, find_recorded
from trimtab.proxy.cli.stats import (
    describe,
    find_first_day,
    gather,
    print_table,
    read_query,
    read_statistics,
    show_sessions,
)
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
    assert "1 request is estimated" in _print(LOSS + Sums(estimated_requests=-1))


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


# Sessions for people: with titles, filtered and sorted, as on the dashboard.

HEADS = {*["session", "title", "newest", "model", "client", "outcome", "requests", "original", "sent", "cost", "saved"]}
ASKED = dict.fromkeys(("order", "find", "model", "client", "outcome"))


def record(name: str, session: str, text: str, **fields: object):
    """A recording of a session's request, with the user's text."""
    body = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).decode()
    recording = make_recording(name * 12, body=body)
    return replace(recording, event=structs.replace(recording.event, session=session, **fields))


THREE = [
    record("aa", "s1", "Mend the parser.", at=1e9, model="opus", client="ana"),
    record("bb", "s2", "Write a poem.", at=2e9, model="gpt", client="ben", original_tokens=1_234_567),
    record("cc", "s2", "Another text of a later request.", at=3e9, model="gpt", client="ben"),
]


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ({}, ["s2", "s1"]),
        ({"order": "-last"}, ["s1", "s2"]),
        ({"order": "session"}, ["s1", "s2"]),
        ({"order": "-session"}, ["s2", "s1"]),
        ({"find": "PARSER"}, ["s1"]),
        ({"model": "gpt"}, ["s2"]),
        ({"client": "ana"}, ["s1"]),
        ({"outcome": "compacted"}, []),
    ],
)
def test_recorded_sessions_are_found_as_on_the_dashboard(asked, names):
    found, total = find_recorded(THREE, read_query(5, ASKED | asked))
    assert [one.name for one in found] == names
    assert total == len(names)


def test_recorded_sessions_tell_and_sort_what_was_not_sent():
    """It counts as on the dashboard: of a request that the upstream has answered."""
    tokens = {"original_tokens": 900, "sent_tokens": 200}
    answered = replace(record("aa", "s1", "One.", at=1e9, **tokens), counted=Counted(original=True), bill=ANSWERED)
    failed = record("bb", "s2", "Two.", at=2e9, **tokens)
    found, _ = find_recorded([answered, failed], read_query(5, ASKED | {"order": "original"}))
    assert [(one.name, one.saved_tokens) for one in found] == [("s1", 700), ("s2", 0)]


def test_a_session_is_called_by_the_first_text_of_its_first_request():
    found, _ = find_recorded(THREE, read_query(5, ASKED))
    assert [one.title for one in found] == ["Write a poem.", "Mend the parser."]


def test_a_column_that_there_is_not_is_refused():
    with pytest.raises(click.BadParameter, match="requests"):
        read_query(5, ASKED | {"order": "at; DROP"})


@pytest.mark.parametrize("titled", [True, False])
@pytest.mark.parametrize("width", [60, 72, 80, 100, 160])
def test_the_table_fits_the_terminal_and_keeps_session_and_title(width, titled):
    """Figures are short; what is not known is a dash; no head is cut. Without any title, there is no such column."""
    written = StringIO()
    found, _ = find_recorded(THREE, read_query(5, ASKED))
    if width > 60:
        found = [replace(one, last=structs.replace(one.last, model="claude-sonnet-4-5-20250929")) for one in found]
    if not titled:
        found = [replace(one, title="") for one in found]
    show_sessions(
        found, 9, as_json=False, console=Console(file=written, width=width, force_terminal=True, color_system=None)
    )
    lines = written.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in written.getvalue()
    row = next(line for line in lines if "s1" in line)
    assert ("Mend the parser." in row) is ("title" in lines[0]) is titled
    assert {*lines[0].replace("newest (UTC)", "newest").split()} <= HEADS
    assert "2 of 9 sessions" in lines[-1]


@pytest.mark.parametrize("width", [72, 110, 154, 155])
def test_names_of_clients_and_outcomes_are_whole_or_left_out(width):
    """Only titles and models are broken."""
    names = {"client": "a-client-of-a-long-name", "outcome": "a-long-outcome", "model": "claude-sonnet-4-5-20250929"}
    one = record("aa", "s1", "Mend the parser and all of its many tests, please.", at=1e9, **names)
    written = StringIO()
    console = Console(file=written, width=width, force_terminal=True, color_system=None)
    show_sessions(*find_recorded([one], read_query(5, ASKED)), as_json=False, console=console)
    head, *_ = written.getvalue().splitlines()
    for name in ("client", "outcome"):
        assert names[name] in written.getvalue() or name not in head


def test_inspect_lists_sessions_and_filters_requests(tmp_path):
    for one in THREE:
        keep(tmp_path, one)

    def inspect(*arguments: str):
        return run_trimtab("inspect", "--dir", tmp_path, *arguments)

    told = orjson.loads(inspect("--sessions", "--find", "poem", "--json").stdout)
    assert [(one["title"], one["requests"]) for one in told["sessions"]] == [("Write a poem.", 2)]
    assert "Mend the parser." in inspect("--sessions").stdout
    for asked, ids in (
        ({"--client": "ana"}, ["aa"]),
        ({"--model": "gpt"}, ["cc", "bb"]),
        ({"--session": "s2"}, ["cc", "bb"]),
    ):
        listed = orjson.loads(inspect("--json", *next(iter(asked.items()))).stdout)
        assert [one["request_id"][:2] for one in listed] == ids
    assert inspect("--outcome", "nothing").exit_code == 1
    assert inspect("--sort", "cost").exit_code == 2


def test_a_wrong_column_is_named_also_without_recordings(tmp_path):
    told = run_trimtab("inspect", "--dir", tmp_path, "--sessions", "--sort", "size")
    assert (told.exit_code, "must be one of session, first" in told.output) == (2, True)


@pytest.mark.parametrize("cost", [None, 10**7])
def test_the_money_of_recorded_sessions_is_said_to_lack_summaries(tmp_path, cost):
    keep(tmp_path, record("aa", "s1", "Mend the parser.", cost=cost, without_cost=cost))
    told = run_trimtab("inspect", "--dir", tmp_path, "--sessions").stdout.splitlines()
    assert (told[-1] == WITHOUT_SUMMARIES) is (cost is not None)


async def test_stats_lists_the_sessions_of_the_store(client, start_proxy, tmp_path):
    """Without texts, which are never on disk; those before --since are left out."""
    store = f"store=sqlite:///{tmp_path}/summaries.sqlite3"
    proxy = await start_proxy(store)
    proxy.services.past.add(
        make_event("1", session="old", at=1000.0), make_event("2", session="new", at=4e9, client="ben")
    )
    await proxy.services.past.flush()

    async def stats(*arguments: str):
        return await asyncio.to_thread(run_trimtab, "stats", *arguments)

    shown = await stats("--by", "session", "--json", "--set", store)
    assert [(one["id"], one["title"]) for one in orjson.loads(shown.stdout)["sessions"]] == [("new", "")]
    assert "no session" in (await stats("--by", "session", "--client", "ana", "--set", store)).stdout
    assert (await stats("--sort", "cost", "--set", store)).exit_code == 2
    assert (await stats("--by", "session", "--sort", "cost", "--set", store)).exit_code == 0
    assert (await stats("--by", "session", "--set", "store=memory")).exit_code == 1
