"""Sessions for people: with titles, filtered and sorted, as on the dashboard."""

import asyncio
from dataclasses import replace
from io import StringIO

import click
import orjson
import pytest
from msgspec import structs
from rich.console import Console
from support.command_line import run_trimtab
from support.events import ANSWERED, make_event
from support.recordings import keep, make_recording

from trimtab.proxy.account.recordings.format import Counted
from trimtab.proxy.cli.records.inspect import WITHOUT_SUMMARIES, find_recorded, read_title
from trimtab.proxy.cli.stats import read_query, show_sessions

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
    for body in ("{", "[]", '{"messages": 1}'):
        assert read_title(make_recording(body=body)) == ""


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
