"""`trimtab compact`."""

from collections import Counter
from io import StringIO
from pathlib import Path
from typing import Any

import orjson
import pytest
from rich.console import Console
from support.builders import Wire, count
from support.command_line import ODD_BODY, SMALL, run_trimtab
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


def _long_body() -> bytes:
    messages: list[dict[str, object]] = [{"role": "user", "content": "Fix the bug."}]
    for number in range(12):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "run", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": f"result {number} " + "x" * 2000})
    return orjson.dumps({"model": "m", "messages": messages})


def test_compact_leaves_a_body_alone_that_needs_nothing(tmp_path: Path) -> None:
    """It stays the same byte for byte, including line ends, from a file or from standard input."""
    file = tmp_path / "body.json"
    file.write_bytes(ODD_BODY)

    for result in (run_trimtab("compact", file, *SMALL), run_trimtab("compact", "-", *SMALL, input_bytes=ODD_BODY)):
        assert (result.exit_code, result.stdout_bytes, result.stderr) == (0, ODD_BODY, "")
    assert run_trimtab("compact", *SMALL, input_bytes=ODD_BODY).stdout_bytes == ODD_BODY


def test_compact_takes_out_what_the_proxy_does_not_send() -> None:
    """Items that belong to the client alone, and unused tools, as the configuration says."""
    asked = {"type": "message", "role": "user", "content": "Fix the bug."}
    body = {"model": "m", "input": [{"type": "ghost_snapshot", "id": "g"}, asked]}
    tools = {"tools": [{"type": "function", "name": "fly", "parameters": {}}]}
    result = run_trimtab(
        "compact", *SMALL, "--set", 'defaults.drop_tools=["*"]', input_bytes=orjson.dumps({**body, **tools})
    )
    kept = run_trimtab("compact", *SMALL, "--set", "defaults.local_items=[]", input_bytes=orjson.dumps(body))

    assert orjson.loads(result.stdout_bytes) == {"model": "m", "input": [asked]}
    assert orjson.loads(kept.stdout_bytes) == body


def test_compact_compacts_what_is_too_long() -> None:
    """A digest replaces the summary. --explain prints on standard error what was done."""
    body = _long_body()
    result = run_trimtab("compact", "--explain", *SMALL, input_bytes=body)
    quiet = run_trimtab("compact", *SMALL, input_bytes=body)

    messages = orjson.loads(result.stdout_bytes)["messages"]
    assert result.exit_code == 0
    assert len(result.stdout_bytes) < len(body)
    assert messages[0]["content"].startswith("Fix the bug.")
    assert messages[-1]["content"].startswith("result 11")
    explained = result.stderr.splitlines()
    assert "The limit is 3,000 tokens." in explained[0]
    assert any(line.startswith(("prune: ", "digest: ")) for line in explained[1:])
    assert (quiet.stdout_bytes, quiet.stderr) == (result.stdout_bytes, "")


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        ((), 16_385 - 16_385 // 4),
        (("--set", "upstream.base_url=http://127.0.0.1:8000/v1"), 128_000 - 8192),
        (("--set", "defaults.context_window=8000"), 6000),
    ],
)
def test_compact_takes_the_window_from_the_catalogue(settings: tuple[str, ...], limit: int) -> None:
    """The catalogue counts if no window is configured and the catalogue knows the upstream."""
    body = b'{"model":"gpt-3.5-turbo","messages":[{"role":"user","content":"hi"}]}'
    result = run_trimtab("compact", "--explain", *settings, "-", input_bytes=body)
    assert f"The limit is {limit:,} tokens." in result.stderr


def test_compact_takes_one_request_a_line() -> None:
    """Each line gives a line. A line that is not a request stays unchanged and is reported; the status is 1."""
    small = b'{"messages":[ {"role":"user"} ]}'
    result = run_trimtab(
        "compact", "--jsonl", "--explain", *SMALL, input_bytes=small + b"\nnonsense\n" + _long_body() + b"\n" + small
    )

    lines = result.stdout_bytes.splitlines()
    assert result.exit_code == 1
    assert [lines[0], lines[1], lines[3]] == [small, b"nonsense", small]
    assert orjson.loads(lines[2])["messages"][0]["content"].startswith("Fix the bug.")
    assert "trimtab: line 2: not a chat request, because it is no JSON" in result.stderr
    assert {line.partition(":")[0] for line in result.stderr.splitlines()} == {"line 1", "line 3", "line 4", "trimtab"}


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"", "it is empty"),
        (b'{\n"model": }', "it is no JSON at line 2, column 10"),
        (b"\xff", "it is no JSON at line 1, column 1"),
        (b"{}", "it has no `messages`"),
        (b"[1]", "it is a list"),
        (b'{"messages":{}}', "`messages` is an object, not a list"),
        (b'{"messages":null}', "`messages` is null, not a list"),
        (b'{"messages":[{"role":"user"},5]}', "`messages[1]` is a number"),
        (b'{"messages":[{"role":5}]}', "a member of `messages` is wrong"),
    ],
)
def test_compact_of_no_chat_request_says_what_is_wrong_and_where(body: bytes, fault: str, tmp_path: Path) -> None:
    """Nothing goes to standard output, and the status is 1."""
    (tmp_path / "body.json").write_bytes(body)
    for name, where in (("-", ""), (str(tmp_path / "body.json"), f"{tmp_path}/body.json: ")):
        result = run_trimtab("compact", *SMALL, name, input_bytes=body)
        told = f"trimtab: {where}not a chat request, because {fault}; it must be a JSON object with `messages`\n"
        assert (result.exit_code, result.stdout_bytes, result.stderr) == (1, b"", told)


def test_compact_of_what_cannot_fit_ends_with_status_1() -> None:
    """The sentences are those of the proxy's own refusal: the sizes, and what to shorten."""
    body = orjson.dumps({"messages": [{"role": "user", "content": "x" * 40_000}]})
    result = run_trimtab("compact", *SMALL, "--set", "defaults.on_exceeded=error", input_bytes=body)

    assert (result.exit_code, result.stdout_bytes) == (1, b"")
    assert result.stderr.startswith("trimtab: This model's maximum context length is 4000 tokens.")
    assert "which leaves a limit of 3000 tokens" in result.stderr
    assert "To fit, shorten the last user message by " in result.stderr


def test_the_configuration_file_comes_from_option_or_environment(tmp_path: Path) -> None:
    """TRIMTAB_CONFIG has the effect of --config; --set wins over either."""
    file = tmp_path / "small.yaml"
    file.write_text("models: [{match: m, context_window: 4000, count: heuristic}]")
    body = _long_body()

    expected = run_trimtab("compact", *SMALL, input_bytes=body).stdout_bytes
    assert expected != body
    assert run_trimtab("compact", "--config", file, input_bytes=body).stdout_bytes == expected
    assert run_trimtab("compact", input_bytes=body, TRIMTAB_CONFIG=str(file)).stdout_bytes == expected
    wide = run_trimtab("compact", "--config", file, "--set", "models=[]", input_bytes=body)
    assert wide.stdout_bytes == body


# `trimtab compact --explain`, `--explain-json` and `--diff`.

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
    assert "+[End of trimtab's summary.]" in lines
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
