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

ABORTED = {"stdout": "aborted", "stderr": "", "outcome": {"type": "exit", "exit_code": 1}}
FAILED = {"status": "failed", "output": "aborted"}
CALLS: list[tuple[str, dict[str, Any], tuple[str, str], dict[str, Any]]] = [
    ("function_call", {"name": "ls", "arguments": '{"a": 1}'}, ("ls", '{"a": 1}'), {"output": "aborted"}),
    ("custom_tool_call", {"name": "run", "input": "x\ny"}, ("run", "x\ny"), {"output": "aborted"}),
    ("local_shell_call", {"action": {"command": []}}, ("local_shell", '{"command":[]}'), {"output": "aborted"}),
    ("shell_call", {"action": {"commands": ["ls"]}}, ("shell", '{"commands":["ls"]}'), {"output": [ABORTED]}),
    ("apply_patch_call", {"operation": {"path": "a"}}, ("apply_patch", '{"path":"a"}'), FAILED),
    ("computer_call", {"action": {}}, ("computer", "{}"), {"output": orjson.loads(BLANK_SCREENSHOT)}),
    ("mcp_approval_request", {"id": "1", "name": "rm"}, ("rm", ""), {"approve": False, "reason": "aborted"}),
]
ANSWERED = {"local_shell_call": "id", "mcp_approval_request": "approval_request_id"}
"""The members by which results name their calls, if not by `call_id`."""
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


@pytest.mark.parametrize(("kind", "members", "call", "missing"), CALLS)
def test_a_call_is_read_and_a_result_that_is_missing_fits_it(
    kind: str, members: dict[str, Any], call: tuple[str, str], missing: dict[str, Any]
) -> None:
    """It says that the call failed, and never approves it. A computer's result must be an image."""
    asked = _decode({"type": "reasoning"}, {"type": kind, "call_id": "1", **members})
    assert (asked.role, asked.tool_calls) == (Role.ASSISTANT, (ToolCall("1", *call),))
    made = Message(Role.TOOL, ("aborted",), answers="1", edited=True)
    written = orjson.loads(encode_message(made, find_call_types([asked, made])))
    result = "mcp_approval_response" if kind.startswith("mcp") else f"{kind}_output"
    assert written == {"type": result, ANSWERED.get(kind, "call_id"): "1", **missing}
    again = _decode(written)
    assert (again.role, again.answers) == (Role.TOOL, "1")


def test_calls_of_another_form_are_read() -> None:
    """The result of an unknown call is a function's."""
    odd = {"type": "function_call", "call_id": 7, "name": 7, "arguments": [7]}
    assert _decode(odd).tool_calls == (ToolCall("7", "", "[7]", b"7"),)
    assert _decode({"type": "computer_call", "call_id": "1", "actions": [7]}).tool_calls[0].arguments == "[7]"
    made = Message(Role.TOOL, ("aborted",), answers="c", edited=True)
    assert orjson.loads(encode_message(made, {}))["type"] == "function_call_output"


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


# What the model said: its messages, its reasoning, and the calls that its server has answered.

SPEECH = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Found it."}]}
CALL = {"type": "function_call", "call_id": "1", "name": "ls", "arguments": "{}"}


def _said_decode(*items: object) -> Message:
    unit = b",".join(map(orjson.dumps, items))
    (message,) = decode_unit(Counting(count_by_heuristic, make_known()), unit)
    assert message.raw == unit
    return message


def _sealed(chars: int, **more: object) -> dict[str, Any]:
    return {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "A" * chars, **more}


def test_a_unit_is_one_message() -> None:
    """Its texts and its calls, in their order. Of a program nothing is answered, dropped or shortened."""
    reasoning = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "thinking"}]}
    message = _said_decode(reasoning, SPEECH, CALL, CALL | {"call_id": "2"})
    assert (message.role, message.texts) == (Role.ASSISTANT, ("Found it.",))
    assert [call.id for call in message.tool_calls] == ["1", "2"]
    assert message.has_reasoning
    assert message.tokens == _said_decode(SPEECH, CALL, CALL).tokens + count_by_heuristic("thinking")
    program = {"type": "program", "call_id": "p", "code": "await ls()"}
    output = {"type": "function_call_output", "call_id": "1", "output": "a.txt"}
    message = _said_decode(program, CALL, output, {"type": "program_output", "call_id": "p", "result": "done"})
    assert message.role is Role.ASSISTANT
    assert message.texts == ("await ls()", "a.txt", "done")


@pytest.mark.parametrize(("chars", "tokens"), [(8000, 1337), (867, 0), (873, 1)])
def test_encrypted_reasoning_counts_by_its_length(chars: int, tokens: int) -> None:
    """Three quarters of its base64 text less 650 bytes, at four bytes a token; never less than nothing."""
    assert _said_decode(_sealed(chars), SPEECH).tokens == _said_decode(SPEECH).tokens + tokens
    assert not tokens or _said_decode(_sealed(chars)).tokens == tokens


@pytest.mark.parametrize(
    ("reasoning", "counted"),
    [
        ({"summary": [{"type": "summary_text", "text": "short"}]}, "short"),
        (
            {
                "content": [{"type": "reasoning_text", "text": "long"}],
                "summary": [{"type": "summary_text", "text": "a"}],
            },
            "long",
        ),
        ({"summary": [{"text": "short"}], "encrypted_content": "A"}, ""),
    ],
)
def test_texts_of_reasoning_count_if_it_is_not_encrypted(reasoning: dict[str, Any], counted: str) -> None:
    """A server renders the reasoning itself if it has it, else its summary."""
    message = _said_decode({"type": "reasoning", **reasoning}, SPEECH)
    assert message.tokens == _said_decode(SPEECH).tokens + (count_by_heuristic(counted) if counted else 0)
    assert message.texts == ("Found it.",)


@pytest.mark.parametrize("kind", ["compaction", "compaction_summary", "context_compaction"])
def test_a_compaction_keeps_what_is_before_it(kind: str) -> None:
    """It counts like encrypted reasoning, and what it holds is part of what the transcript says."""
    message = _said_decode({"type": kind, "encrypted_content": "A" * 8000})
    assert (message.keeps_before, message.tokens, message.texts) == (True, 1337, ())
    assert message.digest != _said_decode({"type": kind, "encrypted_content": "B" * 8000}).digest
    assert not _said_decode(SPEECH).keeps_before


@pytest.mark.parametrize(
    ("item", "texts"),
    [
        ({"type": "web_search_call", "action": {"query": "cats"}}, ('{"query":"cats"}',)),
        (
            {"type": "file_search_call", "queries": ["a", "b"], "results": [{"text": "c", "score": 1}, {"x": 1}]},
            ("a", "b", "c", '{"x":1}'),
        ),
        (
            {
                "type": "code_interpreter_call",
                "code": "1+1",
                "outputs": [{"type": "logs", "logs": "2"}, {"type": "image", "url": "data:image/png;base64,AAAA"}],
            },
            ("1+1", "2"),
        ),
        ({"type": "mcp_call", "name": "n", "arguments": "{}", "output": "o", "error": None}, ("n", "{}", "o")),
        ({"type": "image_generation_call", "result": "AAAA", "revised_prompt": "a cat"}, ("a cat",)),
        ({"type": "mcp_list_tools", "tools": [{"name": "t"}]}, ()),
    ],
)
def test_a_call_that_the_server_has_answered_needs_no_result(item: dict[str, Any], texts: tuple[str, ...]) -> None:
    message = _said_decode(item, SPEECH)
    assert (message.tool_calls, message.texts) == ((), (*texts, "Found it."))
    assert message.has_uncounted  # the server may render more than the item has
    assert message.tokens >= _said_decode(SPEECH).tokens + sum(map(count_by_heuristic, texts))


def test_images_count_by_their_size_and_schemas_by_their_text() -> None:
    """A base64 text is never counted as text."""
    plain = _said_decode(SPEECH).tokens
    short, long = (
        _said_decode({"type": "image_generation_call", "result": "A" * size}, SPEECH) for size in (9, 90_000)
    )
    assert short.tokens == long.tokens > plain
    image = {"type": "image", "url": "data:image/png;base64," + "A" * 90_000}
    run = _said_decode({"type": "code_interpreter_call", "code": None, "outputs": [image]}, SPEECH)
    assert plain < run.tokens < 10_000
    tools = [{"name": "t", "input_schema": {"type": "object"}}]
    listed = _said_decode({"type": "mcp_list_tools", "tools": tools}, SPEECH)
    assert listed.tokens == plain + count_by_heuristic(orjson.dumps(tools[0]).decode())


def test_an_unknown_item_counts_by_its_json_and_a_local_one_not_at_all() -> None:
    other = {"type": "new_thing", "x": "y" * 50}
    message = _said_decode(SPEECH, other)
    assert message.tokens == _said_decode(SPEECH).tokens + count_by_heuristic(orjson.dumps(other).decode())
    ghost = {"type": "ghost_snapshot", "ghost_commit": {"id": "f" * 40}}
    assert _said_decode(SPEECH, ghost).tokens == _said_decode(SPEECH).tokens
    assert message.digest != _said_decode(SPEECH).digest == _said_decode(SPEECH, ghost).digest
