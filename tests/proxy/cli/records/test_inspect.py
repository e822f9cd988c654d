"""`trimtab inspect` says what was done to a request, and what the model sees now."""

import asyncio
from io import StringIO
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from msgspec import structs
from msgspec.structs import replace
from rich.console import Console
from support.command_line import run_trimtab
from support.dialects.spoken.all_dialects import each_dialect
from support.dialects.spoken.chat import CHAT
from support.recordings import keep, make_recording
from support.sessions import make_session
from upstreams.recording import completion, write_note

from trimtab.proxy.account.recordings.format import RecordedCall, RecordedSending, RecordedSummary
from trimtab.proxy.cli.options import usual_recordings
from trimtab.proxy.cli.records.inspect import (
    Changed,
    describe,
    diff,
    find_changes,
    find_folder,
    read_title,
    safe,
    show,
    show_list,
)
from trimtab.proxy.telemetry.ledger import Entry
from trimtab.rules.pipeline.changes import Change, Fate
from trimtab.rules.policy import OnExceeded, Policy
from trimtab.rules.summary.request import OPAQUE

NEVER_WAIT = "defaults.summary.wait_seconds=0"


async def inspect(recorder: Any, *arguments: str) -> Any:
    await recorder.read()
    return await asyncio.to_thread(run_trimtab, "inspect", *arguments, "--dir", recorder.folder)


@each_dialect
async def test_a_compacted_request_is_told_with_figures_reasons_and_the_summary(dialect, recorder, upstream) -> None:
    async def answer(recorded: Any, _: Any) -> web.Response:
        usage = {"prompt_tokens": 4321, "completion_tokens": 12}
        text = write_note("SUMMARY of the work so far.") if recorded.asks_for_summary else "All good."
        return completion(text, recorded.dialect, **usage)

    upstream.answer = answer
    await recorder.start("prices={input: 1, cached_input: 0.1, output: 4, unit: usd}")
    await recorder.play(dialect)
    shown = await inspect(recorder, "last")
    recording = (await recorder.read())[-1]
    event = recording.event

    assert shown.exit_code == 0, shown.stderr
    for part in (
        event.request_id,
        event.session,
        f"{event.original_tokens:,}",
        f"{event.sent_tokens:,}",
        f"Tokens (limit {event.limit_tokens:,})",
        "82 messages",
    ):
        assert part in shown.stdout, part
    for decision in event.decisions:
        assert decision.rule in shown.stdout
    assert "SUMMARY of the work so far." in shown.stdout
    assert recording.summary.id in shown.stdout
    assert "4,321 prompt tokens" in shown.stdout
    assert "; without trimtab $" in shown.stdout
    assert "read_file" in shown.stdout
    for sentence in recording.story:
        assert sentence.split()[-1] in shown.stdout
    assert "note:" not in shown.stdout
    assert "word1x1" not in shown.stdout


async def test_the_diff_shows_what_of_a_message_is_gone(recorder) -> None:
    await recorder.start("defaults.max_tool_result_tokens=64")
    await recorder.play(CHAT, stops=(4,))
    plain, with_diff = await inspect(recorder, "last"), await inspect(recorder, "last", "--diff")
    assert "word0x50" not in plain.stdout
    assert [line for line in with_diff.stdout.splitlines() if line.strip().startswith("-") and "word0x50" in line]
    assert "3: tool of read_file shortened by truncate" in plain.stdout


async def test_what_the_model_sees_and_what_the_client_sent(recorder, upstream) -> None:
    """Byte for byte, for other programs to read."""
    await recorder.start(NEVER_WAIT)
    await recorder.play(CHAT, stops=(82,))
    sent, received = await inspect(recorder, "--sent"), await inspect(recorder, "last", "--received")
    assert sent.stdout_bytes == upstream.chats[0].body
    assert len(orjson.loads(received.stdout_bytes)["messages"]) == 82


async def test_the_same_as_json(recorder) -> None:
    await recorder.start(NEVER_WAIT)
    await recorder.play(CHAT, stops=(82,))
    (recording,) = await recorder.read()
    told = orjson.loads((await inspect(recorder, recording.id[:6], "--json")).stdout)
    assert told["event"]["request_id"] == recording.id
    assert sum(told["event"]["original_sections"].values()) == told["event"]["original_tokens"]
    assert told["event"]["cost_usd"] is None
    assert told["story"] == list(recording.story)
    assert {change["fate"] for change in told["changes"]} >= {"removed", "added"}
    assert all("before" not in change for change in told["changes"])
    with_texts = orjson.loads((await inspect(recorder, "last", "--json", "--diff")).stdout)
    assert any("word1x1" in change["before"] for change in with_texts["changes"])


async def test_the_table_has_the_newest_requests_first(recorder) -> None:
    await recorder.start()
    await recorder.play(CHAT, stops=(4, 10, 20))
    ids = [one.id for one in await recorder.read()][::-1]
    lines = (await inspect(recorder)).stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [one[:12] for one in ids]
    assert len((await inspect(recorder, "--limit", "2")).stdout.splitlines()) == 3
    assert [one["request_id"] for one in orjson.loads((await inspect(recorder, "--json")).stdout)] == ids


async def _refused(recorder: Any) -> None:
    await recorder.start("defaults.on_exceeded=error")
    await recorder.ask(CHAT, CHAT.write([{"role": "user", "content": "word " * 20_000}]))


async def _observed(recorder: Any) -> None:
    await recorder.start("mode=observe")
    await recorder.play(CHAT, stops=(82,))


async def _off(recorder: Any) -> None:
    await recorder.start("mode=off")
    await recorder.play(CHAT, stops=(4,))


async def _undecodable(recorder: Any) -> None:
    await recorder.start()
    await recorder.ask(CHAT, b"no JSON")


async def _unchanged(recorder: Any) -> None:
    await recorder.start()
    await recorder.ask(CHAT, CHAT.write([{"role": "user", "content": "hi"}]))


async def _broken(recorder: Any) -> None:
    await recorder.start("upstream.base_url=http://127.0.0.1:9/v1")
    await recorder.ask(CHAT, CHAT.write([{"role": "user", "content": "hi"}]))


async def _redacted(recorder: Any) -> None:
    await recorder.start()
    key = "sk-planted-0123456789"
    await recorder.ask(CHAT, CHAT.write([{"role": "user", "content": key}]), authorization=f"Bearer {key}")


@pytest.mark.parametrize(
    ("play", "told"),
    [
        (_refused, "error context_length_exceeded"),
        (_observed, "mode observe"),
        (_off, "outcome off"),
        (_undecodable, "outcome undecodable"),
        (_unchanged, "outcome unchanged"),
        (_broken, "error upstream_unreachable"),
        (_redacted, "a key in the body is recorded as ***"),
    ],
)
async def test_each_outcome_is_shown(play, told, recorder) -> None:
    await play(recorder)
    for arguments in (("last",), ("last", "--diff"), ("last", "--json")):
        shown = await inspect(recorder, *arguments)
        assert shown.exit_code == 0, shown.stderr
        if "--json" not in arguments:
            assert told in shown.stdout
    sent = await inspect(recorder, "last", "--sent")
    if play in {_undecodable, _refused}:
        assert sent.exit_code == 1
        assert "its outcome was" in sent.stderr


def test_a_folder_without_recordings_says_what_to_do(tmp_path) -> None:
    for place in (tmp_path, tmp_path / "absent"):
        for arguments in ((), ("last",), ("--sent",)):
            shown = run_trimtab("inspect", *arguments, "--dir", place)
            assert shown.exit_code == 1
            assert "trimtab record" in shown.stderr
            assert "Traceback" not in shown.stderr


def test_an_id_that_is_not_recorded_and_a_broken_file_are_told(tmp_path) -> None:
    broken = keep(tmp_path, make_recording("b" * 24, at=1_700_000_001))
    broken.write_bytes(b"broken")
    keep(tmp_path, make_recording())
    assert "no recording has the id 1234" in run_trimtab("inspect", "1234", "--dir", tmp_path).stderr
    assert "not compressed" in run_trimtab("inspect", "bbbb", "--dir", tmp_path).stderr
    listed = run_trimtab("inspect", "--dir", tmp_path)
    assert listed.exit_code == 0
    assert broken.name in listed.stderr
    assert "abababab" in listed.stdout


def test_the_folder_of_the_configuration_is_read(tmp_path) -> None:
    keep(tmp_path, make_recording())
    (tmp_path / "trimtab.yaml").write_text(f"record: {{dir: {tmp_path}}}\n")
    assert "abababab" in run_trimtab("inspect", "--config", tmp_path / "trimtab.yaml").stdout
    assert "abababab" in run_trimtab("inspect", "--set", f"record.dir={tmp_path}").stdout
    assert run_trimtab("inspect", "--set", "record.keep=0", "--set", f"record.dir={tmp_path}").exit_code == 2


def test_calls_for_summaries_are_no_requests(tmp_path) -> None:
    call = RecordedCall("m", "inline", "written", 1.0, 1, 1)
    keep(tmp_path, replace(make_recording("c" * 24, at=1_800_000_000), call=call, request=None, circumstances=None))
    keep(tmp_path, make_recording())
    assert "cccc" not in run_trimtab("inspect", "--dir", tmp_path).stdout
    assert "abababab" in run_trimtab("inspect", "last", "--dir", tmp_path).stdout
    assert run_trimtab("inspect", "cccc", "--dir", tmp_path).exit_code == 0


def test_both_bodies_at_once_are_wrong_use(tmp_path) -> None:
    assert run_trimtab("inspect", "last", "--sent", "--received", "--dir", tmp_path).exit_code == 2


def test_a_recording_of_another_version_of_the_rules_says_so(tmp_path) -> None:
    """What was recorded is shown all the same."""
    body = orjson.dumps({"model": "m", **make_session(3)}).decode()
    recording = make_recording(body=body)
    from trimtab.rules.conversation import Decision  # noqa: PLC0415 - only here

    counted = replace(recording.counted, decisions=(Decision("truncate", "", 9, 3, 1, 3),))
    keep(tmp_path, replace(recording, counted=counted, sent=RecordedSending("{}")))
    shown = run_trimtab("inspect", "last", "--dir", tmp_path)
    assert shown.exit_code == 0
    assert "plans the request otherwise" in shown.stdout


def test_no_text_of_a_recording_controls_the_terminal(tmp_path) -> None:
    recording = make_recording()
    event = structs.replace(recording.event, session="\x1b[2Jxx", outcome="\x1b]0;pwn\x07")
    keep(tmp_path, replace(recording, event=event, request=None, sent=None))
    for arguments in ((), ("last",), ("--sent",), ("--received",)):
        done = run_trimtab("inspect", *arguments, "--dir", tmp_path)
        shown = done.stdout + done.stderr
        assert "\\x1b]0;pwn\\x07" in shown
        assert not [char for char in shown if not char.isprintable() and char != "\n"]


def test_the_last_request_is_the_newest_one_that_is_wanted(tmp_path) -> None:
    for number, session in enumerate(("ours", "other")):
        recording = make_recording(str(number) * 24, at=1_700_000_000 + number)
        keep(tmp_path, replace(recording, event=structs.replace(recording.event, session=session)))
    assert "1" * 24 in run_trimtab("inspect", "last", "--dir", tmp_path).stdout
    assert "0" * 24 in run_trimtab("inspect", "last", "--session", "our", "--dir", tmp_path).stdout
    assert run_trimtab("inspect", "last", "--session", "none", "--dir", tmp_path).exit_code == 1
    assert run_trimtab("inspect", "0" * 24, "--session", "our", "--dir", tmp_path).exit_code == 2


def test_the_named_folder_comes_first_then_the_configured_then_the_usual(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    configured = ("record.dir=~/configured",)
    assert find_folder(Path("~/named"), None, configured) == tmp_path / "named"
    assert find_folder(None, None, configured) == tmp_path / "configured"
    assert find_folder(None, None, ()) == usual_recordings()


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


# What is printed cannot control a terminal, and says what is known.

EVIL = "\x1b]0;title\x07\x1b[2Jred \x9b31m \u202e [bold]x[/bold]"
REMOVED = [Change(at, "tool", "bash", Fate.REMOVED, ("digest",), 100, 0, "before") for at in range(2, 9)]


def print_it(recording, changed=Changed(), *, with_diff=False) -> str:  # noqa: B008 - a constant
    console = Console(file=StringIO(), width=140, highlight=False)
    show(recording, changed, console, with_diff=with_diff)
    return console.file.getvalue()


def test_no_text_controls_the_terminal():
    recording = make_recording()
    event = structs.replace(
        recording.event,
        request_id=EVIL,
        session=EVIL,
        method=EVIL,
        client=EVIL,
        outcome=EVIL,
        model=EVIL,
        error="x",
        reason=EVIL,
        original_tokens=9,
        original_sections=(1, 2, 3, 1, 2),
        sent_sections=(1, 2, 3, 1, 2),
        decisions=(Entry(EVIL, EVIL, 9, 3, 1, 1, 1, 9),),
    )
    summary = RecordedSummary("id", "digest", by_model=False, text=EVIL)
    told = replace(recording, event=event, summary=summary, story=(EVIL,))
    change = Change(1, EVIL, EVIL, Fate.PRUNED, ("prune",), 10, 3, f"{EVIL}\nsame\r\n", EVIL)
    shown = print_it(told, Changed((change,), EVIL), with_diff=True)
    assert not [char for char in shown if not char.isprintable() and char != "\n"]
    assert "[bold]x[/bold]" in shown
    console = Console(file=StringIO(), width=200)
    shorter = structs.replace(event, request_id="\x1b[2Jxx[b]", session="\x9b2Jxx[b]")
    show_list([event, shorter], console)
    listed = console.file.getvalue()
    assert not [char for char in listed if not char.isprintable() and char != "\n"]
    assert "\\x1b[2Jxx[b]" in listed
    assert "\\x9b2Jxx[b]" in listed


def test_removed_messages_share_a_line_unless_each_is_shown():
    changed = Changed((*REMOVED, Change(9, "tool", "bash", Fate.PRUNED, ("prune",), 50, 7, "old", "new")))
    shown = print_it(make_recording(), changed)
    assert "2 to 8: 7 messages removed by digest (results of bash: 7), 700 -> 0 tokens" in shown
    assert "9: tool of bash pruned by prune, 50 -> 7 tokens" in shown
    each = print_it(make_recording(), changed, with_diff=True)
    assert "3: tool of bash removed by digest, 100 -> 0 tokens" in each
    assert "-old" in each
    assert "+new" in each


def test_only_removed_messages_share_a_line():
    """A summary may be two messages, which are added at the same place."""
    added = [Change(61, role, "", Fate.ADDED, ("summarise",), 0, 9, "", "text") for role in ("user", "assistant")]
    shown = print_it(make_recording(), Changed(tuple(added)))
    assert "61: user added by summarise, 0 -> 9 tokens" in shown
    assert "61: assistant added by summarise, 0 -> 9 tokens" in shown


def test_a_doubt_is_told():
    assert "note: not sure" in print_it(make_recording(), Changed(doubt="not sure"))


@pytest.mark.parametrize(
    ("figures", "told"),
    [
        ({"prompt_tokens": 4321}, "the upstream counts 4,321 prompt tokens\n"),
        ({"prompt_tokens": 4321, "cached_tokens": 4000}, "4,000 of them from its cache"),
        ({"completion_tokens": 7, "is_estimated": True}, "completion: 7 tokens, estimated"),
        ({"prefix_kept": 0.954}, "95.4%"),
        ({"cost": 12_300_000, "without_cost": 50_000_000}, "cost $0.0123; without trimtab $0.0500"),
        ({"retry": "recovered"}, "the second: recovered"),
        ({"client": "alice"}, "client alice"),
    ],
)
def test_each_figure_is_shown_if_it_is_known(figures, told):
    recording = make_recording()
    assert told in print_it(replace(recording, event=structs.replace(recording.event, **figures)))
    assert told not in print_it(recording)


def test_a_decision_is_shown_with_what_it_saved() -> None:
    recording = make_recording()
    entry = Entry("tidy", "colours", 1200, 200, 3, 5, 2, 9000)
    shown = print_it(replace(recording, event=structs.replace(recording.event, decisions=(entry,))))
    assert "tidy 2 1,200 200 1,000 3 5 colours" in " ".join(shown.split())


def test_the_list_has_the_beginning_of_a_sessions_name() -> None:
    console = Console(file=StringIO(), width=200)
    show_list([structs.replace(make_recording().event, session="0123456789")], console)
    assert "01234567" in console.file.getvalue().split()


def test_of_a_note_that_only_its_provider_can_read_that_is_said() -> None:
    summary = RecordedSummary("5" * 64, "summarise", by_model=True, text="", note="{}")
    shown = print_it(replace(make_recording(), summary=summary))
    assert f"Summary (written by the provider's own compaction, id {'5' * 64})\n{OPAQUE}\n" in shown


def test_lines_of_a_text_stay_lines():
    assert safe("a\n\tb\r", lines=True).plain == "a\n    b\\r"


@pytest.mark.parametrize("body", ["{", "[]", '{"messages": 1}'])
def test_a_body_that_cannot_be_read_has_no_title(body: str) -> None:
    recording = make_recording(body=body)
    assert read_title(recording) == read_title(structs.replace(recording, request=None)) == ""
