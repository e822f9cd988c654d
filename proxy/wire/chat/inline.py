"""Which members of the client's request a summary request copies if it continues the conversation.

Law: each member that the upstream renders into the prompt, or by which it finds its prompt cache, is copied unchanged.
So the summary request reads the cache of the conversation. Members that only say how to respond are left out.

Sources: OpenAI's, Anthropic's, OpenRouter's, Fireworks', Mistral's and DashScope's references of chat completions and
prompt caching; the request models of vLLM, SGLang and llama.cpp.
"""

from typing import Any

import msgspec

from proxy.wire.json.decode import DECODE_ERRORS, decode_member

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

`context_management` is one of them: the upstream edits the context before it renders it, so its cache holds the edited
text.
"""
_CACHED = frozenset(
    {
        "model", "models", "route", "provider", "session_id", "service_tier", "user", "safety_identifier",
        "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options", "prompt_cache_isolation_key",
        "cache_control", "cache_prompt", "cache_salt", "id_slot", "lora", "lora_path", "store",
        "cached_content", "data_parallel_rank", "metadata",
    }
)  # fmt: skip
"""Members that name the model, the account and the prompt cache, or say what the upstream may store."""
_TAKEN_OVER = _RENDERED | _CACHED
_OF_SESSION = frozenset(
    {
        "route", "provider", "session_id", "service_tier", "user", "safety_identifier", "prompt_cache_key",
        "prompt_cache_retention", "prompt_cache_isolation_key", "cache_salt", "store", "metadata", "transforms",
    }
)  # fmt: skip
"""Members by which an upstream knows the account and the session, whatever is asked."""
_FREE_CHOICES = (None, "auto", "none")
_BUDGETS = frozenset({"budget_tokens", "thinking_budget"})
_THINKING = frozenset({"thinking", "reasoning", "thinking_budget", "extra_body"})

_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def write_members(body: bytes, *, is_apart: bool = False) -> dict[str, msgspec.Raw] | None:
    """The members of a request's body that the body of a summary request begins with; its messages are not among them.

    is_apart: the summary request does not continue the conversation; only the session is the same.

    None if the request prescribes the form of the response, which a summary would not have, or if the members cannot
    be decoded.
    """
    try:
        taken = _OF_SESSION if is_apart else _TAKEN_OVER
        members = {name: value for name, value in _decode_members(body).items() if name in taken}
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
    """Whether a member forces the model to call a tool; it should write a summary instead."""
    if name not in {"tool_choice", "function_call"}:
        return False
    choice = decode_member(value)
    if isinstance(choice, dict):
        allowed = choice.get("allowed_tools")
        choice = allowed if isinstance(allowed, dict) else choice
        choice = choice.get("mode") or choice.get("type") or choice
    return choice not in _FREE_CHOICES


def read_thinking(members: dict[str, msgspec.Raw]) -> int | None:
    """The tokens that a request allows for thinking; `max_tokens` must be larger. 0 if it gives no number.

    None if the request does not turn thinking on itself. With thinking on, Anthropic accepts no temperature.
    """
    found = [_find_thinking({name: decode_member(members[name])}) for name in _THINKING & members.keys()]
    return max((tokens for tokens in found if tokens is not None), default=None)


def _find_thinking(value: dict[str, Any], *, is_reasoning: bool = False) -> int | None:
    """As `read_thinking`, for one object and those in it. `max_tokens` is a budget only in OpenRouter's `reasoning`."""
    found = [0] if value.get("type") in ("enabled", "adaptive") else []
    for name, member in value.items():
        if isinstance(member, dict):
            tokens = _find_thinking(member, is_reasoning=name == "reasoning")
            found += [] if tokens is None else [tokens]
        elif (name in _BUDGETS or (is_reasoning and name == "max_tokens")) and type(member) is int and member > 0:
            found.append(member)
    return max(found, default=None)
