"""Reads what the model said: messages, reasoning, calls, and the calls that its server has answered.

Law: each item of a unit is read; what has an unknown form is counted by its JSON.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from trimtab.proxy.wire.content.cache_help import CACHE_MARKERS
from trimtab.proxy.wire.content.media import PartCost, count_json, count_part
from trimtab.proxy.wire.content.parts import has_uncounted, read_content, read_media, write_canonical
from trimtab.proxy.wire.content.schemas import decode_or_none, write_compact
from trimtab.proxy.wire.content.tool_lists import find_declared
from trimtab.proxy.wire.responses.results import read_call, read_output
from trimtab.proxy.wire.responses.units import COMPACTIONS, REFERENCE, Kind, ServedItems, read_type, tell_kind
from trimtab.rules.conversation import CountTokens, Media, Message, Role, ToolCall
from trimtab.rules.tokens.families import Costs
from trimtab.rules.tokens.tool_schemas import as_schema

SEALED_FRAME_BYTES = 650
"""Bytes of encrypted reasoning that are not text: its header, its signature, its padding. Source: Codex."""
BYTES_PER_TOKEN = 4
"""Bytes of reasoning per token. Source: Codex."""
_COUNTED_OF_ITEM = frozenset(
    {
        "type", "id", "role", "content", "status", "phase", "summary", "encrypted_content", "call_id", "name",
        "arguments", "input", "output", "action", "actions", "operation", "approval_request_id", "approve", "reason",
        "internal_chat_message_metadata_passthrough", *CACHE_MARKERS,
    }
)  # fmt: skip
_COUNTED_OF_PARTS = dict.fromkeys(
    ("content", "output"),
    frozenset({"type", "text", "refusal", "logprobs", "stdout", "stderr", "outcome", *CACHE_MARKERS}),
)
LOCAL_TYPES = frozenset({"ghost_snapshot"})
"""Types of items that clients keep for themselves. No server reads them. Source: Codex."""
REFERENCED_TOKENS = 100
"""Tokens of an item of which only the id is known. Measured: the mean of an assistant's text in recorded sessions is a
little above this."""
_SAID = {
    "web_search_call": ("action",),
    "file_search_call": ("queries", "results"),
    "code_interpreter_call": ("code", "outputs"),
    "image_generation_call": ("revised_prompt",),
    "mcp_call": ("name", "arguments", "output", "error"),
    "tool_search_call": ("arguments",),
    "program": ("code",),
    "program_output": ("result",),
}
"""For each type of item that the server has answered, the members with its texts."""
_SCHEMAS = {"mcp_list_tools": "tools", "tool_search_output": "tools"}
"""Items whose tools the model reads. They are counted, but are no texts that anybody said."""
_TEXT_KEYS = ("text", "logs")
_ANNOTATED = re.compile(rb'"(?:annotations|logprobs)"\s*:\s*\[\s*[^\s\]]')
"""A part of a message that names places in its text, or its tokens."""


def lacks_count(members: dict[str, msgspec.Raw]) -> bool:
    """Whether an item or a part of it has members that are not counted but that a server may render.

    Raises one of DECODE_ERRORS.
    """
    return has_uncounted(members, _COUNTED_OF_ITEM, _COUNTED_OF_PARTS)


class Said:
    """What the items of one unit say, and what they cost besides.

    extra_texts: texts that are counted but are not part of what was said, such as reasoning.
    sealed_tokens: tokens of encrypted reasoning.
    """

    def __init__(self, count: CountTokens, costs: Costs) -> None:
        self._count = count
        self._costs = costs
        self._texts: list[str] = []
        self._calls: list[ToolCall] = []
        self._media: list[Media] = []
        self._is_compacted = False
        self._in_program = False
        self._has_uncounted = False
        self._has_reasoning = False
        self._has_fixed_texts = False
        self._served = ServedItems()
        self._loads: list[str] = []
        self.canonical: list[bytes] = []
        self.extra_texts: list[str] = []
        self.sealed_tokens = 0

    def message(self, unit: bytes) -> Message:
        return Message(
            Role.ASSISTANT,
            tuple(self._texts),
            tuple(self._calls),
            media=tuple(self._media),
            raw=unit,
            has_reasoning=self._has_reasoning,
            has_uncounted=self._has_uncounted,
            keeps_before=self._is_compacted,
            has_fixed_texts=self._has_fixed_texts,
            served=self._served.find(),
            loads=tuple(self._loads),
        )

    def add(self, raw: bytes, members: dict[str, msgspec.Raw]) -> None:
        item_type = read_type(decode_or_none(members.get("type")))
        kind = tell_kind(item_type, decode_or_none(members.get("role")))
        name = item_type or ""
        self._served.add(name, members)
        if name == "tool_search_output":
            self._loads += find_declared(members.get("tools"))
        self._has_uncounted = self._has_uncounted or lacks_count(members)
        self._in_program = (self._in_program or kind is Kind.PROGRAM) and kind is not Kind.PROGRAM_END
        if kind is Kind.SPEECH:
            self._add_speech(members.get("content"))
        elif kind is Kind.CALL:
            self._add_call(raw, read_call(name, members))
        elif kind is Kind.RESULT:
            output = read_output(name, members, self._count, self._costs)
            self._texts += output.texts
            self._media += output.media
            self.canonical += output.canonical
        elif kind is Kind.REASONING:
            self._add_reasoning(members)
        elif name in COMPACTIONS:
            self._is_compacted = self._has_reasoning = True
            self.sealed_tokens += _count_sealed(members)
            self.canonical.append(write_canonical(raw))
        elif kind is Kind.UNKNOWN:
            self._add_unknown(raw, name)
        else:
            self._add_served(raw, name, members)

    def _add_speech(self, content: msgspec.Raw | None) -> None:
        texts, parts = read_content(content)
        self._texts += texts
        # The places that an annotation gives would no longer fit a shorter text.
        if content is not None and _ANNOTATED.search(content):
            self._has_fixed_texts = True
        for part, before in parts:
            refusal = as_schema(decode_or_none(msgspec.Raw(part))).get("refusal")
            if isinstance(refusal, str):
                self.extra_texts.append(refusal)
            else:
                self._media.append(read_media(part, before, self._count, self._costs))
                self.canonical.append(write_canonical(part))

    def _add_call(self, raw: bytes, call: ToolCall) -> None:
        """Add a call. The results of a program's calls are within this message, so nothing else answers them."""
        if self._in_program:
            self.extra_texts += [call.name, call.arguments]
            self.canonical.append(write_canonical(raw))
        else:
            self._calls.append(call)

    def _add_reasoning(self, members: dict[str, msgspec.Raw]) -> None:
        """Encrypted reasoning stands for its texts. Servers render the reasoning itself, or else its summary."""
        self._has_reasoning = True
        if isinstance(decode_or_none(members.get("encrypted_content")), str):
            self.sealed_tokens += _count_sealed(members)
            return
        texts = [*_find_texts(decode_or_none(members.get("content")))]
        self.extra_texts += texts or [*_find_texts(decode_or_none(members.get("summary")))]

    def _add_unknown(self, raw: bytes, item_type: str) -> None:
        if item_type in LOCAL_TYPES:
            return
        self._add_media(raw, count_json(raw, decode_or_none(msgspec.Raw(raw)), self._count))
        self.canonical.append(write_canonical(raw))

    def _add_served(self, raw: bytes, item_type: str, members: dict[str, msgspec.Raw]) -> None:
        """Add a call that its server has answered. The server may render more than the item has."""
        self._has_uncounted = self._has_fixed_texts = True
        if item_type == REFERENCE:
            self.sealed_tokens += REFERENCED_TOKENS
            self.canonical.append(write_canonical(raw))
        if item_type in _SCHEMAS:
            self.extra_texts += _find_texts(decode_or_none(members.get(_SCHEMAS[item_type])))
        for name in _SAID.get(item_type, ()):
            self._texts += _find_texts(decode_or_none(members.get(name)))
        if item_type == "image_generation_call":
            source = {"type": "image", "source": {"data": decode_or_none(members.get("result"))}}
            self._add_media(raw, count_part(msgspec.json.encode(source), self._count, self._costs))
        elif item_type == "code_interpreter_call":
            outputs = decode_or_none(members.get("outputs"))
            for one in outputs if isinstance(outputs, list) else ():
                if _is_image(as_schema(one)):
                    part = msgspec.json.encode(one)
                    self._add_media(part, count_part(part, self._count, self._costs))

    def _add_media(self, raw: bytes, cost: PartCost) -> None:
        self._media.append(Media(raw, cost.tokens, guessed_tokens=cost.guessed))


def _count_sealed(members: dict[str, msgspec.Raw]) -> int:
    sealed = decode_or_none(members.get("encrypted_content"))
    return max(len(sealed) * 3 // 4 - SEALED_FRAME_BYTES, 0) // BYTES_PER_TOKEN if isinstance(sealed, str) else 0


def _find_texts(value: Any) -> Iterator[str]:
    """The texts of a member: itself, those of its parts, or else its JSON. Images have none."""
    for one in value if isinstance(value, list) else [value]:
        part = as_schema(one)
        text = next((part[key] for key in _TEXT_KEYS if isinstance(part.get(key), str)), one)
        if isinstance(text, str):
            yield from [text] if text else []
        elif text is not None and not _is_image(part):
            yield write_compact(text)


def _is_image(part: dict[str, Any]) -> bool:
    return part.get("type") == "image"
