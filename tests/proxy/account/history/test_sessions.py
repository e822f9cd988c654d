"""The list of sessions: search, filters, order and pages."""

import time

import pytest
from support.events import count_instructions, make_event, make_window

from trimtab.proxy.account.history import sessions, table
from trimtab.proxy.account.history.sessions import ORDERS, SessionQuery, find_named, list_choices, list_sessions
from trimtab.proxy.account.history.table import Bounds, Erased, Row, add, erase
from trimtab.proxy.account.history.texts import Title, erase_texts, keep_title


def keep(connection, *events):
    add(connection, [Row.of(event, 1) for event in events], Bounds(events_bytes=10**9))


def names(connection, **query) -> list[str]:
    return [one.name for one in list_sessions(connection, SessionQuery(100, **query))[0]]


def test_a_session_adds_up_its_requests(connection):
    keep(
        connection,
        make_event("1", session="s", at=1.0, original_tokens=10, sent_tokens=10, cost=0, without_cost=0),  # it is free
        make_event("2", session="s", at=2.0, original_tokens=30, sent_tokens=12, cost=5, without_cost=9),
        make_event(
            "3", session="s", at=3.0, original_tokens=40, window=make_window(7), bill=None
        ),  # refused: nothing counts
        make_event("4", session="t", at=2.5),
        make_event("5", at=9.0),  # of no session
    )
    add(connection, [Row.of_summary(0.5, 3, "m", "", "s", 1), Row.of_summary(5.0, 4, "m", "", "u", 1)], Bounds())
    (session, other), total = list_sessions(connection, SessionQuery(5))
    assert (session.name, session.first_at, session.last.at, session.requests) == ("s", 1.0, 3.0, 3)
    assert (session.saved_tokens, session.cost, session.without_cost, session.summary_cost) == (18, 5, 9, 3)
    assert (session.cuts, session.has_text) == (1, False)
    assert (other.name, other.cost) == ("t", None)
    assert total == 2
    assert find_named(connection, "s") == session
    assert list_sessions(connection, SessionQuery()) == ([session], 2)


@pytest.fixture
def three(connection):
    """Three sessions of two clients."""
    keep(
        connection,
        make_event("1", session="aa", at=1.0, model="opus", client="ana", outcome="unchanged", cost=9, without_cost=20),
        make_event("2", session="bb", at=2.0, model="gpt", client="ben", outcome="unchanged", original_tokens=70),
        make_event("3", session="bb", at=3.0, model="gpt", client="ben", outcome="compacted", original_tokens=90),
        make_event("4", session="cc", at=4.0, model="gpt", client="", outcome="unchanged", cost=7, without_cost=8),
    )
    keep_title(connection, "aa", 1.0, Title("Ärger mit dem Parser", ""))
    keep_title(connection, "bb", 3.0, Title("", "0199-session"))
    return connection


def test_sessions_are_found_by_words_and_by_what_their_newest_request_has(three):
    """Each word must be in the title or in a shown name, in any case. What is not known is last in either direction."""
    for query, found in (
        ({}, ["cc", "bb", "aa"]),
        ({"words": "ärger PARSER"}, ["aa"]),
        ({"words": "parser ben"}, []),
        ({"words": "0199"}, ["bb"]),
        ({"words": "GPT un"}, ["cc"]),
        ({"words": "%"}, []),
        ({"model": "gpt"}, ["cc", "bb"]),
        ({"client": "ana"}, ["aa"]),
        ({"client": ""}, ["cc"]),
        ({"outcome": "compacted"}, ["bb"]),
        ({"since": 3.0}, ["cc", "bb"]),
        ({"order": "first", "ascends": True}, ["aa", "bb", "cc"]),
        ({"order": "session"}, ["aa", "cc", "bb"]),
        ({"order": "requests"}, ["bb", "cc", "aa"]),
        ({"order": "cost", "ascends": True}, ["cc", "aa", "bb"]),
        ({"order": "saved"}, ["aa", "cc", "bb"]),
    ):
        assert names(three, **query) == found
        assert list_sessions(three, SessionQuery(1, **query))[1] == len(found)


def test_pages_lose_no_session_and_repeat_none(three):
    for order in ORDERS:
        pages = [list_sessions(three, SessionQuery(2, offset, order=order)) for offset in (0, 2, 4)]
        assert sorted(one.name for page, _ in pages for one in page) == ["aa", "bb", "cc"]
        assert [total for _, total in pages] == [3, 3, 3]


def test_only_what_is_there_can_be_chosen(three):
    """A session of another client is not there."""
    client = {"model": ["opus"], "client": ["ana"], "outcome": ["unchanged"]}
    every = {"model": ["gpt", "opus"], "client": ["ana", "ben"], "outcome": ["compacted", "unchanged"]}
    assert (list_choices(three), list_choices(three, "ana")) == (every, client)
    assert find_named(three, "aa", "ana") == find_named(three, "aa") is not None
    assert find_named(three, "aa", "ben") is find_named(three, "nothing") is None


def test_a_title_is_erased_with_its_session_and_its_texts(three):
    assert [find_named(three, name).title for name in ("aa", "cc")] == ["Ärger mit dem Parser", ""]
    assert find_named(three, "bb").header == "0199-session"
    erase(three, Erased("aa", time.time(), text_only=True))
    keep_title(three, "aa", 1.0, Title("Ärger", ""))
    assert find_named(three, "aa").title == ""
    erase_texts(three)
    assert find_named(three, "bb").header == ""
    assert names(three, words="0199") == []


def test_the_oldest_titles_give_way(connection, monkeypatch):
    monkeypatch.setattr("trimtab.proxy.account.history.texts.MAX_TITLES", 2)
    for number in range(4):
        keep_title(connection, str(number), 1.0, Title("t", ""))
    assert connection.execute("SELECT session FROM private.titles").fetchall() == [("2",), ("3",)]


def test_a_page_of_many_sessions_reads_only_its_own(connection, monkeypatch):
    keep(connection, *(make_event(str(n), session=str(n), at=float(n)) for n in range(1000)))
    read = []
    monkeypatch.setattr(sessions, "find_previous", lambda *a: read.append(a) or table.find_previous(*a))
    counted = count_instructions(connection)
    found, total = list_sessions(connection, SessionQuery(50, 950, words="a", order="requests"))
    assert (len(found), total, len(read)) == (50, 1000, 50)
    assert counted() < 1000 * 1000
