"""A chat request at a glance: who speaks, who calls, who answers; nothing is counted but bytes.

Law: what this cannot read with certainty, or bound, it leaves to those who read it all.
"""

import re
from collections.abc import Callable

import msgspec

from proxy.wire.chat.cost import DECODE_ERRORS
from proxy.wire.chat.request import ChatRequest
from rules.conversation import RESULT_ROLES, Message, ToolCall
from rules.pipeline.quick_check import Outline

FRAME_TOKENS = 200
"""What no byte of the body stands for: preambles of models with tools have some 90 tokens, rendered tools their braces.
Of 1211 recorded requests without media none had more tokens than bytes."""

BoundTokens = Callable[[bytes], int]
"""At least the tokens of a text, or very likely so, by its UTF-8."""


class _Part(msgspec.Struct, tag_field="type", tag="text"):
    text: str


class _Call(msgspec.Struct):
    id: str = ""


class _Message(msgspec.Struct):
    role: str
    content: str | list[_Part] | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None


_decode = msgspec.json.Decoder(_Message).decode
_MULTIPLIES = re.compile(rb'\$ref|\\u|"type"\s*:\s*\[')
"""What is read again wherever it is referred to, once for each of several types; or is hidden by escapes."""


def read_outline(request: ChatRequest, bound: BoundTokens) -> Outline | None:
    """The outline of a request; None where it has images and the like, or is not in everyday form."""
    if any(_MULTIPLIES.search(fixed) for fixed in request.fixed):
        return None
    messages = []
    result_bytes = result_chars = 0
    for raw in request.raws:
        try:
            message = _decode(raw)
        except DECODE_ERRORS:
            return None
        calls = tuple(ToolCall(call.id, "", "") for call in message.tool_calls or ())
        messages.append(Message(message.role, tool_calls=calls, answers=message.tool_call_id))
        if message.role in RESULT_ROLES:
            result_bytes = max(result_bytes, len(raw))
            result_chars = max(result_chars, _count_chars(message.content))
    return Outline(messages, bound(request.body) + FRAME_TOKENS, result_bytes, result_chars)


def _count_chars(content: str | list[_Part] | None) -> int:
    return sum(len(part.text) for part in content) if isinstance(content, list) else len(content or "")
