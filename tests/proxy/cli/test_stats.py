"""`trimtab stats`: what it prints, and its status."""

import asyncio
from collections.abc import Mapping
from io import StringIO

import orjson
import pytest
from msgspec import structs
from msgspec.structs import replace
from rich.console import Console
from support.command_line import run_trimtab
from support.events import make_event
from support.golden import check_golden
from support.recordings import keep, make_recording

from trimtab.proxy.account.books import Place, Sums
from trimtab.proxy.cli.records.inspect import WITHOUT_SUMMARIES, find_recorded
from trimtab.proxy.cli.stats import (
    describe,
    find_first_day,
    gather,
    print_table,
    read_query,
    show_sessions,
)

ROWS = {
    Place("2026-11-22", "a", "ann"): Sums(requests=1, fresh_nanodollars=5 * 10**9, without_nanodollars=4 * 10**9),
    Place("2026-11-23", "a", "bob"): Sums(requests=2, summary_nanodollars=10**9, without_nanodollars=9 * 10**9),
    Place("2026-11-23", "b", "ann"): Sums(requests=4, completion_nanodollars=7 * 10**9),
}


ROW = Place("2026-11-23", "b", "ann")
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


def _print(sums: Mapping[Place, Sums], by: str, **options) -> str:
    written = StringIO()
    shown = gather(sums, "2026-11-17", "2026-11-23", by)
    print_table(shown, Console(file=written, width=160, **options))
    return "\n".join(
        line.rstrip() for line in (written.getvalue() + orjson.dumps(describe(shown)).decode()).split("\n")
    )


def test_each_group_has_its_sums_and_what_is_missing_is_said() -> None:
    """Days are in order, others begin with the dearest. A loss has a minus, and is red on a terminal.

    What has no price is not free: a sum that lacks a part is marked, one of which nothing is known has no amount.
    """
    place = Place("2026-11-23", "gpt-[4]*", "-")
    unknown = Sums(requests=3, unpriced_requests=3, summaries=1, unpriced_summaries=1, original_tokens=10)
    told = {
        "a loss": {place: LOSS},
        "a gain": {place: LOSS + Sums(without_nanodollars=5 * 10**9, estimated_requests=-1)},
        "no price": {place: unknown},
        "the price of a summary": {place: unknown, ROW: Sums(summaries=1, summary_nanodollars=10**9)},
        "nothing": {},
    }
    texts = {f"by {by}": _print(ROWS, by) for by in ("model", "client", "day")}
    check_golden("commands/stats", texts | {title: _print(sums, "model") for title, sums in told.items()})
    red = [_print(told[title], "model", force_terminal=True, color_system="standard") for title in ("a loss", "a gain")]
    assert ["\x1b[31m-$1.00" in text for text in red] == ["\x1b[31m" in text for text in red] == [True, False]


def test_a_name_cannot_control_the_terminal() -> None:
    """The store may be damaged, or another program's."""
    written = StringIO()
    shown = gather({Place("2026-11-23", "\x1b[2J[red]m", "-"): LOSS}, "2026-11-17", "2026-11-23", "model")
    print_table(shown, Console(file=written, width=160, force_terminal=True))
    assert "\x1b[2J" not in written.getvalue()
    assert "[red]m" in written.getvalue()


TODAY = "2026-11-23"


FIRST_DAYS = {
    "7d": "2026-11-17", "1d": TODAY, "24h": TODAY, "25h": "2026-11-22", " 7D ": "2026-11-17",
    "2026-11-01": "2026-11-01", "9999d": "2025-11-22", "1999-01-01": "2025-11-22",
}  # fmt: skip


def test_a_period_ends_today_and_is_a_year_at_most() -> None:
    """Anything else is refused with what is allowed."""
    assert {since: find_first_day(since, TODAY) for since in FIRST_DAYS} == FIRST_DAYS
    for since in ("", "0d", "7", "7m", "-7d", "2026-13-01", "7d7d"):
        with pytest.raises(ValueError, match=r"7d, 24h, 2w"):
            find_first_day(since, TODAY)


def test_a_day_to_come_is_refused_with_the_day_that_it_is() -> None:
    """Days are in UTC, so a user's own date may be a day ahead."""
    with pytest.raises(ValueError, match=f"2026-11-24 is in the future: today is {TODAY} in UTC"):
        find_first_day("2026-11-24", TODAY)
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


@pytest.mark.parametrize(("width", "titled"), [(60, True), (72, False), (80, True), (100, False), (160, True)])
def test_the_table_fits_the_terminal_and_keeps_session_and_title(width, *, titled):
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


def test_inspect_lists_sessions_and_filters_requests(tmp_path):
    for one in THREE:
        keep(tmp_path, one)

    def inspect(*arguments: str):
        return run_trimtab("inspect", "--dir", tmp_path, *arguments)

    told = orjson.loads(inspect("--sessions", "--find", "poem", "--json").stdout)
    assert [(one["title"], one["requests"]) for one in told["sessions"]] == [("Write a poem.", 2)]
    every = inspect("--sessions").stdout
    assert "Mend the parser." in every
    assert WITHOUT_SUMMARIES not in every
    keep(tmp_path, record("dd", "s3", "One.", at=4e9, cost=10**7, without_cost=10**7))
    assert inspect("--sessions").stdout.splitlines()[-1] == WITHOUT_SUMMARIES
    for asked, ids in (
        ({"--client": "ana"}, ["aa"]),
        ({"--model": "gpt"}, ["cc", "bb"]),
        ({"--session": "s2"}, ["cc", "bb"]),
    ):
        listed = orjson.loads(inspect("--json", *next(iter(asked.items()))).stdout)
        assert [one["request_id"][:2] for one in listed] == ids
    assert inspect("--outcome", "nothing").exit_code == 1
    assert inspect("--sort", "cost").exit_code == 2


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
