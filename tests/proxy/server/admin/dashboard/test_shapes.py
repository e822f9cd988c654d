"""What the pages show of a request."""

import orjson
from support.events import make_event

from proxy.server.admin.dashboard.shapes import add_buckets, shape_bucket, shape_turn, tell_briefly, write_json
from proxy.state.history.event import EventDecision
from proxy.state.history.timeline import Timeline
from proxy.state.history.turn import Turn


def test_money_is_in_dollars_and_sections_have_names():
    event = make_event(cost=2_500_000_000, without_cost=None, sent_sections=(1, 2, 3, 4, 5))
    shaped = shape_turn(Turn(event, cut_moved=True, cut_tokens=7, cut_cost=1_000_000), 2)
    assert (shaped["cost_usd"], shaped["without_usd"], shaped["cut_cost_usd"]) == (2.5, None, 0.001)
    assert shaped["sent_sections"] == {"system": 1, "summary": 2, "memory": 3, "recent": 4, "current": 5}
    assert shaped["original_sections"] == {}
    assert (shaped["cut_moved"], shaped["cut_tokens"], shaped["worker"]) == (True, 7, 2)


def test_without_kept_text_the_story_comes_from_the_decisions():
    decisions = (
        EventDecision("prune", "at high water", 1, 90, 12_000, 2_000, 3, 4),
        EventDecision("pairing", "a call without its result", 2, 90, 10, 12, 1, 0),
        EventDecision("cold_cache", "cut early", 1, 90, 5, 5, 0, 0),
    )
    assert tell_briefly(make_event(decisions=decisions)) == [
        "prune: at high water. 3 messages changed, the first is message 4. 10,000 tokens saved.",
        (
            "pairing (second attempt): a call without its result. 1 message changed, the first is message 0."
            " 2 tokens added."
        ),
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


def test_minutes_and_workers_add_up():
    parts = []
    for cost in (5, 7):
        timeline = Timeline()
        timeline.add(make_event(label="m", client="c", sent_tokens=3, cost=cost, without_cost=9))
        parts += [shape_bucket(bucket) for bucket in timeline.buckets.values()]
    bucket = add_buckets(60.0, parts)
    share = {"requests": 2, "original_tokens": 0, "sent_tokens": 6}
    assert (bucket["at"], bucket["requests"], bucket["sent_tokens"]) == (60.0, 2, 6)
    assert (bucket["cost_usd"], bucket["saved_usd"]) == (12e-9, 6e-9)
    assert (bucket["models"], bucket["clients"]) == ({"m": share}, {"c": share})
    assert add_buckets(0.0, [])["requests"] == 0
