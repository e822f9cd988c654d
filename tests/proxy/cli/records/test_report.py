"""The result of a replay as JSON."""

from io import StringIO
from pathlib import Path
from typing import Any

import orjson
import pytest
from rich.console import Console
from support.recordings import make_figures
from support.sessions import make_session, requests_of

from trimtab.proxy.cli.records.report import (
    FIGURE_CHARS,
    MODEL_CHARS,
    THRESHOLDS,
    _make_models,
    compare,
    describe,
    has_unassigned,
    list_settings,
    print_report,
    sum_cost,
)
from trimtab.proxy.cli.records.run import Replay
from trimtab.proxy.cli.records.sums import VariantSums
from trimtab.proxy.cli.records.variants import ConfiguredVariants
from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.config.load import load_config
from trimtab.rules.conversation import Decision
from trimtab.rules.policy import Prices
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
    replay.variants[0].figures.note("m", stand_ins=1)
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


def _print(report: dict[str, object]) -> str:
    console = Console(file=StringIO(), width=300, no_color=True)
    print_report(report, console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_each_figure_of_two_sides_is_shown(compactors: Compactors, tmp_path: Path) -> None:
    """Models, rules, sessions, what changes, what could not be read, and what a reader must know."""
    file, session = tmp_path / "bodies.jsonl", make_session(40)
    bodies = [{"model": "gpt-4o", "messages": messages} for messages in requests_of(session)]
    file.write_bytes(b"\n".join(map(orjson.dumps, bodies)) + b"\n[]\n")
    configs = {
        f"[{window}]": load_config(settings=(f"defaults.context_window={window}",), environment={}, is_online=False)
        for window in (8000, 16_000)
    }
    ways = {name: ConfiguredVariants(compactors, config) for name, config in configs.items()}
    replay = Replay(compactors, [VariantSums(name) for name in ways], ways)
    replay.read_bodies(file, lambda _: None, dialect=None, model=None, turns=False)
    report = describe(replay, "bodies", file)
    printed = _print(report)

    model = report["sides"][0]["models"][0]
    assert f"{model['original_tokens']:,}" in printed
    assert f"{model['sent_tokens']:,}" in printed
    assert f"{model['saved_tokens']['digest']:,}" in printed
    assert "1 sessions, 1 of them over the window" in printed
    assert "what changes from [8000] to [16000]" in printed
    assert "1 could not be read:\n  line 42: not a request" in printed
    assert all(f"- {note}" in printed for note in report["notes"])


EVIL = "\x1b]0;pwn\x07\x9b2J [b]x[/b]"


def test_no_text_of_a_recording_controls_the_terminal(compactors: Compactors) -> None:
    """Labels of sessions, names of models and rules, and reasons are those of whoever wrote the recording."""
    decision = Decision(EVIL, EVIL, 9, 5, 1, 0)
    sides = [VariantSums(f"{number} {EVIL}") for number in range(2)]
    told = make_figures(EVIL, "chat", 200, "compacted", Sections(9), Sections(5), 5, (decision,))
    replay = Replay(compactors, sides)
    for side in sides:
        for at in range(2):
            side.add(told, None, None, session=EVIL, at=at)
    replay.unreadable.add(EVIL, EVIL)
    replay.differing.add(EVIL, EVIL)
    report = describe(replay, "recordings", Path(EVIL))
    report["notes"].append(EVIL)
    printed = _print(report)
    assert not [char for char in printed if not char.isprintable() and char != "\n"]
    assert "\\x1b]0;pwn\\x07\\x9b2J [b]x[/b]" in printed


def test_a_log_shows_what_is_known_and_a_dash_for_the_rest(compactors: Compactors) -> None:
    side = VariantSums("log")
    side.add(make_figures("m", "chat", 200, "unchanged", Sections(9), Sections(9), 5), None, None, session="", at=0)
    replay = Replay(compactors, [side])
    replay.not_replayed = 3
    for number in range(25):
        replay.unreadable.add(f"line {number}", "broken")
    printed = _print(describe(replay, "log", Path("x")))
    assert "over the limit" in printed
    assert "over the window" not in printed
    assert "and 5 more" in printed
    assert "3 requests were not planned again" in printed
    assert " - " in printed


@pytest.mark.parametrize("width", [40, 80, 110, 150])
def test_no_figure_is_cut_on_a_narrow_terminal(width: int) -> None:
    """What is too wide makes longer lines, and many models make several tables."""
    costs = {"trimtab": 1.05, "summaries": 0.18, "nothing": 1234.92, "sliding": 5678.3}
    model = {
        "name": "a-model-with-a-long-name-2026", "requests": 4610, "original_tokens": 14_610_123,
        "sent_tokens": 4_610_456, "cuts": {"prune": 70, "digest": 6}, "moved_cuts": 11, "summaries": 1234,
        "prefix_kept": 0.913, "sessions_over_window": 12, "costs": {"usd": costs}, "booked_usd": 1.2,
        "booked_summaries_usd": 0.37, "booked_without_usd": 7.21, "saved_tokens": {"prune": 9_876_543},
        "added_tokens": {},
    }  # fmt: skip
    session = {
        "name": "0123456789ab" * 3, "requests": 4321, "longest_tokens": 1_234_567, "over_window": 8765, "refused": 5,
        "unit": "usd", "costs": {**costs, "trimtab": 2345.67},
    }  # fmt: skip
    sessions = {"number": 1, "over_window": 1, "longest": [session], "dearest": []}
    models = [{**model, "name": name} for name in (model["name"], "b", "c", "d", "e")]
    side = {"name": "recorded", "models": models, "total": model, "sessions": sessions}
    places = {"number": 0, "places": []}
    report = {
        "input": {"requests": 3, "path": "x", "kind": "recordings"}, "sides": [side], "changes": [], "notes": [],
        "unreadable": places, "differing": places, "not_replayed": 0,
    }  # fmt: skip
    console = Console(file=StringIO(), width=width, force_terminal=True, no_color=True)
    print_report(report, console)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert "…" not in printed
    for figure in ("14,610,123", "4,610,456", "$1,234.92 (0.00)", "$1.57", "$7.21", "91.3%"):
        assert printed.count(f" {figure} │") == len(models)
    assert " 76 │" in printed
    assert " 11 │" in printed
    assert all(f" {figure} │" in printed for figure in ("9,876,543", "1,234,567", "$2,345.85"))
    assert "cost (part)" in printed


@pytest.mark.parametrize(("columns", "tables"), [(0, 5), (1, 5), (2, 3), (4, 2), (5, 1), (9, 1)])
def test_a_table_has_as_many_models_as_the_terminal_is_wide(columns: int, tables: int) -> None:
    """At least one."""
    side = {"name": "new", "models": [{"name": name} for name in "abcde"], "total": {}}
    found = list(_make_models(side, "log", FIGURE_CHARS + columns * MODEL_CHARS + MODEL_CHARS - 1))
    assert len(found) == tables
    names = [str(column.header) for table in found for column in table.columns[1:]]
    assert names == [*"abcde"]
    assert all(column.no_wrap == (number > 0) for table in found for number, column in enumerate(table.columns))


DOCUMENT = """
defaults: {high_water: 0.5, compact_at_tokens: 9000}
models: [{match: "q*", high_water: 0.3, economy: frugal, protect_turns: 7}]
profiles: {small: {cut: at_threshold}}
"""


def test_each_setting_holds_for_every_policy() -> None:
    """Whatever the configuration says about cuts in general, for a model or in a profile. Other keys stay."""
    config = load_config(DOCUMENT, environment={})
    for name, laid in list_settings(config).items():
        policies = (laid.defaults, *map(laid.over_defaults, (*laid.models, *laid.profiles.values())))
        told = {policy.describe_cut() for policy in policies}
        found = {policy.to_policy(Prices()).high_water for policy in policies}
        if "high_water" in name:
            assert found == {float(name.split()[1])}
        else:
            assert told == {f"cut: when_it_pays: once what a cut saves is worth its price ({name})"}
        assert laid.models[0].protect_turns == 7


def test_the_economies_come_first_and_then_the_thresholds_in_their_order() -> None:
    """From what keeps most to what keeps least."""
    names = list(list_settings(load_config(environment={})))
    assert names[:3] == ["careful", "balanced", "frugal"]
    assert names[3:] == [f"high_water {share:g}" for share in sorted(THRESHOLDS, reverse=True)]
