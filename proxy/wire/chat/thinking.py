"""An assistant's thinking in chat requests: how much of it a request allows, and what of it no longer fits.

A Claude model behind a gateway binds its thinking to the messages before it. Gateways for chat completions have no
setting by which a server may drop such thinking (messages/binding.py). Leaving out all of it is no change of what comes
after it.

Law: thinking is left out only in a session in which something before an answer was changed, and only if it is sealed.
All other bytes stay.

Source: Anthropic's page on preserved thinking; LiteLLM's and OpenRouter's on thinking.
"""

from typing import Any

import msgspec

from trimtab.proxy.wire.codec import Adapted, Request
from trimtab.proxy.wire.json.decode import decode_member, read_members
from trimtab.proxy.wire.routing import binds_thinking
from trimtab.proxy.wire.transcript.body import find_elements
from trimtab.rules.conversation import Conversation, Decision

_SEALED = ("thinking_blocks", "reasoning_details")


def leave_out_thinking(request: Request, before: Conversation, _: Conversation, pieces: tuple[bytes, ...]) -> Adapted:
    """The body without thinking, if its model binds that and the client's transcript `before` has any.

    Raises UndecodableError, or one of DECODE_ERRORS.
    """
    if not is_bound(request, before):
        return Adapted(pieces)
    body, parts, stop = b"".join(pieces), list[bytes](), 0
    raws = request.codec.read(body).raws
    for span, raw in zip(find_elements(request.codec.form, body, raws).elements, raws, strict=True):
        parts += body[stop : span.start], drop_thinking(raw)
        stop = span.stop
    decision = Decision("thinking", "thinking that no longer fits is left out", 0, 0, 0, 0)
    return Adapted((b"".join([*parts, body[stop:]]),), decisions=(decision,))


def is_bound(request: Request, transcript: Conversation) -> bool:
    """Whether a request's model binds its thinking to what is before it, and there is any."""
    return binds_thinking(request.model) and any(
        name.encode() in message.raw for message in transcript.messages if message.has_reasoning for name in _SEALED
    )


def drop_thinking(raw: bytes) -> bytes:
    """A message without sealed thinking; the same bytes if it has none. Raises one of DECODE_ERRORS."""
    if not any(name.encode() in raw for name in _SEALED):
        return raw
    members = read_members(raw)
    left = {name: value for name, value in members.items() if name not in _SEALED}
    is_same = len(left) == len(members) or bytes(members.get("role", b"")) != b'"assistant"'
    return raw if is_same else msgspec.json.encode(left)


_BUDGETS = frozenset({"budget_tokens", "thinking_budget"})
_THINKING = frozenset({"thinking", "reasoning", "thinking_budget", "extra_body"})


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
