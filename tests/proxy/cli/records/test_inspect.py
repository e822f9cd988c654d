"""`trimtab inspect` says what was done to a request, and what the model sees now."""

import asyncio
from dataclasses import replace as change
from io import StringIO
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from msgspec.structs import replace
from rich.console import Console
from support.command_line import run_trimtab, tell
from support.dialects.spoken.chat import CHAT
from support.golden import check_golden
from support.recordings import keep, make_recording, record
from support.sessions import make_session
from upstreams.recording import completion, write_note

from trimtab.proxy.account.recordings.format import RecordedCall, RecordedSending, RecordedSummary, Recording
from trimtab.proxy.cli.options import usual_recordings
from trimtab.proxy.cli.records.inspect import (
    Changed,
    describe,
    diff,
    find_changes,
    find_folder,
    read_title,
    show,
    show_list,
)
from trimtab.proxy.telemetry.ledger import Entry
from trimtab.rules.conversation import Decision
from trimtab.rules.pipeline.changes import Change, Fate
from trimtab.rules.policy import Budget, OnExceeded, Policy

SMALL = Policy(context_window=4000, completion_reserve=1000, high_water=0.8, low_water=0.4, protect_turns=1)
SUMMARY = RecordedSummary("5" * 64, "summarise", by_model=True, text="Parts were read.\n\tNone was at fault.")
NOTE = change(SUMMARY, text="", note="{}")
TOO_SMALL = Policy(context_window=200, completion_reserve=100, on_exceeded=OnExceeded.ERROR)


def _record(policy: Policy, *, steps: int = 1, **more: Any) -> Recording:
    session = make_session(steps, result_words=400)
    body = {"model": "m", "messages": session["messages"][:-1], "tools": session["tools"]}
    return record(1, body, policy, **more)


def _make_recordings() -> dict[str, Recording]:
    """One of each kind."""
    figures = {"prompt_tokens": 4321, "completion_tokens": 7, "prefix_kept": 0.954, "cached_tokens": 4000}
    money = {"cost": 12_300_000, "without_cost": 50_000_000}
    cut = {"steps": 14, "model": "m", "client": "ann", **figures}
    seen = {"mode": "observe", "summary": change(SUMMARY, by_model=False), "is_estimated": True, "cached_tokens": None}
    plain = _record(Policy())
    circumstances, request, event = plain.circumstances, plain.request, plain.event
    body, unlike = request.body.replace("part 0", "part ***"), (Decision("truncate", "", 9, 3, 1, 3),)
    refused = replace(event, outcome="refused", status=400, error="context_length_exceeded", reason="It is too long.")
    hidden = change(request, body=body, is_redacted=True)
    return {
        "a shortened result": _record(Policy(result_budget=Budget(64)), seconds=1.234, summary=SUMMARY, **money),
        "a cut with a summary": _record(SMALL, **cut, **money, summary=SUMMARY, mode="enforce", upstream="u"),
        "only observed": _record(SMALL, **cut | seen),
        "planned otherwise now": replace(plain, counted=replace(plain.counted, decisions=unlike)),
        "refused": replace(plain, event=refused, circumstances=replace(circumstances, policy=TOO_SMALL), sent=None),
        "with a replaced key": replace(plain, request=hidden, sent=RecordedSending(body)),
        "not planned": replace(plain, event=replace(event, outcome="off"), circumstances=None),
        "no request": replace(plain, request=change(request, body="no JSON")),
        "a provider's own note": replace(make_recording(), summary=NOTE),
        "again after a refusal": replace(plain, event=replace(event, retry="recovered", session="0123456789")),
    }


@pytest.mark.covered
def test_what_is_shown_of_each_recording(tmp_path: Path) -> None:
    """In the list, by itself, and as JSON; errors say what to do. Calls for summaries are no requests."""
    texts = {}
    for number, (title, one) in enumerate(_make_recordings().items()):
        event = replace(one.event, request_id=f"{number:02x}" * 12, at=1_700_000_000.0 + 60 * number)
        keep(tmp_path, replace(one, event=event))
        texts[title] = tell("inspect", "last", "--dir", tmp_path)
    call = RecordedCall("m", "inline", "written", 1.0, 1, 1)
    keep(tmp_path, replace(make_recording("cc" * 12, at=1.8e9), call=call, request=None, circumstances=None))
    first = "0" * 24
    lines = ((), ("--limit", "2", "--session", "5e"), (first, "--diff"), (first[:7], "--json", "--diff"), ("cc",))
    lines += (("last", "--session", "5e"), ("last", "--session", "none"), (first, "--session", "5e"), ("1234",))
    lines += (("last", "--sent", "--received"), ("--sort", "cost"), ("04", "--sent"), ("05", "--sent"))
    hidden = {tmp_path: "FOLDER"}
    texts |= {" ".join(line): tell("inspect", *line, "--dir", tmp_path, hidden=hidden) for line in lines}
    texts["nothing recorded"] = tell("inspect", "--dir", tmp_path / "none", hidden=hidden)
    check_golden("commands/inspect", texts)


@pytest.mark.covered
async def test_what_the_proxy_has_recorded_is_told_and_given(recorder, upstream) -> None:
    """Bodies byte for byte, for other programs to read; text of the conversation only where it is asked for."""

    async def answer(recorded: Any, _: Any) -> web.Response:
        text = write_note("SUMMARY of the work so far.") if recorded.asks_for_summary else "All good."
        return completion(text, recorded.dialect, prompt_tokens=4321, completion_tokens=12)

    async def inspect(*arguments: str) -> Any:
        return await asyncio.to_thread(run_trimtab, "inspect", *arguments, "--dir", recorder.folder)

    upstream.answer = answer
    await recorder.start("prices={input: 1, cached_input: 0.1, output: 4, unit: usd}")
    await recorder.play(CHAT)
    recording = (await recorder.read())[-1]
    shown, sent, received = await inspect("last"), await inspect("--sent"), await inspect("last", "--received")
    assert shown.exit_code == 0, shown.stderr
    for part in (recording.id, "SUMMARY of the work so far.", recording.summary.id, "; without trimtab $", "read_file"):
        assert part in shown.stdout, part
    assert "note:" not in shown.stdout
    assert "word1x1" not in shown.stdout
    assert sent.stdout_bytes == upstream.chats[-1].body
    assert len(orjson.loads(received.stdout_bytes)["messages"]) == 82


def test_a_broken_file_is_told_and_the_rest_is_listed(tmp_path) -> None:
    broken = keep(tmp_path, make_recording("b" * 24, at=1_700_000_001))
    broken.write_bytes(b"broken")
    keep(tmp_path, make_recording())
    assert "not compressed" in run_trimtab("inspect", "bbbb", "--dir", tmp_path).stderr
    listed = run_trimtab("inspect", "--dir", tmp_path)
    assert (listed.exit_code, "abababab" in listed.stdout, broken.name in listed.stderr) == (0, True, True)


def test_the_named_folder_comes_first_then_the_configured_then_the_usual(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    configured = ("record.dir=~/configured",)
    assert find_folder(Path("~/named"), None, configured) == tmp_path / "named"
    assert find_folder(None, None, configured) == tmp_path / "configured"
    assert find_folder(None, None, ()) == usual_recordings()
    (tmp_path / "trimtab.yaml").write_text(f"record: {{dir: {tmp_path}}}\n")
    assert find_folder(None, tmp_path / "trimtab.yaml", ()) == tmp_path
    assert run_trimtab("inspect", "--set", "record.keep=0", "--set", f"record.dir={tmp_path}").exit_code == 2


def make_change(before: str, after: str) -> Change:
    return Change(1, "tool", "bash", Fate.SHORTENED, ("truncate",), 10, 3, before, after)


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        ("same", "same", []),
        ("-- a dash", "", ["@@ -1 +0,0 @@", "--- a dash"]),
        ("", "++ plus", ["@@ -0,0 +1 @@", "+++ plus"]),
    ],
)
def test_the_lines_of_a_diff(before, after, lines):
    assert list(diff(make_change(before, after))) == lines


def test_texts_are_always_json():
    changed = Changed((make_change("half \ud800 a pair", "after"),))
    described = describe(make_recording(), changed, with_texts=True)
    assert orjson.loads(orjson.dumps(described))["changes"][0]["before"] == "half ? a pair"


def test_a_request_that_would_be_refused_has_no_changed_messages():
    """Also if it was only observed, and so forwarded unchanged."""
    observed = _record(Policy(), mode="observe")
    circumstances = replace(observed.circumstances, policy=TOO_SMALL)
    assert find_changes(replace(observed, circumstances=circumstances)).changes == ()


EVIL = "\x1b]0;title\x07\x1b[2Jred \x9b31m \u202e [bold]x[/bold]"


def test_no_text_controls_the_terminal(tmp_path):
    names = dict.fromkeys(("request_id", "session", "method", "client", "outcome", "model", "reason"), EVIL)
    sections = {"original_tokens": 9, "original_sections": (1, 2, 3, 1, 2), "sent_sections": (1, 2, 3, 1, 2)}
    decisions = (Entry(EVIL, EVIL, 9, 3, 1, 1, 1, 9),)
    event = replace(make_recording().event, error="x", **names, **sections, decisions=decisions)
    summary = RecordedSummary("id", "digest", by_model=False, text=EVIL)
    told = replace(make_recording(), event=event, summary=summary, story=(EVIL,))
    changes = (Change(1, EVIL, EVIL, Fate.PRUNED, ("prune",), 10, 3, f"{EVIL}\nsame\r\n", EVIL),)
    console = Console(file=StringIO(), width=140, highlight=False)
    show(told, Changed(changes, EVIL), console, with_diff=True)
    show_list([replace(event, request_id="\x1b[2Jxx[b]", session="\x9b2Jxx[b]")], console)
    keep(tmp_path, replace(make_recording(), event=replace(event, request_id="ab"), request=None, sent=None))
    printed = [
        run_trimtab("inspect", *more, "--dir", tmp_path) for more in ((), ("last",), ("--sent",), ("--received",))
    ]
    shown = console.file.getvalue() + "".join(one.output for one in printed)
    assert not [char for char in shown if not char.isprintable() and char != "\n"]
    for part in ("[bold]x[/bold]", "\\x1b[2Jxx[b]", "\\x9b2Jxx[b]"):
        assert part in shown


@pytest.mark.parametrize("body", ["{", "[]", '{"messages": 1}'])
def test_a_body_that_cannot_be_read_has_no_title(body: str) -> None:
    recording = make_recording(body=body)
    assert read_title(recording) == read_title(replace(recording, request=None)) == ""
