"""The rows of requests, and what is read from them."""

import sqlite3
import time
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.events import count_instructions, make_event, make_window

from trimtab.proxy.account.history import table
from trimtab.proxy.account.history.sessions import SessionQuery, list_sessions
from trimtab.proxy.account.history.table import (
    FIGURES,
    KEPT_STEPS,
    MOST,
    STEP_SECONDS,
    Bounds,
    Entry,
    Erased,
    Query,
    Row,
    add,
    copy,
    erase,
    find_request,
    find_session,
    find_uncut_size,
    list_after,
    list_requests,
    measure_move,
    open_in_memory,
    read_position,
    sum_steps,
)
from trimtab.proxy.account.history.texts import attach, keep_text, pack_text
from trimtab.proxy.account.outcome import OutcomeText

BOUNDS = Bounds()


def keep(connection, *events, bounds=BOUNDS, cache_price=None, worker=1):
    rows = [Row.of(event, worker)._replace(cache_price=cache_price) for event in events]
    add(connection, rows, bounds)


def names(connection, **query) -> list[str]:
    listed, _ = list_requests(connection, Query(**{"limit": 100, **query}))
    return [one.event.request_id for one in listed]


def test_a_request_comes_back_as_it_was(connection):
    event = make_event(cost=7, original_sections=(1, 2, 3, 4, 5), window=make_window(7), bill=None, has_prompt=False)
    keep(connection, event, worker=3)
    found = find_request(connection, "a")
    assert (found.event, found.worker, found.sentences) == (event, 3, None)
    assert find_request(connection, "b") is None


EVENTS = st.lists(st.tuples(st.integers(0, 20), st.sampled_from("st"), st.sampled_from("mn")), max_size=30)


@settings(max_examples=50)
@given(events=EVENTS, limit=st.integers(1, 9), session=st.none() | st.just("s"), model=st.none() | st.just("n"))
def test_pages_lose_no_request_and_repeat_none(events, limit, session, model):
    connection = open_in_memory()
    attach(connection, ":memory:")
    every = [make_event(f"{n:02}", at=at, session=s, label=m) for n, (at, s, m) in enumerate(events)]
    for event in every:
        keep(connection, event)
    wanted = [one for one in every if session in {None, one.session} and model in {None, one.label}]
    wanted.sort(key=lambda one: (one.at, one.request_id), reverse=True)
    found, before, more = [], None, True
    while more:
        listed, more = list_requests(connection, Query(limit, before, session=session, model=model))
        found += [one.event.request_id for one in listed]
        before = found[-1] if found else None
    assert found == [one.request_id for one in wanted]
    assert list_requests(connection, Query(limit, "none")) is None
    connection.close()


def test_only_the_newest_rows_stay(connection):
    for number in range(5):
        keep(connection, make_event(str(number)), bounds=Bounds(events=3))
    assert names(connection) == ["4", "3", "2"]
    keep(connection, *(make_event(f"x{n}", reason="x" * 1000) for n in range(50)), bounds=Bounds(events_bytes=20_000))
    assert 5 < len(names(connection)) < 20
    assert "x49" in names(connection)
    keep(connection, make_event("late", at=2000.0), bounds=Bounds(ttl_seconds=999))
    assert names(connection) == ["late"]


def test_a_request_is_kept_once(connection):
    """Although a writer that was not answered in time tries again."""
    summary = Row.of_summary(1000.0, 5, "m", "", "s", 1)
    for _ in range(2):
        keep(connection, make_event(session="s"))
        add(connection, [summary, summary._replace(at=1000.5)], BOUNDS)
    assert names(connection) == ["a"]
    (session,) = list_sessions(connection, SessionQuery(5))[0]
    assert session.summary_cost == 10
    assert figures(connection)[16, "", ""]["requests"] == 1


def test_a_row_that_cannot_be_read_breaks_nothing(connection):
    keep(connection, *(make_event(name, session="s", at=float(at)) for at, name in enumerate("abc")))
    for name, broken in (("b", b"{"), ("c", b'{"at": "x"}')):
        connection.execute("UPDATE events SET event = ? WHERE request_id = ?", (broken, name))
    assert names(connection) == ["a"]
    assert find_request(connection, "b") is None
    assert list_sessions(connection, SessionQuery(5))[0] == []
    keep(connection, make_event("d", session="s", at=9.0))
    assert [one.last.request_id for one in list_sessions(connection, SessionQuery(5))[0]] == ["d"]


def test_a_figure_beyond_all_bounds_breaks_no_sum(connection):
    huge = 10**18
    for name in "abcdefghijklmnop":
        keep(connection, make_event(name, session="s", original_tokens=huge, sent_tokens=1, cost=huge, without_cost=1))
    (session,) = list_sessions(connection, SessionQuery(5))[0]
    assert session.cost == 16 * MOST
    assert sum_steps(connection, 0, 6000, 60)


def test_a_cut_moves_once_although_the_client_goes_back(connection):
    windows = [None, make_window(7), make_window(7), make_window(7, 9), make_window(20), make_window(7)]
    events = [make_event(str(at), session="s", at=float(at), window=each) for at, each in enumerate(windows)]
    for event in reversed(events):
        keep(connection, event)
    listed, _ = list_requests(connection, Query(100))
    assert [one.cut_moved for one in reversed(listed)] == [False, True, False, True, True, False]
    assert list_sessions(connection, SessionQuery())[0][0].cuts == 3


def test_a_move_is_priced_by_what_a_token_costs_more(connection):
    """6000 tokens were sent, a quarter of them kept; 500 of the client's tokens are new.

    A lost prefix never costs nothing: a long new result is shortened, and of the prompt only 4500 tokens differ.
    """
    before = make_event("1", session="s", at=1.0, original_tokens=10_000, sent_tokens=10_000)
    moved = {"at": 2.0, "sent_tokens": 6_000, "window": make_window(7), "prefix_kept": 0.25}
    keep(connection, before, make_event("2", session="s", original_tokens=10_500, **moved), cache_price=2.5)
    turn = find_request(connection, "2")
    assert (turn.cut_moved, turn.cut_tokens, turn.cut_cost) == (True, 4_000, 10_000)
    assert measure_move(before, make_event(original_tokens=19_000, **moved)) is None
    assert measure_move(before, make_event(original_tokens=14_500, **moved)) is None
    assert measure_move(before, make_event(original_tokens=10_500, **moved | {"prefix_kept": 1.0})) == 0


def test_readers_hear_of_what_was_added_since(connection):
    """Also if the newest rows were erased meanwhile. More than they can take is none."""
    assert list_after(connection, 0, 5) == ([], 0, False)
    keep(connection, make_event("a", session="s"), make_event("b"))
    listed, seq, is_lost = list_after(connection, 0, 5)
    assert ([one.event.request_id for one in listed], is_lost) == (["a", "b"], False)
    keep(connection, *map(make_event, "cdef"))
    assert list_after(connection, seq, 3)[0::2] == ([], True)
    listed, seq, _ = list_after(connection, seq, 4)
    assert [one.event.request_id for one in listed] == list("cdef")
    connection.execute("DELETE FROM events")
    keep(connection, make_event("g"))
    assert [one.event.request_id for one in list_after(connection, seq, 3)[0]] == ["g"]


def figures(connection, start=0, stop=24 * 3600, step=60):
    return {
        (at // step, kind, name): dict(zip(FIGURES, each, strict=True))
        for at, kind, name, each in sum_steps(connection, start, stop, step)
    }


def test_a_request_counts_in_its_minute_for_its_model_and_client(connection):
    """So does a summary; a client without a name has no sums of its own."""
    shown = {"original_tokens": 9, "sent_tokens": 4, "cached_tokens": 3, "cost": 5, "without_cost": 8}
    keep(connection, make_event("1", at=119.0, label="m", client="c", **shown))
    refused = {"bill": None, "original_tokens": 70, "status": 400, "cost": None, "without_cost": 8}
    keep(connection, make_event("2", at=120.0, label="m", outcome="failed_open", **refused))
    add(
        connection, [Row.of_summary(125.0, 100, "m", "", "s", 1), Row.of_summary(126.0, 10, "n", "c", "s", 1)], Bounds()
    )
    found = figures(connection)
    first = {"requests": 1, "priced": 1, "fail_opens": 0, "failed": 0, **shown}
    assert found[1, "", ""] == found[1, "models", "m"] == found[1, "clients", "c"] == first
    nothing = dict.fromkeys(FIGURES, 0)
    assert found[2, "", ""] == nothing | {"requests": 1, "fail_opens": 1, "failed": 1, "priced": 2, "cost": 110}
    assert found[2, "models", "m"] == nothing | {"requests": 1, "fail_opens": 1, "failed": 1, "priced": 1, "cost": 100}
    assert found[2, "models", "n"] == found[2, "clients", "c"] == nothing | {"priced": 1, "cost": 10}
    assert len(found) == 7
    assert figures(connection, step=120)[0, "", ""]["requests"] == 1
    assert {at for at, _, _ in figures(connection, stop=120)} == {1}


NAMES = st.sampled_from("abcdefghijkl")
COSTS = st.none() | st.integers(0, 10**9)


@settings(max_examples=50)
@given(
    requests=st.lists(st.tuples(NAMES, COSTS, COSTS)),
    summaries=st.lists(st.tuples(NAMES, st.integers(0, 10**9))),
    at_once=st.booleans(),
)
def test_the_sums_of_all_models_are_those_of_the_minute(requests, summaries, at_once):
    """Also if some of them are `other`. So are those of all clients, if each has a name."""
    connection = open_in_memory()
    attach(connection, ":memory:")
    rows = [
        Row.of(make_event(str(n), label=label, client=label, original_tokens=7, cost=cost, without_cost=without), 1)
        for n, (label, cost, without) in enumerate(requests)
    ]
    rows += [Row.of_summary(1000.0, cost, label, label, "", 1) for label, cost in summaries]
    for batch in [rows] if at_once else [[row] for row in rows]:
        add(connection, batch, Bounds())
    found = figures(connection)
    for kind in ("models", "clients"):
        shares = [each for (_, one, _), each in found.items() if one == kind]
        assert len(shares) <= table.MAX_NAMES + 1
        for name in FIGURES:
            assert sum(share[name] for share in shares) == found.get((16, "", ""), {}).get(name, 0)
    connection.close()


def test_a_day_is_kept(connection):
    for step in range(KEPT_STEPS + 5):
        add(connection, [Row.of_summary(float(step * STEP_SECONDS), 1, "m", "", "", 1)], Bounds(events=1))
    steps = {at for at, _, _ in figures(connection, stop=10**6)}
    assert steps == set(range(5, KEPT_STEPS + 5))


def test_erasing_a_session_leaves_the_others_and_the_minutes(connection):
    for number, session in enumerate("abab"):
        keep(connection, make_event(str(number), session=session))
        keep_text(connection, str(number), session, 1000.0, pack_text(OutcomeText(("told",))), 10**6)
    assert find_session(connection, "b", time.time()) == (True, [])
    erase(connection, Erased("b", time.time(), text_only=True))
    assert [one.sentences for one in list_requests(connection, Query(5))[0]] == [None, ["told"], None, ["told"]]
    assert find_session(connection, "a", time.time())[0]
    erase(connection, Erased("a", time.time(), text_only=False))
    assert names(connection) == ["3", "1"]
    assert [(one.name, one.has_text) for one in list_sessions(connection, SessionQuery(5))[0]] == [("b", 0)]
    assert figures(connection)[16, "", ""]["requests"] == 4
    assert not find_session(connection, "a", time.time())[0]


def test_what_was_erased_while_it_waited_does_not_come_back(connection):
    erase(connection, Erased("s", 1000.0, text_only=False))
    keep(connection, make_event("a", session="s", at=1000.0), make_event("b", session="s", at=1000.5))
    assert names(connection) == ["b"]


def test_entries_of_the_log_are_copied_once(connection):
    """By whichever worker reads them first. An order to erase is carried out; what cannot be read is passed over."""
    rows = [Row.of(make_event(name, session=name), 1)._replace(entry=f"1-{n}") for n, name in enumerate("abc", 9)]
    entries = [Entry(row.entry, row) for row in rows]
    copy(connection, entries[:2], Bounds())
    assert read_position(connection) == "1-10"
    copy(connection, entries[:1], Bounds())
    copy(connection, [*entries, Entry("1-12", None), Entry("2-0", Erased("a", 2000.0, text_only=False))], Bounds())
    assert names(connection) == ["c", "b"]
    assert read_position(connection) == "2-0"
    assert figures(connection)[16, "", ""]["requests"] == 3
    assert find_session(connection, "c", 2000.0) == (True, ["1-11"])


def test_readers_hear_once_of_what_is_added_meanwhile(connection):
    """Another worker adds a row between two statements."""

    def execute(*statement):
        found = connection.execute(*statement).fetchall()
        keep(connection, make_event("b"))
        return SimpleNamespace(fetchone=lambda: found[0], fetchall=lambda: found)

    keep(connection, make_event("a"))
    heard, seq, _ = list_after(SimpleNamespace(execute=execute), 0, 10)
    later, _, _ = list_after(connection, seq, 10)
    assert [turn.event.request_id for turn in (*heard, *later)] == ["a", "b"]


def test_a_page_of_a_table_takes_work_that_is_linear_in_its_rows(connection):
    events = [
        make_event(str(n), session=str(n % 7), at=float(n), window=make_window(n), reason="x" * 800)
        for n in range(2000)
    ]
    keep(connection, *events, bounds=Bounds(events_bytes=10**9))
    counted = count_instructions(connection)
    list_requests(connection, Query(500))
    list_requests(connection, Query(500, session="3", outcome="none"))
    list_sessions(connection, SessionQuery(500))[0]
    assert counted() < 200 * 2000


def test_without_its_cut_a_request_is_the_one_before_and_what_is_new() -> None:
    """Not known if nothing was forwarded before. A client that goes back takes nothing off."""
    for previous, event, tokens in (
        (None, (900, 300), 900),
        (None, (0, 300), None),
        ((800, 200), (900, 300), 300),
        ((900, 200), (800, 300), 200),
        ((800, 0), (900, 300), None),
    ):
        made = [one and make_event(original_tokens=one[0], sent_tokens=one[1]) for one in (previous, event)]
        assert find_uncut_size(*made) == tokens


def test_an_order_of_the_log_that_fails_is_read_again(connection, monkeypatch):
    def fail(*_):
        raise sqlite3.OperationalError

    row = Row.of(make_event(session="s"), 1)._replace(entry="1-1")
    monkeypatch.setattr(table, "_erase", fail)
    with pytest.raises(sqlite3.OperationalError):
        copy(connection, [Entry("1-1", row), Entry("1-2", Erased("s", 2000.0, text_only=False))], BOUNDS)
    assert read_position(connection) == ""
