"""`trimtab compact`."""

from pathlib import Path

import orjson
import pytest
from support.command_line import ODD_BODY, SMALL, run_trimtab

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
