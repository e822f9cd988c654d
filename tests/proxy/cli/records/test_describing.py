"""A recording as values for JSON."""

from dataclasses import replace

import orjson
import pytest
from support.recordings import make_recording

from proxy.cli.records.describing import Changed, describe, diff, find_changes, to_dollars
from proxy.compaction.tokenizers.exact import VocabularyError
from rules.pipeline.story.values import Change, Fate


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


def test_money_is_in_dollars_and_unknown_money_is_null():
    event = replace(make_recording().event, cost=1_500_000_000)
    described = describe(replace(make_recording(), event=event), Changed())
    assert described["event"]["cost_usd"] == to_dollars(1_500_000_000) == 1.5
    assert described["event"]["without_usd"] is None


def test_a_vocabulary_that_is_not_there_leaves_the_rest(monkeypatch):
    def fail(_: object) -> None:
        message = "no vocabulary"
        raise VocabularyError(message)

    monkeypatch.setattr("proxy.cli.records.describing.plan_again", fail)
    assert find_changes(make_recording()) == Changed(doubt="the changed messages are not known: no vocabulary")


def test_a_body_that_no_longer_can_be_read_leaves_the_rest():
    assert "cannot be read" in find_changes(make_recording(body="no JSON")).doubt
