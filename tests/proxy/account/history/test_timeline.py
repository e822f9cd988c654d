"""Sums by the minute."""

from hypothesis import given
from hypothesis import strategies as st
from support.events import make_event

from proxy.account.history import timeline
from proxy.account.history.timeline import KEPT_STEPS, STEP_SECONDS, Bucket, Share, Timeline


def test_a_request_counts_in_its_minute_for_its_model_and_client():
    """So does a summary; a client without a name has no sums of its own."""
    found = Timeline()
    shown = {"original_tokens": 9, "sent_tokens": 4, "cached_tokens": 3, "cost": 5, "without_cost": 8}
    found.add(make_event(at=119.0, label="m", client="c", **shown))
    found.add(make_event(at=120.0, label="m", outcome="failed_open"))
    found.add_summary(125.0, 100, "m", "")
    found.add_summary(126.0, 10, "n", "c")
    share = Share(1, 9, 4, 1, 5, 8)
    assert found.buckets == {
        1: Bucket(1, 9, 4, 1, 5, 8, 3, 0, {"m": share}, {"c": share}),
        2: Bucket(
            *(1, 0, 0, 2, 110, 0, 0, 1),
            {"m": Share(1, priced=1, cost=100), "n": Share(priced=1, cost=10)},
            {"c": Share(priced=1, cost=10)},
        ),
    }


NAMES = st.sampled_from("abcdefghijkl")
COSTS = st.none() | st.integers(0, 10**9)


@given(requests=st.lists(st.tuples(NAMES, COSTS, COSTS)), summaries=st.lists(st.tuples(NAMES, st.integers(0, 10**9))))
def test_the_sums_of_all_models_are_those_of_the_minute(requests, summaries):
    """Also if some of them are `other`. So are those of all clients, if each has a name."""
    found = Timeline()
    for label, cost, without in requests:
        found.add(make_event(label=label, client=label, original_tokens=7, cost=cost, without_cost=without))
    for label, cost in summaries:
        found.add_summary(1000.0, cost, label, label)
    for bucket in found.buckets.values():
        for shares in (bucket.models, bucket.clients):
            for name in Share.__slots__:
                assert sum(getattr(share, name) for share in shares.values()) == getattr(bucket, name)


def test_a_day_is_kept():
    found = Timeline()
    for step in range(KEPT_STEPS + 5):
        found.add(make_event(at=float(step * STEP_SECONDS)))
    assert list(found.buckets) == list(range(5, KEPT_STEPS + 5))


def test_names_beyond_the_bound_are_other(monkeypatch):
    monkeypatch.setattr(timeline, "MAX_NAMES", 2)
    found = Timeline()
    for label in "abcda":
        found.add(make_event(label=label))
    (bucket,) = found.buckets.values()
    assert {name: share.requests for name, share in bucket.models.items()} == {"a": 2, "b": 1, "other": 2}
