"""`trimtab compact --explain`, `--explain-json` and `--diff`."""

from collections import Counter
from io import StringIO
from typing import Any

import orjson
import pytest
from rich.console import Console
from support.builders import Wire, count
from support.command_line import SMALL, run_trimtab
from support.dialects.spoken.all_dialects import DIALECTS, each_dialect
from support.dialects.spoken.chat import CHAT
from support.dialects.spoken.dialect import Dialect
from support.sessions import read_rows, recorded_files

from trimtab.proxy.cli import bodies
from trimtab.proxy.compaction.compactor import Compactor
from trimtab.proxy.wire.dialects import read_request
from trimtab.rules.conversation import Outcome
from trimtab.rules.pipeline.story import tell_story
from trimtab.rules.policy import Policy

pytestmark = pytest.mark.usefixtures("restored_log")

PLANTED = "xyzzy"
"""Stands in every message, in every call and in every result."""


def _call(*names: str, number: int) -> tuple[Wire, ...]:
    calls = [
        {
            "id": f"c{number}-{rank}",
            "type": "function",
            "function": {"name": name, "arguments": orjson.dumps({"path": f"{PLANTED}{number}"}).decode()},
        }
        for rank, name in enumerate(names)
    ]
    results = (
        {
            "role": "tool",
            "tool_call_id": f"c{number}-{rank}",
            "content": f"{PLANTED} {name} {number}\n" + "so it is\n" * 150,
        }
        for rank, name in enumerate(names)
    )
    return {"role": "assistant", "content": f"{PLANTED} step {number}", "tool_calls": calls}, *results


def _session(steps: int) -> list[Wire]:
    """Each step has two calls, whose results one dialect writes into one element."""
    head = [{"role": "system", "content": f"{PLANTED} rules"}, {"role": "user", "content": f"{PLANTED} Mend it."}]
    return [*head, *(message for number in range(steps) for message in _call("bash", "read_file", number=number))]


def _explain(body: Wire, dialect: Dialect, *options: str) -> str:
    result = run_trimtab("compact", "--dialect", dialect.name, *options, *SMALL, input_bytes=orjson.dumps(body))
    assert result.exit_code == 0
    return result.stderr


@each_dialect
def test_a_place_is_the_index_in_the_requests_own_list(dialect: Dialect) -> None:
    """At that index stands what the diff shows as removed, whether or not an element holds several messages."""
    body = dialect.write(_session(12))
    told = orjson.loads(_explain(body, dialect, "--explain-json"))
    elements = body[dialect.transcript]
    gone = [change for change in told["changes"] if change["fate"] in {"removed", "pruned"} and change["tool"]]
    assert gone
    numbers = []
    for change in gone:
        element = orjson.dumps(elements[change["at"]]).decode()
        number = next(number for number in range(12) if f"{PLANTED} {change['tool']} {number}\\n" in element)
        numbers.append(number)
    assert numbers == sorted(numbers)
    assert {change["tool"] for change in gone} == {"bash", "read_file"}


@each_dialect
def test_the_json_has_figures_and_places_and_no_text(dialect: Dialect) -> None:
    """Its changes add up to what was saved, and its sentences are those of --explain."""
    body = dialect.write(_session(12))
    written = _explain(body, dialect, "--explain-json")
    told: dict[str, Any] = orjson.loads(written)
    assert PLANTED not in written
    assert told["original_tokens"] > told["limit_tokens"] > told["sent_tokens"]
    saved = sum(change["tokens_before"] - change["tokens_after"] for change in told["changes"])
    assert saved == told["original_tokens"] - told["sent_tokens"] == told["sentences"][0]["saved_tokens"]
    *sentences, cut = _explain(body, dialect, "--explain").splitlines()
    assert cut.startswith("cut: when_it_pays: ")
    assert sentences == [f"{one['rule']}: {one['text']}".removeprefix(": ") for one in told["sentences"]]
    assert PLANTED not in "".join(sentences)


def test_the_same_session_has_the_same_figures_in_every_dialect() -> None:
    """Only the places differ. At other sizes, the few tokens more of one dialect may move a cut."""
    told = [orjson.loads(_explain(dialect.write(_session(14)), dialect, "--explain-json")) for dialect in DIALECTS]
    fates = [[(change["fate"], change["tool"]) for change in one["changes"]] for one in told]
    assert fates[0] == fates[1] == fates[2]
    places = [[change["at"] for change in one["changes"]] for one in told]
    assert places[0] != places[1] != places[2]


def test_a_diff_shows_each_changed_message() -> None:
    """What went is there with a minus, what trimtab wrote with a plus; unchanged messages are not there."""
    session = _session(12)
    told = orjson.loads(_explain(CHAT.write(session), CHAT, "--explain-json"))
    lines = _explain(CHAT.write(session), CHAT, "--diff").splitlines()
    headers = [line for line in lines if line.startswith("--- ")]
    assert len(headers) == len(told["changes"])
    assert f"-{PLANTED} bash 0" in lines
    assert "+[End of trimtab's summary. The conversation continues below.]" in lines
    assert not any(f"{PLANTED} Mend it." in line for line in lines)
    assert _explain(CHAT.write(_session(1)), CHAT, "--diff") == ""


def test_a_message_that_only_moved_has_one_line() -> None:
    """There is no difference to show."""
    session = _session(12)
    session.insert(8, {"role": "user", "content": "Go on."})
    lines = _explain(CHAT.write(session), CHAT, "--diff").splitlines()
    assert "=== message 8 (user): moved by digest, word for word" in lines


def test_a_diff_cannot_command_the_terminal() -> None:
    """Escape sequences, and what turns the direction of text, are shown by their escapes."""
    evil = "\x1b]0;title\x07 \u202e\tend LONE\n" * 300
    session = [*_session(0), *_call("bash", number=0)]
    session[-1]["content"] = evil
    body = orjson.dumps(CHAT.write([*session, *_session(12)[2:]])).replace(b"LONE", rb"\ud800")
    result = run_trimtab("compact", "--diff", *SMALL, input_bytes=body)
    assert "-\\x1b]0;title\\x07 \\u202e\tend " in result.stderr
    assert not set("\x1b\x07\u202e\ud800") & set(result.stderr)


def test_each_line_of_several_requests_is_told_apart() -> None:
    """Text names the line; JSON is one line for each request."""
    bodies = [CHAT.write(_session(steps)) for steps in (1, 12)]
    lines = b"\n".join(map(orjson.dumps, bodies))
    told = run_trimtab("compact", "--jsonl", "--explain", *SMALL, input_bytes=lines).stderr.splitlines()
    assert told[0].startswith("line 1: Nothing was changed")
    assert told[1].startswith("line 1: cut: ")
    assert all(line.startswith("line 2: ") for line in told[2:])
    written = run_trimtab("compact", "--jsonl", "--explain-json", *SMALL, input_bytes=lines).stderr.splitlines()
    assert [bool(orjson.loads(line)["changes"]) for line in written] == [False, True]


def test_a_long_completion_is_told_as_the_reason_of_a_low_limit() -> None:
    """Claude Code asks for 32,000 tokens, whatever the window is."""
    body = CHAT.write(_session(1), []) | {"max_tokens": 32_000}
    last = _explain(body, CHAT, "--explain").splitlines()[-1]
    assert "limit: 2,000 tokens; 2,000 of the window's 4,000 tokens stay free" in last
    assert "the request's max_tokens is 32,000, rounded up, at most half of the window" in last


def test_what_is_no_rule_of_the_plan_is_told_once() -> None:
    """The name of the rule stands before it either way."""
    tools = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("bash", "web")]
    body = CHAT.write(_session(1), tools)
    told = _explain(body, CHAT, "--explain", "--set", "defaults.drop_tools=[web]").splitlines()
    assert told[1:-1] == ["drop_tools: 1 declarations of tools, which saved 16 tokens."]


@each_dialect
def test_the_stories_of_recorded_sessions_are_true(dialect: Dialect) -> None:
    """Changes add up, and each rule is named at as many messages as its decision counts."""
    counted = {"prune", "dedupe", "pin", "tidy", "truncate", "shorten", "exceeded"}
    seen: Counter[str] = Counter()
    # One has long sessions, which take long; only chat can write another's results without their calls.
    left_out = {"chained_long"} if dialect is CHAT else {"chained_long", "windowed_orphans"}
    for file in (file for file in recorded_files("conversations") if file.stem not in left_out):
        body = orjson.dumps(dialect.write(next(read_rows(file))["messages"]))
        compactor = Compactor(count)
        planned = compactor.plan(read_request(body, dialect.name), Policy(context_window=24_000, pin_instruction=True))
        compacted = compactor.apply(planned, None)
        story = tell_story(planned.plan, Outcome(compacted.forwarded, compacted.decisions))
        saved = sum(change.tokens_before - change.tokens_after for change in story.changes)
        assert saved == planned.original.tokens - compacted.forwarded.tokens
        named = Counter(rule for change in story.changes for rule in change.rules)
        for decision in compacted.decisions:
            assert decision.rule not in counted or named[decision.rule] == decision.messages, (file.name, decision)
        seen += named
    assert {"digest", "tidy", "truncate", "dedupe"} <= seen.keys()


def test_a_terminal_gets_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """And lines that fit it."""
    screen = StringIO()

    def open_screen(**_: object) -> Console:
        return Console(file=screen, force_terminal=True, width=60, highlight=False, color_system="standard")

    monkeypatch.setattr(bodies, "Console", open_screen)
    _explain(CHAT.write(_session(12)), CHAT, "--explain", "--diff")
    shown = screen.getvalue()
    assert "\x1b[31m-xyzzy bash 0\x1b[0m" in shown
    assert "\x1b[36mdigest\x1b[0m" in shown
    assert max(map(len, shown.partition("---")[0].splitlines())) < 80
