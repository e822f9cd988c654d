"""Which members of the client's request a summary request copies if it continues the conversation."""

from typing import Any

import msgspec
import orjson
import pytest

from trimtab.proxy.wire.chat.codec import CHAT

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
    "preset": "p",
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "search_parameters": {"mode": "auto"},
    "enable_search": True,
    "search_options": {"forced_search": False},
    "preserve_thinking": True,
    "vl_high_resolution_images": True,
    "chat_template_args": {"enable_thinking": False},
    "extra_body": {"google": {"cached_content": "c"}},
}
CACHED = {
    "metadata": {"a": "b"},
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
    "cached_content": "c",
    "data_parallel_rank": 1,
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
    "unheard_of": 1,
}


def members(body: dict[str, Any]) -> dict[str, Any] | None:
    """What is taken over, decoded."""
    kept = CHAT.copy_members(CHAT.read(orjson.dumps({"messages": [], **body})))
    return None if kept is None else {name: msgspec.json.decode(value) for name, value in kept.items()}


@pytest.mark.parametrize("name", RENDERED | CACHED)
def test_what_is_rendered_or_steers_the_cache_goes_along(name: str) -> None:
    """If the prompt or the cache were another one, the upstream would charge the full price."""
    value = (RENDERED | CACHED)[name]
    assert members({name: value}) == {name: value}


def test_what_says_how_to_answer_stays_behind() -> None:
    """Sampling parameters, the form of the response and unknown members are left out."""
    assert members(SAMPLED | RENDERED | CACHED) == RENDERED | CACHED


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "auto", "disable_parallel_tool_use": True},
        {"type": "none"},
        {"type": "allowed_tools", "mode": "auto", "tools": []},
        {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}},
    ],
)
def test_an_object_that_leaves_the_model_free_is_kept(choice: dict[str, Any]) -> None:
    """It does not force a call, and may be part of the prompt."""
    assert members({"tool_choice": choice}) == {"tool_choice": choice}


@pytest.mark.parametrize(
    "choice",
    [
        {"tool_choice": "required"},
        {"tool_choice": {"type": "any"}},
        {"tool_choice": {"type": "allowed_tools", "mode": "required"}},
        {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required"}}},
        {"tool_choice": {"type": "function", "function": {"name": "ls"}}},
        {"function_call": {"name": "ls"}},
    ],
)
def test_no_call_is_forced(choice: dict[str, Any]) -> None:
    """The model should write a summary. A choice that allows that is kept."""
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
    """Without the form the prompt would differ; with it no summary can be written."""
    assert members(form | {"model": "m"}) is None


@pytest.mark.parametrize("nothing", [{"response_format": None}, {"output_config": None}, {"tool_choice": None}])
def test_a_null_prescribes_nothing(nothing: dict[str, Any]) -> None:
    """It means that nothing is requested."""
    assert members(nothing | {"model": "m"}) is not None
