"""Calls that clients answer, and their results."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.codec import Counting
from trimtab.proxy.wire.responses.codec import decode_unit, encode_message, find_call_types
from trimtab.proxy.wire.responses.results import BLANK_SCREENSHOT
from trimtab.rules.conversation import Message, Role, ToolCall

CALLS: list[tuple[dict[str, Any], ToolCall]] = [
    (
        {"type": "function_call", "id": "fc", "call_id": "1", "name": "ls", "arguments": '{"a": 1}'},
        ToolCall("1", "ls", '{"a": 1}'),
    ),
    ({"type": "custom_tool_call", "call_id": "1", "name": "run", "input": "x\ny"}, ToolCall("1", "run", "x\ny")),
    (
        {"type": "local_shell_call", "call_id": "1", "action": {"type": "exec", "command": ["ls"]}},
        ToolCall("1", "local_shell", '{"type":"exec","command":["ls"]}'),
    ),
    (
        {"type": "shell_call", "call_id": "1", "action": {"commands": ["ls"]}},
        ToolCall("1", "shell", '{"commands":["ls"]}'),
    ),
    (
        {"type": "apply_patch_call", "call_id": "1", "operation": {"type": "delete_file", "path": "a"}},
        ToolCall("1", "apply_patch", '{"type":"delete_file","path":"a"}'),
    ),
    (
        {"type": "computer_call", "call_id": "1", "action": {"type": "wait"}},
        ToolCall("1", "computer", '{"type":"wait"}'),
    ),
    ({"type": "computer_call", "call_id": "1", "actions": [7]}, ToolCall("1", "computer", "[7]")),
    (
        {"type": "mcp_approval_request", "id": "1", "name": "rm", "arguments": "{}", "server_label": "s"},
        ToolCall("1", "rm", "{}"),
    ),
    ({"type": "function_call", "call_id": 7, "name": 7, "arguments": [7]}, ToolCall("7", "", "[7]", b"7")),
]
MISSING = {
    "function_call": {"type": "function_call_output", "call_id": "1", "output": "aborted"},
    "custom_tool_call": {"type": "custom_tool_call_output", "call_id": "1", "output": "aborted"},
    "local_shell_call": {"type": "local_shell_call_output", "id": "1", "output": "aborted"},
    "shell_call": {
        "type": "shell_call_output",
        "call_id": "1",
        "output": [{"stdout": "aborted", "stderr": "", "outcome": {"type": "exit", "exit_code": 1}}],
    },
    "apply_patch_call": {
        "type": "apply_patch_call_output",
        "call_id": "1",
        "status": "failed",
        "output": "aborted",
    },
    "computer_call": {
        "type": "computer_call_output",
        "call_id": "1",
        "output": orjson.loads(BLANK_SCREENSHOT),
    },
    "mcp_approval_request": {
        "type": "mcp_approval_response",
        "approval_request_id": "1",
        "approve": False,
        "reason": "aborted",
    },
}
CHUNKS = [
    {"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
    {"stdout": "b", "stderr": "c", "outcome": {"type": "timeout"}, "x": 1},
]


def _decode(*items: object) -> Message:
    unit = b",".join(map(orjson.dumps, items))
    (message,) = decode_unit(Counting(count_by_heuristic, make_known()), unit)
    return message


def _edit(item: object, *texts: str) -> Any:
    message = replace(_decode(item), texts=texts, media=(), edited=True)
    return orjson.loads(encode_message(message, {}))


@pytest.mark.parametrize(("item", "call"), CALLS)
def test_a_call_is_read(item: dict[str, Any], call: ToolCall) -> None:
    message = _decode(item)
    assert message.role is Role.ASSISTANT
    assert message.tool_calls == (call,)


@pytest.mark.parametrize("call_type", MISSING)
def test_a_result_that_is_missing_fits_its_call(call_type: str) -> None:
    """It says that the call failed, and never approves it. A computer's result must be an image."""
    item, call = next((item, call) for item, call in CALLS if item["type"] == call_type)
    asked = _decode({"type": "reasoning"}, item)
    made = Message(Role.TOOL, ("aborted",), answers=call.id, edited=True)
    written = encode_message(made, find_call_types([asked, made]))
    assert orjson.loads(written) == MISSING[call_type]
    again = _decode(orjson.loads(written))
    assert (again.role, again.answers) == (Role.TOOL, "1")


@pytest.mark.parametrize(
    ("item", "texts", "is_error"),
    [
        (
            {
                "type": "function_call_output",
                "call_id": "1",
                "output": [{"type": "input_text", "text": "x"}, {"type": "input_text", "text": "y"}],
            },
            ("x", "y"),
            False,
        ),
        ({"type": "custom_tool_call_output", "call_id": "1", "output": "x", "success": False}, ("x",), True),
        ({"type": "local_shell_call_output", "id": "2", "call_id": "1", "output": "x"}, ("x",), False),
        ({"type": "apply_patch_call_output", "call_id": "1", "status": "failed", "output": "x"}, ("x",), True),
        ({"type": "shell_call_output", "call_id": "1", "output": CHUNKS}, ("a", "b", "c"), True),
        ({"type": "shell_call_output", "call_id": "1", "output": [{"outcome": {"exit_code": 2}}]}, (), True),
        (
            {"type": "mcp_approval_response", "approval_request_id": "1", "approve": False, "reason": "no"},
            ("no",),
            False,
        ),
    ],
)
def test_a_result_is_read(item: dict[str, Any], texts: tuple[str, ...], *, is_error: bool) -> None:
    message = _decode(item)
    assert (message.role, message.answers) == (Role.TOOL, "1")
    assert (message.texts, message.is_error, message.media) == (texts, is_error, ())


@pytest.mark.parametrize(
    ("item", "texts", "changed"),
    [
        ({"type": "function_call_output", "output": "x", "z": 1}, ["n"], {"output": "n"}),
        (
            {"type": "function_call_output", "output": [{"type": "input_text", "text": "x", "z": 1}]},
            ["n"],
            {"output": [{"type": "input_text", "text": "n", "z": 1}]},
        ),
        (
            {"type": "shell_call_output", "output": CHUNKS},
            ["n"],
            {"output": [CHUNKS[0] | {"stdout": "n"}, CHUNKS[1] | {"stdout": "", "stderr": ""}]},
        ),
        (
            {"type": "shell_call_output", "output": CHUNKS[1:]},
            ["n", "m", "o", "p"],
            {
                "output": [
                    CHUNKS[1] | {"stdout": "n", "stderr": "m"},
                    {"stdout": "o\np", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
                ]
            },
        ),
        ({"type": "mcp_approval_response", "approve": True, "reason": "x"}, ["n"], {"reason": "n"}),
    ],
)
def test_an_edited_result_keeps_its_form(item: dict[str, Any], texts: list[str], changed: dict[str, Any]) -> None:
    assert _edit(item, *texts) == item | changed


def test_a_screenshot_counts_by_its_size_and_can_be_removed() -> None:
    """Not by the length of its base64 text. The item stays; a white image takes its place."""
    shot = {"type": "computer_screenshot", "image_url": "https://x/shot.png"}
    item = {"type": "computer_call_output", "call_id": "1", "output": shot, "acknowledged_safety_checks": [{"id": "a"}]}
    message = _decode(item)
    (media,) = message.media
    assert 0 < media.line_tokens < media.tokens
    assert orjson.loads(encode_message(replace(message, edited=True), {})) == item
    blank = item | {"output": orjson.loads(BLANK_SCREENSHOT)}
    assert orjson.loads(encode_message(replace(message, media=(media.remove(),), edited=True), {})) == blank
    assert _edit(item, "pruned") == blank
    wide = _decode(item | {"output": shot | {"image_url": "data:image/png;base64," + "A" * 100_000}})
    assert wide.tokens == message.tokens
