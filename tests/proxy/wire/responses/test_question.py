"""Asking for a summary."""

from typing import Any

import orjson
import pytest

from proxy.compaction.caches import make_known
from proxy.compaction.tokenizers.exact import count_by_heuristic
from proxy.wire.answers.usage import Usage
from proxy.wire.codec import Completion, Counting, Question, UndecodableError
from proxy.wire.responses.codec import RESPONSES

QUESTION = Question("gpt-5", 500, 0.2)
PROMPT = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Summarise."}]}
ITEMS = [
    {"role": "user", "content": "a"},
    {"type": "reasoning", "summary": [], "encrypted_content": "AAAA"},
    {"type": "function_call", "call_id": "1", "name": "ls", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "1", "output": "x"},
]


def _ask_behind(question: Question = QUESTION, **members: object) -> Any:
    body = orjson.dumps({"model": "m", "input": ITEMS, **members})
    request = RESPONSES.read(body)
    prefix = RESPONSES.decode(request, Counting(count_by_heuristic, make_known()))
    asked = RESPONSES.ask_behind(request, prefix, question, "Summarise.")
    return None if asked is None else orjson.loads(asked)


def test_a_question_alone_is_kept_by_nobody() -> None:
    assert orjson.loads(RESPONSES.ask(QUESTION, "Summarise.")) == {
        "model": "gpt-5",
        "input": [PROMPT],
        "store": False,
        "temperature": 0.2,
        "max_output_tokens": 500,
        "stream": False,
    }
    assert "temperature" not in orjson.loads(RESPONSES.ask(Question("m", 5), "x"))


def test_a_question_behind_a_transcript_follows_its_items() -> None:
    asked = _ask_behind(instructions="Be brief.", stream=True, max_output_tokens=9)
    assert asked == {
        "model": "m",
        "input": [*ITEMS, PROMPT],
        "instructions": "Be brief.",
        "temperature": 0.2,
        "max_output_tokens": 500,
        "stream": False,
    }


def test_a_model_that_reasons_gets_no_temperature() -> None:
    """OpenAI's reasoning models refuse it."""
    assert "temperature" not in _ask_behind(reasoning={"effort": "low"})


@pytest.mark.parametrize(
    "members",
    [
        {"previous_response_id": "resp_1"},
        {"conversation": {"id": "conv_1"}},
        {"text": {"format": {"type": "json_schema", "name": "x", "schema": {}}}},
        {"input": [{"id": "msg_1"}]},
    ],
)
def test_no_question_follows_what_it_cannot_continue(members: dict[str, Any]) -> None:
    assert _ask_behind(**members) is None


def test_a_text_becomes_an_item() -> None:
    assert _ask_behind(input="a")["input"] == [ITEMS[0], PROMPT]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (
            {
                "output": [
                    {"type": "reasoning", "summary": []},
                    {"type": "message", "content": [{"type": "output_text", "text": "a"}, {"text": "b"}]},
                    {"type": "message", "content": [{"type": "refusal", "refusal": "c"}]},
                ],
                "usage": {"input_tokens": 7, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 5}},
            },
            Completion("ab", Usage(7, 3, 5)),
        ),
        ({"output": [], "usage": 7}, Completion("", Usage())),
        ({"output": [{"type": "custom_tool_call"}]}, Completion("", Usage(), calls_tool=True)),
        ({"output": [{"type": "web_search_call"}]}, Completion("", Usage())),
        ({"output": [], "incomplete_details": {"reason": "max_output_tokens"}}, Completion("", Usage(), was_cut=True)),
        (
            {"output": [], "incomplete_details": {"reason": "content_filter"}},
            Completion("", Usage(), was_filtered=True),
        ),
    ],
)
def test_a_completion_is_read(answer: dict[str, Any], expected: Completion) -> None:
    assert RESPONSES.read_completion(orjson.dumps(answer)) == expected


@pytest.mark.parametrize("answer", [b"", b"{}", b'{"output":7}', b"[]"])
def test_anything_else_is_no_completion(answer: bytes) -> None:
    with pytest.raises(UndecodableError):
        RESPONSES.read_completion(answer)


@pytest.mark.parametrize(
    ("answer", "parameter"),
    [
        ({"error": {"param": "temperature"}}, "temperature"),
        ({"error": {"param": "max_output_tokens"}}, None),
        ({"error": {}}, None),
        ({"error": "x"}, None),
        ([], None),
    ],
)
def test_a_refused_parameter_is_named(answer: object, parameter: str | None) -> None:
    assert RESPONSES.read_refused_parameter(orjson.dumps(answer)) == parameter
