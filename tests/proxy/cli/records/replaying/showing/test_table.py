"""The tables of `trimtab replay`."""

from io import StringIO
from pathlib import Path

import orjson
from rich.console import Console
from support.sessions import make_session, requests_of

from proxy.cli.records.replaying.run import Replay
from proxy.cli.records.replaying.showing.report import describe
from proxy.cli.records.replaying.showing.table import print_report
from proxy.cli.records.replaying.side import Side
from proxy.cli.records.replaying.told import Told
from proxy.cli.records.replaying.ways import ConfiguredWays
from proxy.compaction.pool import Compactors
from proxy.config.load import load_config
from rules.conversation import Decision
from rules.tokens.sections import Sections


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
    ways = {name: ConfiguredWays(compactors, config) for name, config in configs.items()}
    replay = Replay(compactors, [Side(name) for name in ways], ways)
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
    sides = [Side(f"{number} {EVIL}") for number in range(2)]
    told = Told(EVIL, "chat", 200, "compacted", Sections(9), Sections(5), 5, (decision,))
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
    side = Side("log")
    side.add(Told("m", "chat", 200, "unchanged", Sections(9), Sections(9), 5), None, None, session="", at=0)
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
