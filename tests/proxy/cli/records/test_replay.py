"""`trimtab replay`: which input it takes, what it prints, and how it ends."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from msgspec import structs
from support.command_line import SMALL, run_trimtab, tell
from support.golden import check_golden
from support.recordings import keep, make_recording, record
from support.sessions import make_session, requests_of

from trimtab.proxy.account.recordings.format import RecordedCall, RecordedSending, RecordedSummary
from trimtab.proxy.catalogue.prices import Tokens
from trimtab.proxy.cli.records.run import Replay
from trimtab.rules.policy import Policy

pytestmark = pytest.mark.usefixtures("restored_log")


OLD = "defaults: {context_window: 4000, count: heuristic}\nprices: {input: 2, cached_input: 0.5, output: 8, unit: usd}"
POLICY = Policy(context_window=4000, completion_reserve=1000, high_water=0.8, low_water=0.4, protect_turns=1)
SUMMARY = RecordedSummary("5" * 64, "summarise", by_model=True, text="Parts were read.")
LOG = {"event": "request", "timestamp": "2026-11-23T00:00:00Z", "status": 200, "endpoint": "chat", "model": "gpt-4o"}


def _write_recordings(folder: Path) -> Path:
    """A session with a call for its summary, and requests that were refused, not planned, changed or hold a key."""
    session = make_session(18)
    bodies = [{"model": "m", "messages": messages, "tools": session["tools"]} for messages in requests_of(session)]
    figures = {"label": "m", "prompt_tokens": 3000, "completion_tokens": 20, "cost": 10**9, "without_cost": 3 * 10**9}
    recorded = [record(number, body, POLICY, summary=SUMMARY, **figures) for number, body in enumerate(bodies)]
    plain = record(20, bodies[0], Policy(), label="n", session="")
    too_long = structs.replace(plain.event, error="context_length_exceeded", status=400, outcome="refused")
    odd = (
        structs.replace(plain, event=too_long, sent=None, counted=structs.replace(plain.counted, sent=False)),
        structs.replace(plain, circumstances=None),
        structs.replace(plain, sent=RecordedSending("{}")),
        structs.replace(plain, request=replace(plain.request, is_redacted=True), sent=RecordedSending("{}")),
        structs.replace(plain, request=replace(plain.request, body="no JSON")),
        structs.replace(plain, request=replace(plain.request, dialect="klingon")),
    )
    tokens = Tokens(400, 500, 0, 60)
    call = RecordedCall("m", "inline", "written", 1.0, 900, 60, tokens, cost=10**9)
    for number, one in enumerate((*recorded, *odd, structs.replace(plain, call=call, request=None))):
        event = structs.replace(one.event, request_id=f"{number:024}", at=1.7e9 + 100 * number)
        keep(folder, structs.replace(one, event=event))
    (folder / f"1700000000000-{'cd' * 12}.json.gz").write_bytes(b"broken")
    return folder


def _write_log(file: Path) -> Path:
    sections = {"system": {"original": 20, "sent": 20}, "recent": {"original": 4000, "sent": 2000}}
    sizes = {"before_tokens": 4020, "after_tokens": 2020, "saved_tokens": 2000}
    decision = {"rule": "prune", "attempt": 1, "limit_tokens": 3000, **sizes}
    planned = {"original_tokens": 4020, "sent_tokens": 2020, "limit_tokens": 3000, "sections": sections}
    lines = (
        {**LOG, **planned, "upstream": "api.openai.com", "outcome": "compacted", "decisions": [decision]},
        {**LOG, **planned, "prefix_kept": 0.5, "retry": "refused", "match": "gpt*", "status": 400},
        {"event": "summary", "timestamp": "", "model": "gpt-4o", "result": "written", "prompt_tokens": 9},
        {"event": "reloaded"},
    )
    file.write_bytes(b"\n".join([*map(orjson.dumps, lines), *[b"broken"] * 22]))
    return file


@pytest.mark.covered
def test_what_is_told_of_recordings_a_log_and_bodies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each figure, as table and JSON; what could not be read; what a reader must know. Errors say what to do."""
    monkeypatch.chdir(tmp_path)
    for folder in (Path("folder"), Path("none")):
        folder.mkdir()
    _write_recordings(Path("folder"))
    _write_log(Path("log"))
    bodies = _write_bodies(tmp_path, 18)
    bodies.write_bytes(bodies.read_bytes() + b"\n\nnot JSON\n[]\n")
    Path("old.yaml").write_text(OLD)
    Path("empty").touch()
    Path("events").write_bytes(orjson.dumps({**LOG, "event": "listening"}))
    Path("session").write_bytes(orjson.dumps({"model": "m", **make_session(18)}))
    new = "--config new.yaml --set prices={}"
    Path("new.yaml").write_text("defaults: {count: heuristic, context_window: 5000, overflow_strategy: summarize}")
    lines = (
         f"folder --table {new}", "log --table", "log --set mode=off", "empty --table",
        f"bodies.jsonl --table --against old.yaml {new}", "events --table", "none --table", "log --curve",
        "session --table --turns --curve --config old.yaml --model x", "folder --curve --newest 9 --table",
        "empty --against old.yaml", "empty --curve --check", "empty --plot x.gif", "empty --set nonsense=1",
    )  # fmt: skip
    texts = {line: tell("replay", *line.split()) for line in lines}
    report = _read("folder", *new.split())
    texts["JSON"] = "\n".join(
        f"{side['name']}, {part}: {told}"
        for side in report["sides"]
        for model in (*side["models"], side["total"], side["sessions"])
        for part, told in model.items()
    )
    check_golden("commands/replay", texts)
    assert [run_trimtab("replay", name, "--check").exit_code for name in ("folder", "bodies.jsonl")] == [1, 1]


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


def test_a_pipe_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    """It could be read only once, and without a writer it has no end."""
    os.mkfifo(tmp_path / "pipe")

    result = run_trimtab("replay", tmp_path / "pipe")

    assert result.exit_code == 2
    assert "neither a folder nor a regular file" in " ".join(result.stderr.split())
