"""Leaves out thinking that a Claude model behind a gateway has bound to other messages than are sent now.

Gateways for chat completions have no setting by which a server may drop such thinking (messages/binding.py). Leaving
out all of it is no change of what comes after it.

Law: only a request of a session in which something before an answer was changed is touched, and of it only members
with sealed thinking.

Source: Anthropic's page on preserved thinking; LiteLLM's and OpenRouter's on thinking.
"""

import msgspec

from proxy.wire.chat.request import FORM, read_request
from proxy.wire.codec import Adapted, Request
from proxy.wire.json.decode import read_members
from proxy.wire.routing import binds_thinking
from proxy.wire.transcript.body import find_elements
from rules.conversation import Conversation, Decision

_SEALED = ("thinking_blocks", "reasoning_details")


def leave_out_thinking(request: Request, before: Conversation, _: Conversation, pieces: tuple[bytes, ...]) -> Adapted:
    """The body without thinking, if its model binds that and the client's transcript `before` has any.

    Raises UndecodableError, or one of DECODE_ERRORS.
    """
    if not is_bound(request, before):
        return Adapted(pieces)
    body, parts, stop = b"".join(pieces), list[bytes](), 0
    raws = read_request(request.codec, body).raws
    for span, raw in zip(find_elements(FORM, body, raws).elements, raws, strict=True):
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
