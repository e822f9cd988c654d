"""`trimtab replay`: which input it takes, what it prints, and how it ends."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from msgspec import structs
from support.client import CHAT
from support.command_line import SMALL, run_trimtab
from support.recordings import keep, make_recording
from support.sessions import make_session, requests_of

from trimtab.proxy.cli.records.run import Replay

pytestmark = pytest.mark.usefixtures("restored_log")

LINE = {
    "event": "request",
    "timestamp": "2026-11-23T00:00:00Z",
    "status": 200,
    "outcome": "passed",
    "endpoint": "other",
}


def _write_bodies(folder: Path, steps: int = 16, model: str = "gpt-4o") -> Path:
    session = make_session(steps)
    bodies = [{"model": model, "messages": messages, "tools": session["tools"]} for messages in requests_of(session)]
    file = folder / "bodies.jsonl"
    file.write_bytes(b"\n".join(map(orjson.dumps, bodies)))
    return file


def _read(*arguments: str | Path) -> dict[str, Any]:
    result = run_trimtab("replay", "--json", *arguments)
    assert result.exit_code == 0, result.output
    return orjson.loads(result.stdout_bytes)


def test_bodies_are_compacted_as_by_trimtab_compact(tmp_path: Path) -> None:
    """The tokens that the replay tells are those that `compact` tells of the same file and settings."""
    file = _write_bodies(tmp_path)
    report = _read(file, *SMALL)
    explained = run_trimtab("compact", "--jsonl", "--explain-json", *SMALL, file).stderr

    told = [orjson.loads(line) for line in explained.splitlines() if line.startswith("{")]
    (model,) = report["sides"][0]["models"]
    assert model["original_tokens"] == sum(one["original_tokens"] for one in told) > 0
    assert model["sent_tokens"] == sum(one["sent_tokens"] for one in told) < model["original_tokens"]
    assert (model["name"], model["requests"], model["sessions"]) == ("gpt-4o", 17, 1)


def test_two_configurations_are_compared(tmp_path: Path) -> None:
    """With --against, the first side is that configuration; what changes is told by model."""
    file, old = _write_bodies(tmp_path), tmp_path / "old.yaml"
    old.write_text("defaults: {context_window: 128000, count: heuristic}\n")
    report = _read(file, "--against", old, *SMALL)

    before, after = report["sides"]
    (change,) = report["changes"]
    assert (before["name"], after["name"]) == (str(old), ", ".join(SMALL[1::2]))
    assert change["sent_tokens"] == {"before": before["total"]["sent_tokens"], "after": after["total"]["sent_tokens"]}
    assert after["total"]["sent_tokens"] < before["total"]["sent_tokens"] == before["total"]["original_tokens"]
    assert (before["sessions"]["over_window"], after["sessions"]["over_window"]) == (0, 1)


def test_a_recording_is_compared_with_a_configuration(tmp_path: Path) -> None:
    """The recorded side is there in addition, under its own name."""
    for number in range(2):
        keep(tmp_path, make_recording(f"{number:024}", at=1.7e9 + number, body=orjson.dumps(CHAT).decode()))
    report = _read(tmp_path)
    assert [side["name"] for side in report["sides"]] == ["recorded"]
    assert (report["input"]["first_at"], report["input"]["last_at"]) == (1.7e9, 1.7e9 + 1)
    assert [side["name"] for side in _read(tmp_path, "--set", "mode=observe")["sides"]] == ["recorded", "mode=observe"]


def test_a_log_cannot_be_replayed_with_a_configuration(tmp_path: Path) -> None:
    """It holds no messages. The command says what to do instead."""
    file = tmp_path / "log"
    file.write_bytes(orjson.dumps(LINE))
    assert _read(file)["input"] == {
        "kind": "log", "path": str(file), "requests": 1, "first_at": None, "last_at": None,
    }  # fmt: skip
    result = run_trimtab("replay", file, *SMALL)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "holds no messages" in result.stderr


def test_what_cannot_be_read_is_counted_and_named(tmp_path: Path) -> None:
    """The rest is replayed all the same. Only --check ends with status 1."""
    file = _write_bodies(tmp_path, 2)
    file.write_bytes(file.read_bytes() + b"\n\nnot JSON\n[]\n")
    report = _read(file, *SMALL)

    assert report["input"]["requests"] == 3
    assert [each["place"] for each in report["unreadable"]["places"]] == ["line 5", "line 6"]
    assert run_trimtab("replay", file, "--check", *SMALL).exit_code == 1


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "expected recordings"),
        (b"", "expected a folder of recordings, a log"),
        (b"hello\nworld\n", "expected a folder of recordings, a log"),
        (orjson.dumps({**LINE, "event": "listening"}), "expected lines of the event request"),
    ],
)
@pytest.mark.parametrize("form", ["--json", "--table"])
def test_an_input_without_a_request_ends_with_status_1(
    tmp_path: Path, content: bytes | None, told: str, form: str
) -> None:
    """It is said what was expected. A picture is empty, without a warning."""
    path = tmp_path / "input"
    path.mkdir() if content is None else path.write_bytes(content)
    result = run_trimtab("replay", form, path)
    assert result.exit_code == 1
    assert f"{path} holds nothing to replay; {told}" in result.stderr


def test_a_folder_with_a_broken_recording_is_replayed(tmp_path: Path) -> None:
    keep(tmp_path, make_recording(body=orjson.dumps(CHAT).decode()))
    (tmp_path / f"1700000000000-{'cd' * 12}.json.gz").write_bytes(b"broken")
    report = _read(tmp_path)
    assert (report["input"]["requests"], report["unreadable"]["number"]) == (1, 1)
    assert "compressed" in report["unreadable"]["places"][0]["reason"]


@pytest.mark.parametrize("steps", [16])
def test_a_session_in_one_body_is_replayed_turn_by_turn(tmp_path: Path, steps: int) -> None:
    """--turns makes of one body what the client has sent on the way to it."""
    whole = _read(_write_bodies(tmp_path, steps), *SMALL)["sides"][0]["models"][0]
    session, file = make_session(steps), tmp_path / "session.jsonl"
    file.write_bytes(orjson.dumps({"messages": session["messages"][:-1], "tools": session["tools"]}))
    turns = _read(file, "--turns", "--model", "gpt-4o", *SMALL)["sides"][0]["models"][0]
    assert turns == whole


@pytest.mark.parametrize("command", [("inspect", "last", "--dir"), ("replay",)], ids=["inspect", "replay"])
def test_a_recording_with_values_of_a_stranger_ends_in_no_traceback(command: tuple[str, ...], tmp_path: Path) -> None:
    """Its form is right, but no trimtab has written it."""
    recording = make_recording()
    assert recording.request is not None
    keep(tmp_path, structs.replace(recording, request=replace(recording.request, dialect="klingon")))

    assert run_trimtab(*command, tmp_path).exit_code == 0


def test_the_picture_is_drawn_where_it_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what was replayed. How it looks needs an extra: test_course_picture.py."""
    drawn: list[tuple[int, Path]] = []
    monkeypatch.setattr(
        "trimtab.proxy.cli.records.replay.draw", lambda series, path: drawn.append((len(series.points), path))
    )
    result = run_trimtab("replay", _write_bodies(tmp_path), "--plot", tmp_path / "a.svg")
    assert result.exit_code == 0
    [(points, path)] = drawn
    assert points > 0
    assert path == tmp_path / "a.svg"


def test_an_interrupted_replay_says_how_far_it_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No traceback, and the status of shells for Ctrl-C."""

    def interrupt(replay: Replay, *_: object, **__: object) -> None:
        replay.requests = 3
        raise KeyboardInterrupt

    monkeypatch.setattr(Replay, "read_bodies", interrupt)
    result = run_trimtab("replay", _write_bodies(tmp_path))
    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr == "trimtab: stopped after 3 requests; nothing was changed\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--against", "x.yaml"), "--against needs"),
        (("--plot", "x.gif"), ".svg or .png"),
        (("--set", "nonsense=1"), "nonsense"),
    ],
)
def test_wrong_use_is_refused(tmp_path: Path, arguments: tuple[str, str], told: str) -> None:
    result = run_trimtab("replay", _write_bodies(tmp_path, 1), *arguments)
    assert result.exit_code == 2
    assert told in result.stderr


@pytest.mark.parametrize("options", [(), ("--curve",)])
def test_a_pipe_is_refused_and_never_waited_for(options: tuple[str, ...], tmp_path: Path) -> None:
    """It could be read only once, and without a writer it has no end."""
    os.mkfifo(tmp_path / "pipe")

    result = run_trimtab("replay", tmp_path / "pipe", *options)

    assert result.exit_code == 2
    assert "neither a folder nor a regular file" in " ".join(result.stderr.split())


def test_the_curve_tells_what_each_setting_costs_and_keeps(tmp_path: Path) -> None:
    """Beside doing nothing and a sliding window; the table has less than 80 columns."""
    file = tmp_path / "sessions.jsonl"
    file.write_bytes(orjson.dumps({"model": "gpt-4o", **make_session(24)}))
    report = _read(file, "--turns", "--curve", *SMALL)
    points = {one["name"]: one for one in report["curve"]}
    assert list(points)[:3] == ["careful", "balanced", "frugal"]
    assert list(points)[-2:] == ["sliding", "nothing"]
    assert (points["nothing"]["cost"], points["nothing"]["needed_kept"]) == (1.0, 1.0)
    assert all(0 < one["cost"] < 1.5 for one in points.values())
    assert points["high_water 0.2"]["moved_cuts"] >= points["high_water 0.8"]["moved_cuts"] > 0
    printed = run_trimtab("replay", "--table", "--turns", "--curve", *SMALL, file).stdout
    table = [line for line in printed.splitlines() if line.startswith(("\u2502", "\u2503", "|"))]
    assert len(table) == len(points) + 1
    assert max(map(len, table)) < 80


def test_the_curve_is_for_recordings_and_bodies(tmp_path: Path) -> None:
    """Recordings are compared with what was recorded. A log holds no messages."""
    for number in range(3):
        keep(tmp_path, make_recording(f"{number:02x}" * 12, body=orjson.dumps(CHAT).decode()))
    report = _read(tmp_path, "--curve", "--newest", "2")
    assert report["input"]["requests"] == 2
    assert report["curve"][0]["name"] == "recorded"
    log = tmp_path / "log"
    log.write_bytes(orjson.dumps(LINE))
    assert run_trimtab("replay", log, "--curve").exit_code == 2
    assert run_trimtab("replay", log, "--curve", "--check").exit_code == 2
