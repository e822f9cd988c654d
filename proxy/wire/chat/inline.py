"""What a question behind a conversation takes over from the client's request.

Law: whatever the upstream renders into the prompt, or finds its cache by, goes along unchanged, so that the question
reads the cache of the conversation before it. What only says how to answer stays behind.

Sources: OpenAI's, Anthropic's, OpenRouter's, Fireworks', Mistral's and DashScope's references of chat completions and
prompt caching; the request models of vLLM, SGLang and llama.cpp.
"""

from typing import Any

import msgspec

from proxy.wire.json.repair import DECODE_ERRORS, decode_member

_RENDERED = frozenset(
    {
        "tools", "functions", "tool_choice", "function_call", "parallel_tool_calls", "response_format", "documents",
        "reasoning", "reasoning_effort", "verbosity", "output_config", "thinking", "thinking_budget", "enable_thinking",
        "prompt_mode", "safe_prompt", "web_search_options", "plugins", "transforms", "chat_template",
        "chat_template_kwargs", "add_special_tokens", "mm_processor_kwargs", "media_io_kwargs", "extra_body",
        "preset", "context_management", "search_parameters", "enable_search", "search_options", "preserve_thinking",
        "vl_high_resolution_images", "chat_template_args",
    }
)  # fmt: skip
"""Members that are part of the prompt, or of hidden instructions in it.

`context_management` is one of them: the upstream edits the context before it renders it, and its cache holds what it
has edited.
"""
_CACHED = frozenset(
    {
        "model", "models", "route", "provider", "session_id", "service_tier", "user", "safety_identifier",
        "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options", "prompt_cache_isolation_key",
        "cache_control", "cache_prompt", "cache_salt", "id_slot", "lora", "lora_path", "store",
        "cached_content", "data_parallel_rank",
    }
)  # fmt: skip
"""Members that say who reads it, on whose account, in which cache, and what may be kept of it."""
_TAKEN_OVER = _RENDERED | _CACHED
_FREE_CHOICES = (None, "auto", "none")
_BUDGETS = frozenset({"budget_tokens", "thinking_budget"})
_THINKING = frozenset({"thinking", "reasoning", "thinking_budget", "extra_body"})

_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def write_members(body: bytes) -> dict[str, msgspec.Raw] | None:
    """The members of a request's body that the question's body begins with; all but its messages.

    None if the answer has a prescribed form, which no note has, or if the members cannot be told apart.
    """
    try:
        members = {name: value for name, value in _decode_members(body).items() if name in _TAKEN_OVER}
        if _prescribes_form(members):
            return None
        return {name: value for name, value in members.items() if not _forces_call(name, value)}
    except DECODE_ERRORS:
        return None


def _prescribes_form(members: dict[str, msgspec.Raw]) -> bool:
    form, output = (decode_member(members.get(name)) for name in ("response_format", "output_config"))
    is_free = form is None or (isinstance(form, dict) and form.get("type") == "text")
    return not is_free or (isinstance(output, dict) and output.get("format") is not None)


def _forces_call(name: str, value: msgspec.Raw) -> bool:
    """Whether a member has the model call a tool, where it is to write a note."""
    if name not in {"tool_choice", "function_call"}:
        return False
    choice = decode_member(value)
    if isinstance(choice, dict):
        allowed = choice.get("allowed_tools")
        choice = allowed if isinstance(allowed, dict) else choice
        choice = choice.get("mode") or choice.get("type") or choice
    return choice not in _FREE_CHOICES


def read_thinking(members: dict[str, msgspec.Raw]) -> int | None:
    """The tokens that a request allows for thinking, which its `max_tokens` must exceed; 0 if it names no number.

    None if it does not turn thinking on by itself. Anthropic takes no temperature with it.
    """
    found = [_find_thinking({name: decode_member(members[name])}) for name in _THINKING & members.keys()]
    return max((tokens for tokens in found if tokens is not None), default=None)


def _find_thinking(value: dict[str, Any], *, is_reasoning: bool = False) -> int | None:
    """The same of one object and those in it; `max_tokens` is a budget only in `reasoning`, as OpenRouter has it."""
    found = [0] if value.get("type") in ("enabled", "adaptive") else []
    for name, member in value.items():
        if isinstance(member, dict):
            tokens = _find_thinking(member, is_reasoning=name == "reasoning")
            found += [] if tokens is None else [tokens]
        elif (name in _BUDGETS or (is_reasoning and name == "max_tokens")) and type(member) is int and member > 0:
            found.append(member)
    return max(found, default=None)
