"""What a question behind a conversation takes over from the client's request."""

from typing import Any

import msgspec
import orjson
import pytest

from proxy.codecs.inline import write_members

RENDERED = {
    "tools": [{"type": "function", "function": {"name": "ls"}}],
    "functions": [{"name": "ls"}],
    "parallel_tool_calls": False,
    "tool_choice": "auto",
    "function_call": "none",
    "response_format": {"type": "text"},
    "documents": [{"text": "d"}],
    "reasoning": {"effort": "high"},
    "reasoning_effort": "high",
    "verbosity": "low",
    "output_config": {"effort": "high"},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "thinking_budget": 100,
    "enable_thinking": True,
    "prompt_mode": "reasoning",
    "safe_prompt": True,
    "web_search_options": {},
    "plugins": [{"id": "file-parser"}],
    "chat_template": "{{ messages }}",
    "chat_template_kwargs": {"enable_thinking": False},
    "add_special_tokens": True,
    "mm_processor_kwargs": {"num_crops": 4},
    "extra_body": {"google": {"cached_content": "c"}},
}
CACHED = {
    "model": "m",
    "models": ["m", "n"],
    "provider": {"order": ["p"]},
    "session_id": "s",
    "service_tier": "flex",
    "user": "u",
    "safety_identifier": "u",
    "prompt_cache_key": "k",
    "prompt_cache_retention": "24h",
    "prompt_cache_options": {"mode": "explicit", "ttl": "30m"},
    "prompt_cache_isolation_key": "i",
    "cache_control": {"type": "ephemeral"},
    "cache_prompt": True,
    "cache_salt": "s",
    "id_slot": 2,
    "lora": [{"id": 0, "scale": 0.5}],
    "store": False,
}
SAMPLED = {
    "messages": [],
    "stream": True,
    "stream_options": {"include_usage": True},
    "n": 2,
    "stop": ["x"],
    "seed": 1,
    "temperature": 0.9,
    "top_p": 0.5,
    "max_tokens": 5,
    "max_completion_tokens": 5,
    "logprobs": True,
    "logit_bias": {"1": 2},
    "prediction": {"type": "content", "content": "x"},
    "modalities": ["text", "audio"],
    "audio": {"voice": "v"},
    "guided_choice": ["a"],
    "continue_final_message": True,
    "metadata": {"a": "b"},
    "unheard_of": 1,
}


def members(body: dict[str, Any]) -> dict[str, Any] | None:
    """What is taken over, decoded."""
    kept = write_members(orjson.dumps(body))
    return None if kept is None else {name: msgspec.json.decode(value) for name, value in kept.items()}


@pytest.mark.parametrize("name", RENDERED | CACHED)
def test_what_is_rendered_or_steers_the_cache_goes_along(name: str) -> None:
    """An upstream that renders another prompt, or looks in another cache, reads everything at the full price."""
    value = (RENDERED | CACHED)[name]
    assert members({name: value}) == {name: value}


def test_what_says_how_to_answer_stays_behind() -> None:
    """Neither sampling nor the answer's form, and nothing that nobody knows."""
    assert members(SAMPLED | RENDERED | CACHED) == RENDERED | CACHED


@pytest.mark.parametrize(
    "choice",
    [
        {"tool_choice": "required"},
        {"tool_choice": {"type": "function", "function": {"name": "ls"}}},
        {"function_call": {"name": "ls"}},
    ],
)
def test_no_call_is_forced(choice: dict[str, Any]) -> None:
    """The model is to write a note; a choice that leaves it free to is kept."""
    assert members(choice | {"model": "m"}) == {"model": "m"}


@pytest.mark.parametrize(
    "form",
    [
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}},
        {"response_format": 5},
        {"output_config": {"effort": "high", "format": {"type": "json_schema"}}},
    ],
)
def test_an_answer_of_a_prescribed_form_is_no_note(form: dict[str, Any]) -> None:
    """Without the form the prompt would be another one; with it no note can be written."""
    assert members(form | {"model": "m"}) is None


@pytest.mark.parametrize("nothing", [{"response_format": None}, {"output_config": None}, {"tool_choice": None}])
def test_a_null_prescribes_nothing(nothing: dict[str, Any]) -> None:
    """It stands where nothing is wanted."""
    assert members(nothing | {"model": "m"}) is not None


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff"])
def test_a_body_that_cannot_be_read_asks_nothing(body: bytes) -> None:
    """No exception: the transcript is written out."""
    assert write_members(body) is None
