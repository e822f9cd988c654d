"""Sums by the minute."""

from support.events import make_event

from proxy.state.history import timeline
from proxy.state.history.timeline import KEPT_STEPS, STEP_SECONDS, Bucket, Share, Timeline


def test_a_request_counts_in_its_minute_for_its_model_and_client():
    found = Timeline()
    shown = {"original_tokens": 9, "sent_tokens": 4, "cached_tokens": 3, "cost": 5, "without_cost": 8}
    found.add(make_event(at=119.0, label="m", client="c", **shown))
    found.add(make_event(at=120.0, label="m", outcome="failed_open"))
    found.add_summary(125.0, 100)
    share = {"m": Share(1, 9, 4)}
    assert found.buckets == {
        1: Bucket(1, 9, 4, 3, 3, 5, 0, share, {"c": Share(1, 9, 4)}),
        2: Bucket(1, 0, 0, 0, -100, 100, 1, {"m": Share(1)}, {}),
    }


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
