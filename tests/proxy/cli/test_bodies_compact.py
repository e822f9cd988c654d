"""`trimtab compact`."""

from collections import Counter
from io import StringIO
from pathlib import Path

import orjson
import pytest
import tiktoken
from click.testing import CliRunner, Result
from rich.console import Console
from support.builders import Wire, count
from support.command_line import ODD_BODY, SMALL, run_trimtab, tell
from support.dialects.spoken.all_dialects import each_dialect
from support.dialects.spoken.chat import CHAT
from support.dialects.spoken.dialect import Dialect
from support.golden import check_golden
from support.sessions import make_session, read_rows, recorded_files

from trimtab.proxy.cli import bodies
from trimtab.proxy.cli.main import main
from trimtab.proxy.compaction.compactor import Compactor
from trimtab.proxy.compaction.tokenizers.exact import VocabularyError, load_encoding
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

MINI = ("--set", "defaults.count=heuristic", "--set", "defaults.context_window=1024")
NO_REQUESTS = (
    b"", b'{\n"model": }', b"\xff", b"{}", b"[1]", b'{"messages":{}}', b'{"messages":null}',
    b'{"messages":[{"role":"user"},5]}', b'{"messages":[{"role":5}]}',
)  # fmt: skip


def test_what_is_said_of_each_request() -> None:
    """What is no request, or cannot fit, stays as it is in its line; the status is then 1."""
    messages: list[Wire] = [{"role": "user", "content": "Fix the bug."}]
    for number in range(8):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "run", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": f"result {number}\n" + "word " * 80})
    messages.insert(9, {"role": "user", "content": "Go on."})
    tools = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("run", "web")]
    small, long = orjson.dumps({"messages": messages[:1]}), orjson.dumps({"model": "m", "messages": messages})
    completion = orjson.dumps({"messages": messages[:1], "max_tokens": 32_000, "tools": tools})
    huge = orjson.dumps({"messages": [{"role": "user", "content": "x" * 6000}]})
    catalogue = b'{"model":"gpt-3.5-turbo","messages":[{"role":"user","content":"hi"}]}'
    local = ("--set", "upstream.base_url=http://127.0.0.1:8000/v1")
    cases = {
        "explained": (long, ("--explain", "--explain-json", "--diff", *MINI)),
        "a line each": (b"\n".join((small, b"nonsense", huge, long)), ("--jsonl", "--explain", *MINI, *ERROR)),
        "a line each, as JSON": (b"\n".join((small, long)), ("--jsonl", "--explain-json", *MINI)),
        "a long completion, without a tool": (completion, ("--explain", *MINI, "--set", "defaults.drop_tools=[web]")),
        "what cannot fit": (huge, (*MINI, *ERROR)),
        "a window of the catalogue": (catalogue, ("--explain",)),
        "a window of nobody": (catalogue, ("--explain", *local)),
        "in another dialect": (small, ("--dialect", "responses")),
        "read in another dialect": (b'{"input": "hi"}', ("--dialect", "messages")),
    }
    texts = {title: tell("compact", *more, input_bytes=body) for title, (body, more) in cases.items()}
    texts |= {repr(body): tell("compact", *MINI, input_bytes=body) for body in NO_REQUESTS}
    check_golden("commands/compact", texts)


ERROR = ("--set", "defaults.on_exceeded=error")
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
    """At that index stands what is told as removed, whether or not an element holds several messages; no text is told.

    The changes add up to what was saved.
    """
    body = dialect.write(_session(12))
    written = _explain(body, dialect, "--explain-json")
    assert PLANTED not in written
    told = orjson.loads(written)
    saved = sum(change["tokens_before"] - change["tokens_after"] for change in told["changes"])
    assert saved == told["original_tokens"] - told["sent_tokens"] == told["sentences"][0]["saved_tokens"] > 0
    gone = [change for change in told["changes"] if change["fate"] in {"removed", "pruned"} and change["tool"]]
    assert {change["tool"] for change in gone} == {"bash", "read_file"}
    numbers = []
    for change in gone:
        element = orjson.dumps(body[dialect.transcript][change["at"]]).decode()
        numbers += [number for number in range(12) if f"{PLANTED} {change['tool']} {number}\\n" in element][:1]
    assert len(numbers) == len(gone)
    assert numbers == sorted(numbers)


def test_a_diff_cannot_command_the_terminal() -> None:
    """Escape sequences, and what turns the direction of text, are shown by their escapes."""
    evil = "\x1b]0;title\x07 \u202e\tend LONE\n" * 300
    session = [*_session(0), *_call("bash", number=0)]
    session[-1]["content"] = evil
    body = orjson.dumps(CHAT.write([*session, *_session(12)[2:]])).replace(b"LONE", rb"\ud800")
    result = run_trimtab("compact", "--diff", *SMALL, input_bytes=body)
    assert "-\\x1b]0;title\\x07 \\u202e\tend " in result.stderr
    assert not set("\x1b\x07\u202e\ud800") & set(result.stderr)


def test_the_stories_of_recorded_sessions_are_true() -> None:
    """Changes add up, and each rule is named at as many messages as its decision counts."""
    counted = {"prune", "dedupe", "pin", "tidy", "truncate", "shorten", "exceeded"}
    seen: Counter[str] = Counter()
    # One has long sessions, which take long.
    for file in (file for file in recorded_files("conversations") if file.stem != "chained_long"):
        body = orjson.dumps(CHAT.write(next(read_rows(file))["messages"]))
        compactor = Compactor(count)
        planned = compactor.plan(read_request(body, CHAT.name), Policy(context_window=24_000, pin_instruction=True))
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


# `trimtab count`.

pytestmark = pytest.mark.usefixtures("restored_log")

HELLO = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hello world"}]}
CHINESE = {**HELLO, "messages": [{"role": "user", "content": "我喜欢猫。" * 50}]}


def test_what_is_counted_is_told() -> None:
    """By section and by part, as the vocabulary, the costs and the ratio of the model say; a line for each line."""
    hello, chinese = orjson.dumps(HELLO), orjson.dumps(CHINESE)
    texts = {"one request": tell("count", input_bytes=hello), "a table": tell("count", "--table", input_bytes=hello)}
    for model in ("gpt-4o", "gpt-4", "claude-3-5-haiku"):
        texts[model] = tell("count", "--model", model, input_bytes=chinese)
    lines = b"\n".join((hello, b"nonsense", chinese, b""))
    texts["lines"] = tell("count", "--jsonl", "--set", "defaults.count=heuristic", input_bytes=lines)
    texts["wrong use"] = tell("count", "--set", "defaults.count=magic")
    check_golden("commands/count", texts)


SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


def _count(*arguments: str | Path, input_bytes: bytes = b"") -> Result:
    return CliRunner().invoke(main, ["count", *map(str, arguments)], input=input_bytes, catch_exceptions=False)


def test_every_section_has_its_share() -> None:
    """The request has every section, and the shares add up."""
    session = make_session(3)
    memory = "<relevant_context>The harbour is closed on Sundays.</relevant_context>"
    messages = [*session["messages"][:-1], {"role": "user", "content": f"{memory} Go on."}]
    schema = {"type": "json_schema", "json_schema": {"name": "out", "schema": SCHEMA}}
    body = {"model": "gpt-4o", "messages": messages, "tools": session["tools"], "response_format": schema}
    counted = orjson.loads(_count(input_bytes=orjson.dumps(body)).stdout)

    for shown in (counted["sections"], counted["parts"]):
        assert [name for name, tokens in shown.items() if not tokens] == ["summary"]
        assert sum(shown.values()) == counted["tokens"]
    assert counted["parts"]["tool_results"] > 0.5 * counted["tokens"]


@pytest.mark.parametrize(
    ("lost", "settings", "model", "named"),
    [
        (("o200k_base", "cl100k_base"), ("--set", "defaults.count=cl100k_base"), "gpt-4o", "heuristic"),
        (("cl100k_base",), (), "gpt-4", "o200k_base"),
        (("o200k_base",), (), "gpt-4", "cl100k_base"),
    ],
)
def test_what_counted_is_named(
    lost: tuple[str, ...], settings: tuple[str, ...], model: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a vocabulary cannot be loaded, another one counts, and its name is shown."""

    def load(name: str, _: object = None) -> tiktoken.Encoding:
        if name in lost:
            message = "no such file"
            raise VocabularyError(message)
        return load_encoding(name)

    body = orjson.dumps({**HELLO, "messages": [{"role": "user", "content": "我喜欢猫。 internationalisation" * 50}]})
    arguments = ("--model", model, *settings)
    expected = orjson.loads(_count(*arguments, "--set", f"defaults.count={named}", input_bytes=body).stdout)
    monkeypatch.setattr("trimtab.proxy.compaction.pool.load_encoding", load)
    counted = orjson.loads(_count(*arguments, input_bytes=body).stdout)
    table = _count("--table", *arguments, input_bytes=body).stdout

    assert (counted["vocabulary"], counted["tokens"]) == (named, expected["tokens"])
    assert f"counted by {named}" in " ".join(table.split())
