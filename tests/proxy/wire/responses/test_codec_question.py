"""Asking for a summary."""

from typing import Any

import orjson
import pytest

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.answering import Question
from trimtab.proxy.wire.codec import Counting
from trimtab.proxy.wire.responses.codec import RESPONSES

QUESTION = Question("gpt-5", 500, 0.2)
PROMPT = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Summarise."}]}
ITEMS = [
    {"role": "user", "content": "a"},
    {"type": "reasoning", "summary": [], "encrypted_content": "AAAA"},
    {"type": "function_call", "call_id": "1", "name": "ls", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "1", "output": "x"},
]


def _ask_behind(question: Question = QUESTION, *, is_apart: bool = False, **members: object) -> Any:
    body = orjson.dumps({"model": "m", "input": ITEMS, **members})
    request = RESPONSES.read(body)
    prefix = RESPONSES.decode(request, Counting(count_by_heuristic, make_known()))
    asked = RESPONSES.ask_behind(request, prefix, question, "Summarise.", is_apart=is_apart)
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


def test_what_is_refused_is_not_sent() -> None:
    """ChatGPT's backend takes neither a limit nor a temperature, and only streams."""
    refused = frozenset({"temperature", "max_output_tokens", "stream", "store"})
    asked = orjson.loads(RESPONSES.ask(Question("m", 5, 0.2, refused=refused), "x"))
    assert asked.keys() == {"model", "input", "stream"}
    assert asked["stream"] is True


def test_a_question_of_its_own_is_of_the_clients_session() -> None:
    """It has the client's instructions, account and session, but neither its tools nor how it wants its answer."""
    own = {"instructions": "Be brief.", "include": ["x"], "prompt_cache_key": "k", "client_metadata": {"a": "b"}}
    asked = _ask_behind(
        Question("other", 5), is_apart=True, **own, tools=[], tool_choice="required", parallel_tool_calls=True,
        text={"format": {"type": "json_schema"}}, reasoning={"effort": "low"}, stream=True, top_p=1,
    )  # fmt: skip
    assert {name: asked.pop(name) for name in own} == own
    assert asked.pop("input")[-1] == PROMPT
    assert asked == {"model": "other", "store": False, "max_output_tokens": 5, "stream": False}
    assert _ask_behind(is_apart=True, store=True)["store"] is True


KEPT = {
    "model": "m",
    "instructions": "Be brief.",
    "tools": [{"type": "function", "name": "ls"}],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "text": {"verbosity": "low", "format": {"type": "text"}},
    "reasoning": {"effort": "low"},
    "truncation": "disabled",
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "k",
    "prompt_cache_options": {"mode": "explicit"},
    "service_tier": "flex",
    "store": False,
    "user": "u",
    "client_metadata": {"a": "b"},
    "metadata": {"a": "b"},
}
DROPPED = {
    "input": [],
    "stream": True,
    "stream_options": {"include_obfuscation": False},
    "background": True,
    "max_output_tokens": 9,
    "temperature": 1,
    "top_p": 0.5,
    "previous_response_id": None,
    "unknown": 1,
}


def _write(members: dict[str, Any]) -> dict[str, Any] | None:
    written = RESPONSES.copy_members(RESPONSES.read(orjson.dumps(members)))
    return None if written is None else {name: orjson.loads(bytes(value)) for name, value in written.items()}


def test_what_the_upstream_renders_or_caches_is_taken_over() -> None:
    """What says only how to respond is not."""
    assert _write(KEPT | DROPPED) == KEPT


@pytest.mark.parametrize(
    ("choice", "is_kept"),
    [
        ("auto", True),
        ("none", True),
        (None, True),
        ("required", False),
        ({"type": "function", "name": "ls"}, False),
        ({"type": "allowed_tools", "mode": "auto", "tools": []}, True),
        ({"type": "allowed_tools", "mode": "required", "tools": []}, False),
        (["x"], False),
        ({"mode": ["x"]}, False),
    ],
)
def test_no_tool_is_forced(choice: object, *, is_kept: bool) -> None:
    """The model should write a summary instead."""
    written = _write({"tool_choice": choice})
    assert written is not None
    assert ("tool_choice" in written) is is_kept


@pytest.mark.parametrize(
    ("text", "is_free"),
    [
        (None, True),
        ({}, True),
        ({"format": None}, True),
        ({"format": {"type": "text"}}, True),
        ({"format": {"type": "json_object"}}, False),
        ({"format": 7}, False),
        (7, True),
    ],
)
def test_a_prescribed_form_forbids_a_summary(text: object, *, is_free: bool) -> None:
    assert (_write({"text": text}) is not None) is is_free
