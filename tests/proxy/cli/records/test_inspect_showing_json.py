"""A recording as values for JSON."""

from dataclasses import replace

import orjson
import pytest
from msgspec import structs
from support.recordings import make_recording

from trimtab.proxy.cli.records.inspect import Changed, describe, diff, find_changes
from trimtab.rules.pipeline.changes import Change, Fate
from trimtab.rules.policy import OnExceeded, Policy


def make_change(before: str, after: str) -> Change:
    return Change(1, "tool", "bash", Fate.SHORTENED, ("truncate",), 10, 3, before, after)


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        ("one\ntwo\nthree", "one\n2\nthree", ["@@ -1,3 +1,3 @@", " one", "-two", "+2", " three"]),
        ("same", "same", []),
        ("-- a dash", "", ["@@ -1 +0,0 @@", "--- a dash"]),
        ("", "++ plus", ["@@ -0,0 +1 @@", "+++ plus"]),
    ],
)
def test_the_lines_of_a_diff(before, after, lines):
    assert list(diff(make_change(before, after))) == lines


def test_texts_are_described_only_on_request_and_are_always_json():
    changed = Changed((make_change("half \ud800 a pair", "after"),))
    assert "before" not in describe(make_recording(), changed)["changes"][0]
    described = describe(make_recording(), changed, with_texts=True)
    assert orjson.loads(orjson.dumps(described))["changes"][0]["before"] == "half ? a pair"


def test_a_recording_without_a_summary_and_a_call_has_these_members():
    described = describe(make_recording(), Changed())
    assert list(described) == ["event", "request", "story", "changes", "summary"]
    assert list(described["request"]) == ["dialect", "path", "model", "headers", "is_redacted"]


def test_money_is_in_dollars_and_unknown_money_is_null():
    event = structs.replace(make_recording().event, cost=1_500_000_000)
    described = describe(replace(make_recording(), event=event), Changed())
    assert described["event"]["cost_usd"] == 1.5
    assert described["event"]["without_usd"] is None


def test_a_request_that_would_be_refused_has_no_changed_messages():
    """Also if it was only observed, and so forwarded unchanged."""
    body = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "word " * 9000}]}).decode()
    recording = make_recording(body=body)
    assert recording.circumstances is not None
    policy = Policy(context_window=2000, on_exceeded=OnExceeded.ERROR)
    for mode in ("enforce", "observe"):
        event = structs.replace(recording.event, mode=mode)
        told = replace(recording, event=event, circumstances=replace(recording.circumstances, policy=policy))
        assert find_changes(told).changes == ()


def test_a_body_that_no_longer_can_be_read_leaves_the_rest():
    assert "cannot be read" in find_changes(make_recording(body="no JSON")).doubt
