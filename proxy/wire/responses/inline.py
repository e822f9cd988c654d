"""Which members of the client's request a summary request copies if it continues the conversation.

Law: each member that the upstream renders into the prompt, or by which it finds its prompt cache, is copied unchanged.
So the summary request reads the cache of the conversation. Members that only say how to respond are left out.

Sources: OpenAI's references of the Responses API and of prompt caching; the request models of vLLM and llama.cpp.
"""

import msgspec

from proxy.wire.json.decode import DECODE_ERRORS, decode_member, decode_members

_RENDERED = frozenset(
    {
        "instructions", "tools", "tool_choice", "parallel_tool_calls", "text", "reasoning", "truncation", "prompt",
        "include", "context_management", "max_tool_calls", "chat_template", "chat_template_kwargs",
    }
)  # fmt: skip
"""Members that are part of the prompt, or of hidden instructions in it, or change which items are."""
_CACHED = frozenset(
    {
        "model", "service_tier", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
        "prompt_cache_options", "store", "client_metadata", "cache_salt", "cache_prompt", "id_slot", "metadata",
    }
)  # fmt: skip
"""Members that name the model, the account and the prompt cache, or say what the upstream may store."""
_TAKEN_OVER = _RENDERED | _CACHED
_OF_SESSION = frozenset(
    {
        "instructions", "include", "service_tier", "user", "safety_identifier", "prompt_cache_key",
        "prompt_cache_retention", "store", "client_metadata", "cache_salt", "metadata",
    }
)  # fmt: skip
"""Members by which an upstream knows the account and the session, whatever is asked. ChatGPT's own backend accepts a
login only with `instructions` and without `store`."""
_FREE_CHOICES = (None, "auto", "none")
_HELD = ("previous_response_id", "conversation")


def write_members(body: bytes, *, is_apart: bool = False) -> dict[str, msgspec.Raw] | None:
    """The members of a request's body that the body of a summary request begins with; its items are not among them.

    is_apart: the summary request does not continue the conversation; only the session is the same.

    None if the request prescribes the form of the response, which a summary would not have, if it continues what the
    upstream holds, or if the members cannot be decoded.
    """
    try:
        members = decode_members(body)
        if is_apart:
            return {name: value for name, value in members.items() if name in _OF_SESSION}
        if any(decode_member(members.get(name)) for name in _HELD) or _prescribes_form(members):
            return None
        taken = {name: value for name, value in members.items() if name in _TAKEN_OVER}
        return {name: value for name, value in taken.items() if name != "tool_choice" or _is_free(value)}
    except DECODE_ERRORS:
        return None


def _prescribes_form(members: dict[str, msgspec.Raw]) -> bool:
    text = decode_member(members.get("text"))
    form = text.get("format") if isinstance(text, dict) else None
    return form is not None and not (isinstance(form, dict) and form.get("type") == "text")


def _is_free(value: msgspec.Raw) -> bool:
    """Whether a choice leaves it to the model whether it calls a tool; it should write a summary instead."""
    choice = decode_member(value)
    if isinstance(choice, dict):
        choice = choice.get("mode") or choice
    return choice in _FREE_CHOICES
