"""The result of a replay as tables; test_replay.py holds what they say."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from support.recordings import make_figures

from trimtab.proxy.cli.records.report import (
    FIGURE_CHARS,
    MODEL_CHARS,
    _list_costs,
    _make_models,
    describe,
    list_settings,
    print_report,
)
from trimtab.proxy.cli.records.run import Replay
from trimtab.proxy.cli.records.sums import VariantSums
from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.config.load import load_config
from trimtab.rules.conversation import Decision
from trimtab.rules.policy import Prices
from trimtab.rules.tokens.sections import Sections


def _print(report: dict[str, object]) -> str:
    console = Console(file=StringIO(), width=300, no_color=True)
    print_report(report, console)
    return console.file.getvalue()  # type: ignore[attr-defined]


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


@pytest.mark.parametrize(("columns", "tables"), [(0, 5), (1, 5), (2, 3), (4, 2), (5, 1), (9, 1)])
def test_a_table_has_as_many_models_as_the_terminal_is_wide(columns: int, tables: int) -> None:
    """At least one."""
    side = {"name": "new", "models": [{"name": name} for name in "abcde"], "total": {}}
    found = list(_make_models(side, "log", FIGURE_CHARS + columns * MODEL_CHARS + MODEL_CHARS - 1))
    assert len(found) == tables
    names = [str(column.header) for table in found for column in table.columns[1:]]
    assert names == [*"abcde"]
    assert all(column.no_wrap == (number > 0) for table in found for number, column in enumerate(table.columns))


@pytest.mark.parametrize(
    ("requests", "summaries", "shown"),
    [(2.0, 3.0, "$5.00"), (2.0, None, "$2.00"), (None, 3.0, "$3.00"), (None, None, "-")],
)
def test_what_is_not_known_adds_nothing_to_what_was_booked(
    requests: float | None, summaries: float | None, shown: str
) -> None:
    model = {"booked_usd": requests, "booked_summaries_usd": summaries}
    assert dict(_list_costs(model, "recordings"))["booked"] == shown


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
