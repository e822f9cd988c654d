"""Which members of the client's request a summary request copies if it continues the conversation.

Law: each member that the upstream renders into the prompt, or by which it finds its prompt cache, is copied unchanged.
So the summary request reads the cache of the conversation. Members that only say how to respond are left out.

Source: Anthropic's API reference, and its page on what invalidates the prompt cache.
"""

from typing import Any

import msgspec

from proxy.wire.codec import Request
from proxy.wire.json.decode import DECODE_ERRORS, decode_member
from proxy.wire.transcript.body import read_outside
from rules.tokens.tool_schemas import as_schema

_TAKEN_OVER = frozenset(
    {
        "model", "system", "tools", "tool_choice", "thinking", "output_config", "mcp_servers", "container",
        "context_management", "cache_control", "metadata", "service_tier", "speed", "inference_geo",
        "anthropic_version", "anthropic_beta", "user_profile_id", "billing_policy",
    }
)  # fmt: skip
"""Members that are part of the prompt or of hidden instructions in it, or name the account and the cache."""
_OF_SESSION = frozenset(
    {
        "system", "metadata", "service_tier", "speed", "inference_geo", "anthropic_version", "anthropic_beta",
        "user_profile_id", "billing_policy",
    }
)  # fmt: skip
"""Members by which an upstream knows the account and the session, whatever is asked. Anthropic accepts the login of
Claude Code only with its system prompt."""
_FREE_CHOICES = (None, "auto", "none")
_THINKS = ("enabled", "adaptive")


def write_members(request: Request, *, is_apart: bool = False) -> dict[str, msgspec.Raw] | None:
    """The members of a request's body that the body of a summary request begins with; its messages are not among them.

    is_apart: the summary request does not continue the conversation; only the session is the same.

    None if the request prescribes the form of the response or asks the server to summarise, or if the members cannot be
    decoded.
    """
    try:
        everything = read_outside(request.body, request.beginning)
        if is_apart:
            return {name: value for name, value in everything.items() if name in _OF_SESSION}
        members = {name: value for name, value in everything.items() if name in _TAKEN_OVER}
        if _prescribes_form(everything):
            return None
        choice = as_schema(decode_member(members.get("tool_choice"))).get("type")
    except DECODE_ERRORS:
        return None
    if choice not in _FREE_CHOICES:  # it forces the model to call a tool
        del members["tool_choice"]
    return members


def _prescribes_form(members: dict[str, msgspec.Raw]) -> bool:
    output, form, compaction = (
        decode_member(members.get(name)) for name in ("output_config", "output_format", "compaction")
    )
    return as_schema(output).get("format") is not None or form is not None or compaction is not None


def read_thinking(members: dict[str, msgspec.Raw]) -> int | None:
    """The tokens that a request allows for thinking; `max_tokens` must be larger. 0 if it gives no number.

    None if the request does not turn thinking on. With thinking on, no temperature is accepted.
    """
    thinking: dict[str, Any] = as_schema(decode_member(members.get("thinking")))
    budget = thinking.get("budget_tokens")
    if thinking.get("type") not in _THINKS:
        return None
    return budget if type(budget) is int and budget > 0 else 0
