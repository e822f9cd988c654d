"""What the pages show of a request."""

from io import BytesIO

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.events import make_event

from proxy.account.history.timeline import Timeline
from proxy.account.history.turn import Turn
from proxy.server.admin.dashboard.shapes import (
    add_buckets,
    read_pieces,
    shape_bucket,
    shape_turn,
    show_bucket,
    tell_briefly,
    write_json,
    write_pieces,
)
from proxy.telemetry.ledger import Entry


def test_money_is_in_dollars_and_sections_have_names():
    event = make_event(cost=2_500_000_000, without_cost=None, sent_sections=(1, 2, 3, 4, 5))
    shaped = shape_turn(Turn(event, cut_moved=True, cut_tokens=7, cut_cost=1_000_000), 2)
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
    assert shape_turn(Turn(make_event()), 1, ("told",))["story"] == ["told"]


def test_json_that_is_written_in_pieces_is_json():
    value = {
        "a": [],
        "text": {"changes": [{"lines": [{"x": [1]}]}, "\u00e9"]},
        "b": {},
        "c": {"d": {"e": {"f": None}}},
        "t": (1,),
    }
    assert orjson.loads(write_json(value)) == value | {"t": [1]}
    assert orjson.loads(write_json({7: {"models": {"m": 1}}})) == {"7": {"models": {"m": 1}}}
    assert (write_json(None), write_json([{"a": 1}, 2])) == (b"null", b'[{"a":1},2]')
    assert (write_json([]), write_json({})) == (b"[]", b"{}")


VALUES = st.recursive(
    st.none() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)


@given(value=VALUES)
def test_what_goes_to_another_worker_in_pieces_comes_back(value):
    """Long lists do not go in one piece. Numbers as keys become texts, as in any JSON."""
    assert orjson.loads(write_json(read_pieces(write_pieces(value)))) == value
    assert read_pieces(write_pieces({7: {"models": {"m": 1}}})) == {"7": {"models": {"m": 1}}}
    assert max(map(len, write_pieces({"text": {"changes": ["x" * 10] * 1000}}))) < 100


def test_what_is_no_part_of_a_worker_is_an_error_of_value():
    for written in (b"", b"{", b"[]\n[", b"[]\n[]\t{"):
        with pytest.raises(ValueError):  # noqa: PT011 - any of them
            read_pieces(BytesIO(written))


def add_up(*timelines: Timeline) -> dict:
    """The one bucket of some timelines, as the pages show it."""
    parts = [shape_bucket(bucket) for timeline in timelines for bucket in timeline.buckets.values()]
    return show_bucket(60.0, add_buckets(parts))


def test_minutes_and_workers_add_up():
    """For each model and client, too. A summary is a cost that there would not be without trimtab."""
    timelines = [Timeline(), Timeline()]
    for timeline, cost in zip(timelines, (5, 7), strict=True):
        timeline.add(make_event(label="m", client="c", sent_tokens=3, cost=cost, without_cost=9))
    timelines[1].add_summary(1000.0, 2, "m", "c")
    timelines[1].add(make_event(label="n", cost=1, without_cost=1))
    bucket = add_up(*timelines)
    share = {"requests": 2, "original_tokens": 0, "sent_tokens": 6}
    share |= {"cost_usd": 14e-9, "without_usd": 18e-9, "saved_usd": 4e-9}
    other = {"requests": 1, "original_tokens": 0, "sent_tokens": 0, "cost_usd": 1e-9, "without_usd": 1e-9}
    assert bucket == {
        "at": 60.0,
        "requests": 3,
        "original_tokens": 0,
        "sent_tokens": 6,
        "cached_tokens": 0,
        "fail_opens": 0,
        "cost_usd": 15e-9,
        "without_usd": 19e-9,
        "saved_usd": 4e-9,
        "models": {"m": share, "n": other | {"saved_usd": 0.0}},
        "clients": {"c": share},
    }


def test_money_that_is_not_known_is_null():
    """Not if at least one price is known, and not if there was no request: that costs nothing."""
    timeline = Timeline()
    timeline.add(make_event(label="unpriced", client="c"))
    bucket = add_up(timeline)
    for shown in (bucket, bucket["models"]["unpriced"], bucket["clients"]["c"]):
        assert shown["cost_usd"] is shown["without_usd"] is shown["saved_usd"] is None
    timeline.add(make_event(label="priced", client="c", cost=3, without_cost=4))
    bucket = add_up(timeline)
    assert bucket["models"]["unpriced"]["cost_usd"] is None
    assert bucket["cost_usd"] == bucket["models"]["priced"]["cost_usd"] == bucket["clients"]["c"]["cost_usd"] == 3e-9
    assert (add_up()["cost_usd"], add_up()["saved_usd"], add_up()["requests"]) == (0.0, 0.0, 0)
