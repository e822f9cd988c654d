"""Parts of several workers become one."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.account.history.timeline import Bucket
from proxy.server.admin.dashboard.merge import (
    choose_step,
    join_minutes,
    merge_requests,
    merge_sessions,
    merge_timelines,
)
from proxy.server.admin.dashboard.shapes import shape_bucket

EVENTS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 2)), max_size=30)


@given(events=EVENTS, limit=st.integers(1, 10))
def test_the_newest_requests_of_all_come_first(events, limit):
    """Each worker tells its newest ones only, and none of the newest of all is missing."""
    every = [{"at": at, "request_id": f"{index:03}"} for index, (at, _) in enumerate(events)]
    newest = sorted(every, key=lambda event: (event["at"], event["request_id"]), reverse=True)
    parts = []
    for worker in range(3):
        own = [event for event in newest if events[int(event["request_id"])][1] == worker]
        parts.append({"requests": own[:limit], "more": len(own) > limit})
    assert merge_requests(parts, limit) == {"requests": newest[:limit], "more": len(newest) > limit}


def make_session(name, at, **fields):
    session = {
        "id": name,
        "first_at": at,
        "last_at": at,
        "requests": 1,
        "saved_tokens": 2,
        "cost_usd": None,
        "summary_usd": 0.0,
    }
    return session | {"without_usd": None, "has_text": False, "marks": {}, "messages": at} | fields


def test_a_session_of_several_workers_is_one():
    parts = [
        [make_session("a", 1, marks={"3/0": 1.0}, cost_usd=0.5), make_session("b", 5)],
        [make_session("a", 9, marks={"3/0": 8.0, "7/0": 9.0}, has_text=True)],
    ]
    one, other = merge_sessions(parts, 5)
    assert (one["id"], one["first_at"], one["last_at"], one["requests"]) == ("a", 1, 9, 2)
    assert (one["messages"], one["saved_tokens"], one["cuts"], one["cost_usd"]) == (9, 4, 2, 0.5)
    assert one["has_text"]
    assert one["without_usd"] is None
    assert "marks" not in one
    assert other["id"] == "b"
    assert merge_sessions(parts, 1) == [one]


def test_the_cost_of_a_session_includes_its_summaries():
    """Whichever worker had them written. Without a known price of a request, the cost is not known."""
    parts = [[make_session("a", 1, cost_usd=0.5)], [make_session("a", 9, summary_usd=0.25)]]
    (one,) = merge_sessions(parts, 5)
    assert (one["cost_usd"], one["summary_usd"]) == (0.75, 0.25)
    (one,) = merge_sessions([[make_session("b", 5, summary_usd=0.25)]], 5)
    assert (one["cost_usd"], one["summary_usd"]) == (None, 0.25)
    (one,) = merge_sessions([[make_session("b", 5)]], 5)
    assert (one["cost_usd"], one["summary_usd"]) == (None, None)


def test_buckets_have_no_holes():
    """Each worker joins its minutes to the steps of the timeline."""
    minutes = [[(step, shape_bucket(Bucket(requests=1))) for step in (10, 12, 13)], [(12, shape_bucket(Bucket(2)))]]
    parts = [join_minutes(each, 120) for each in minutes]
    assert [{at: part["figures"]["requests"] for at, part in each.items()} for each in parts] == [
        {600: 1, 720: 2},
        {720: 2},
    ]
    parts[1] = {str(at): part for at, part in parts[1].items()}  # as JSON, from another worker
    timeline = merge_timelines(parts, 600, 960, 120)
    assert timeline["step_seconds"] == 120
    assert [(bucket["at"], bucket["requests"]) for bucket in timeline["buckets"]] == [(600, 1), (720, 4), (840, 0)]


def test_a_long_timeline_has_longer_steps():
    assert [choose_step(minutes) for minutes in (1, 120, 121, 1440)] == [60, 60, 120, 720]
