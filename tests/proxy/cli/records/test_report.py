"""The result of a replay as JSON."""

from pathlib import Path
from typing import Any

import pytest
from support.recordings import make_figures

from trimtab.proxy.cli.records.report import compare, describe, has_unassigned, sum_cost
from trimtab.proxy.cli.records.run import Replay
from trimtab.proxy.cli.records.sums import VariantSums
from trimtab.proxy.cli.records.variants import ConfiguredVariants
from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.config.load import load_config
from trimtab.rules.tokens.sections import Sections


def _make_side(name: str, sent_tokens: int, label: str = "m") -> VariantSums:
    side = VariantSums(name)
    told = make_figures(label, "chat", 200, "compacted", Sections(9), Sections(sent_tokens))
    side.add(told, None, None, session="", at=0)
    return side


@pytest.mark.parametrize(
    ("costs", "cost"), [({"trimtab": 2.0, "summaries": 1.0}, 3.0), ({"trimtab": 2.0}, 2.0), ({"summaries": 1.0}, None)]
)
def test_what_trimtab_costs_includes_its_summaries(costs: dict[str, float], cost: float | None) -> None:
    assert sum_cost(costs) == cost


def test_models_of_both_sides_are_compared() -> None:
    before, after = _make_side("recorded", 8).describe(), _make_side("new", 5).describe()
    before["models"][0]["costs"] = {"usd": {"trimtab": 2.0}}
    after["models"][0]["costs"] = {"usd": {"trimtab": 1.0, "summaries": 0.5}}
    (change,) = compare(before, after)
    assert change["sent_tokens"] == {"before": 8, "after": 5}
    assert change["costs"] == {"usd": {"before": 2.0, "after": 1.5}}
    assert compare(before, _make_side("new", 5, "n").describe()) == []


def _list_notes(replay: Replay, kind: str) -> str:
    report: dict[str, Any] = describe(replay, kind, Path("x"))
    return "\n".join(report["notes"])


def test_the_report_says_what_cannot_be_known(compactors: Compactors) -> None:
    """Of a log: everything that needs a text. Of bodies: completions. Of digests: that they stand in."""
    replay = Replay(compactors, [_make_side("defaults", 8)])
    assert "can be told from recordings only" in _list_notes(replay, "log")
    assert "completions are not known" in _list_notes(replay, "bodies")
    assert "stands in" not in _list_notes(replay, "recordings")
    replay.variants[0].figures.of("m").stand_ins = 1
    replay.redacted = 2
    notes = _list_notes(replay, "recordings")
    assert "a digest stands in" in notes
    assert "2 requests held a credential" in notes
    assert "cold caches" not in notes
    ways = ConfiguredVariants(compactors, load_config(environment={}, is_online=False))
    configured = Replay(compactors, [_make_side("new", 8)], {"new": ways})
    assert "cold caches are as recorded" in _list_notes(configured, "recordings")
    assert "cold caches" not in _list_notes(configured, "bodies")


def test_places_are_told_with_their_reasons(compactors: Compactors) -> None:
    replay = Replay(compactors, [_make_side("recorded", 8)])
    replay.differing.add("ab12", "the body differs")
    report = describe(replay, "recordings", Path("records"))
    assert report["differing"] == {"number": 1, "places": [{"place": "ab12", "reason": "the body differs"}]}
    assert report["unreadable"] == {"number": 0, "places": []}
    assert report["input"]["path"] == "records"


def test_the_report_says_that_recorded_sessions_are_without_summaries() -> None:
    """A recorded call for a summary names no session. With a configuration, it is known who asks."""
    side: dict[str, Any] = {"models": [{"costs": {"usd": {"summaries": 0.5}}}], "sessions": {"number": 1}}
    assert has_unassigned({"name": "recorded", **side})
    assert not has_unassigned({"name": "new.yaml", **side})
    assert not has_unassigned({"name": "recorded", **side, "models": [{"costs": {"usd": {"summaries": 0.0}}}]})
