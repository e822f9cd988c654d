"""What the model said: its messages, its reasoning, and the calls that its server has answered."""

from typing import Any

import orjson
import pytest

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.codec import Counting
from trimtab.proxy.wire.responses.codec import decode_unit
from trimtab.rules.conversation import Message, Role

SPEECH = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Found it."}]}
CALL = {"type": "function_call", "call_id": "1", "name": "ls", "arguments": "{}"}


def _decode(*items: object) -> Message:
    unit = b",".join(map(orjson.dumps, items))
    (message,) = decode_unit(Counting(count_by_heuristic, make_known()), unit)
    assert message.raw == unit
    return message


def _sealed(chars: int, **more: object) -> dict[str, Any]:
    return {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "A" * chars, **more}


def test_a_unit_is_one_message() -> None:
    """Its texts and its calls, in their order. Reasoning is no text that anybody said."""
    reasoning = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "thinking"}]}
    message = _decode(reasoning, SPEECH, CALL, CALL | {"call_id": "2"})
    assert (message.role, message.texts) == (Role.ASSISTANT, ("Found it.",))
    assert [call.id for call in message.tool_calls] == ["1", "2"]
    assert message.has_reasoning
    assert message.tokens == _decode(SPEECH, CALL, CALL).tokens + count_by_heuristic("thinking")


@pytest.mark.parametrize(("chars", "tokens"), [(8000, 1337), (867, 0), (873, 1)])
def test_encrypted_reasoning_counts_by_its_length(chars: int, tokens: int) -> None:
    """Three quarters of its base64 text less 650 bytes, at four bytes a token; never less than nothing."""
    assert _decode(_sealed(chars), SPEECH).tokens == _decode(SPEECH).tokens + tokens
    assert not tokens or _decode(_sealed(chars)).tokens == tokens


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
    message = _decode({"type": "reasoning", **reasoning}, SPEECH)
    assert message.tokens == _decode(SPEECH).tokens + (count_by_heuristic(counted) if counted else 0)
    assert message.texts == ("Found it.",)


@pytest.mark.parametrize("kind", ["compaction", "compaction_summary", "context_compaction"])
def test_a_compaction_keeps_what_is_before_it(kind: str) -> None:
    """It counts like encrypted reasoning, and what it holds is part of what the transcript says."""
    message = _decode({"type": kind, "encrypted_content": "A" * 8000})
    assert (message.keeps_before, message.tokens, message.texts) == (True, 1337, ())
    assert message.digest != _decode({"type": kind, "encrypted_content": "B" * 8000}).digest
    assert not _decode(SPEECH).keeps_before


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
    message = _decode(item, SPEECH)
    assert (message.tool_calls, message.texts) == ((), (*texts, "Found it."))
    assert message.has_uncounted  # the server may render more than the item has
    assert message.tokens >= _decode(SPEECH).tokens + sum(map(count_by_heuristic, texts))


def test_images_count_by_their_size_and_schemas_by_their_text() -> None:
    """A base64 text is never counted as text."""
    plain = _decode(SPEECH).tokens
    short, long = (_decode({"type": "image_generation_call", "result": "A" * size}, SPEECH) for size in (9, 90_000))
    assert short.tokens == long.tokens > plain
    image = {"type": "image", "url": "data:image/png;base64," + "A" * 90_000}
    run = _decode({"type": "code_interpreter_call", "code": None, "outputs": [image]}, SPEECH)
    assert plain < run.tokens < 10_000
    tools = [{"name": "t", "input_schema": {"type": "object"}}]
    listed = _decode({"type": "mcp_list_tools", "tools": tools}, SPEECH)
    assert listed.tokens == plain + count_by_heuristic(orjson.dumps(tools[0]).decode())


def test_what_a_program_does_is_one_message() -> None:
    """Nothing in it is answered, dropped or shortened."""
    program = {"type": "program", "call_id": "p", "code": "await ls()"}
    output = {"type": "function_call_output", "call_id": "1", "output": "a.txt"}
    message = _decode(program, CALL, output, {"type": "program_output", "call_id": "p", "result": "done"})
    assert message.role is Role.ASSISTANT
    assert message.texts == ("await ls()", "a.txt", "done")


def test_an_unknown_item_counts_by_its_json_and_a_local_one_not_at_all() -> None:
    other = {"type": "new_thing", "x": "y" * 50}
    message = _decode(SPEECH, other)
    assert message.tokens == _decode(SPEECH).tokens + count_by_heuristic(orjson.dumps(other).decode())
    ghost = {"type": "ghost_snapshot", "ghost_commit": {"id": "f" * 40}}
    assert _decode(SPEECH, ghost).tokens == _decode(SPEECH).tokens
    assert message.digest != _decode(SPEECH).digest == _decode(SPEECH, ghost).digest
