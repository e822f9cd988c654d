"""What the pages show of a request, a session, a minute and a text."""

import time

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.events import make_event

from trimtab.proxy.account.history.sessions import Session
from trimtab.proxy.account.history.table import FIGURES, Turn
from trimtab.proxy.account.outcome import Window
from trimtab.proxy.server.admin.dashboard.shapes import (
    choose_step,
    diff_lines,
    shape_request,
    shape_session,
    shape_timeline,
    tell_briefly,
    tell_why,
    write_json,
)
from trimtab.proxy.telemetry.ledger import IS_CUT, TOO_SHORT, Entry


def test_money_is_in_dollars_and_sections_have_names():
    event = make_event(cost=2_500_000_000, without_cost=None, sent_sections=(1, 2, 3, 4, 5))
    shaped = shape_request(Turn(event, 2, cut_moved=True, cut_tokens=7, cut_cost=1_000_000))
    assert (shaped["cost_usd"], shaped["without_usd"], shaped["cut_cost_usd"]) == (2.5, None, 0.001)
    assert shaped["sent_sections"] == {"system": 1, "summary": 2, "memory": 3, "recent": 4, "current": 5}
    assert shaped["original_sections"] == {}
    assert (shaped["cut_moved"], shaped["cut_tokens"], shaped["worker"]) == (True, 7, 2)


def test_without_kept_text_the_story_comes_from_the_decisions():
    decisions = (
        Entry("prune", "at high water", 12_000, 2_000, 3, 4, 1, 90),
        Entry("pairing", "a call without its result", 10, 12, 1, 0, 2, 90),
        Entry("cold_cache", "cut early", 5, 5, 0, 0, 1, 90),
    )
    assert tell_briefly(make_event(decisions=decisions)) == [
        (
            "3 tool results (from message 4 on) became one line each that tells the size, which saved 10,000 tokens;"
            " the calls stay, and the agent can make them again."
        ),
        ("In the second attempt: Upstreams want exactly one result right after each call: a call without its result."),
        "cold_cache: cut early.",
    ]
    assert shape_request(Turn(make_event(), 1, ["told"]))["story"] == ["told"]


def test_json_that_is_written_in_pieces_is_json():
    value = {
        "a": [],
        "text": {"changes": [{"lines": [{"x": [1]}]}, "\u00e9"]},
        "b": {},
        "c": {"d": {"e": {"f": None}}},
        "t": (1,),
    }
    assert orjson.loads(write_json(value)) == value | {"t": [1]}
    assert (write_json(None), write_json([{"a": 1}, 2])) == (b"null", b'[{"a":1},2]')
    assert (write_json([]), write_json({})) == (b"[]", b"{}")


def test_the_cost_of_a_session_includes_its_summaries():
    """Without a known price of a request, the cost is not known."""
    amounts = []
    for cost, summary_cost in ((5 * 10**8, 25 * 10**7), (None, 25 * 10**7), (None, 0), (5 * 10**8, 0)):
        shown = shape_session(Session("s", make_event(at=9.0), 1.0, 2, 3, cost, None, summary_cost, 1, has_text=True))
        amounts.append((shown["cost_usd"], shown["summary_usd"]))
        assert (shown["id"], shown["first_at"], shown["last_at"], shown["without_usd"]) == ("s", 1.0, 9.0, None)
    assert amounts == [(0.75, 0.25), (None, 0.25), (None, None), (0.5, 0.0)]


def figures(**some):
    return list((dict.fromkeys(FIGURES, 0) | some).values())


def test_buckets_have_no_holes():
    sums = [
        (720, "", "", figures(requests=3, sent_tokens=9, cached_tokens=2, priced=1, cost=5, without_cost=9)),
        (720, "models", "m", figures(requests=3, sent_tokens=9, cached_tokens=2)),
    ]
    timeline = shape_timeline(sums, 600, 960, 120)
    assert timeline["step_seconds"] == 120
    assert [(bucket["at"], bucket["requests"]) for bucket in timeline["buckets"]] == [(600, 0), (720, 3), (840, 0)]
    empty, bucket, _ = timeline["buckets"]
    assert (bucket["cached_tokens"], bucket["fail_opens"], bucket["clients"]) == (2, 0, {})
    assert (bucket["cost_usd"], bucket["without_usd"], bucket["saved_usd"]) == (5e-9, 9e-9, 4e-9)
    unknown = {"cost_usd": None, "without_usd": None, "saved_usd": None}
    assert bucket["models"] == {"m": {"requests": 3, "failed": 0, "original_tokens": 0, "sent_tokens": 9, **unknown}}
    assert (empty["cost_usd"], empty["saved_usd"], empty["requests"]) == (0.0, 0.0, 0)


def test_a_long_timeline_has_longer_steps():
    assert [choose_step(minutes) for minutes in (1, 120, 121, 1440)] == [60, 60, 120, 720]


TEXTS = st.lists(st.sampled_from(["a", "b", "c", "", "x y"]), max_size=12).map("\n".join)


@given(before=TEXTS, after=TEXTS)
def test_both_texts_can_be_read_from_the_lines(before, after):
    lines = diff_lines(before, after)
    assert [line["text"] for line in lines if line["kind"] != "added"] == before.splitlines()
    assert [line["text"] for line in lines if line["kind"] != "removed"] == after.splitlines()


def test_what_stays_is_the_same():
    lines = diff_lines("one\ntwo\nthree", "one\n2\nthree")
    assert [(line["kind"], line["text"]) for line in lines] == [
        ("same", "one"), ("removed", "two"), ("added", "2"), ("same", "three"),
    ]  # fmt: skip


@pytest.mark.measured
def test_a_hostile_pair_takes_no_long():
    """Thousands of equal lines would take minutes."""
    started = time.process_time()
    lines = diff_lines("x\ny\n" * 8000, "y\nx\n" * 8000)
    assert time.process_time() - started < 5
    assert len(lines) == 32_000


@pytest.mark.parametrize(
    ("event", "uncut_tokens", "why"),
    [
        ({}, 1200, "about 1,200 tokens did not fit the limit of 1,000"),
        ({}, 810, "with about 810 tokens it had reached high water (800), and a cut paid"),
        ({}, 300, "a limit of the configuration was reached"),
        ({}, None, ""),
        ({"retry": "recovered"}, 300, "the upstream refused the prompt as too long"),
        ({"decisions": (("compact_now", IS_CUT),)}, 1200, "somebody asked for it"),
        ({"decisions": (("compact_now", TOO_SHORT),)}, 1200, "about 1,200 tokens did not fit the limit of 1,000"),
        (
            {"decisions": (("cold_cache", "the upstream's cache was cold after 400 s"),)},
            300,
            "the upstream's cache was cold after 400 s, so a cut broke no cache",
        ),
    ],
)
def test_why_a_cut_moved_is_told_in_words(event, uncut_tokens, why):
    """What was asked for, and what the upstream did, comes before what the sizes say."""
    decisions = tuple(Entry(rule, reason, 0, 0, 0, 0, 1, 1000) for rule, reason in event.pop("decisions", ()))
    told = make_event(limit_tokens=1000, window=Window(800, 300), decisions=decisions, **event)
    assert tell_why(told, uncut_tokens) == why
