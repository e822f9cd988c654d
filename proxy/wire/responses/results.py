"""Reads what the model said, the calls that a client answers, and their results; and writes results.

Law: each item of a unit is read; what has an unknown form is counted by its JSON. A result keeps its type and all
members except the one with its output. Nothing here ever approves a call.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import orjson

from trimtab.proxy.wire.cache_help import CACHE_MARKERS
from trimtab.proxy.wire.content import (
    PartCost,
    begins,
    count_json,
    count_part,
    has_uncounted,
    read_content,
    read_media,
    rename,
    write_answered,
    write_arguments,
    write_canonical,
    write_content,
)
from trimtab.proxy.wire.json import decode_items, decode_or_none, read_id, read_members, write_compact, write_id
from trimtab.proxy.wire.responses.units import (
    COMPACTIONS,
    REFERENCE,
    RESULT_TYPES,
    Kind,
    ServedItems,
    read_type,
    tell_kind,
)
from trimtab.proxy.wire.tools import find_declared
from trimtab.rules.conversation import Arguments, CountTokens, Media, Message, Role, ToolCall
from trimtab.rules.tokens.families import Costs
from trimtab.rules.tokens.messages import as_schema

_APPROVAL, _COMPUTER, _PATCH = "mcp_approval_response", "computer_call_output", "apply_patch_call_output"
_SHELL, _LOCAL_SHELL = "shell_call_output", "local_shell_call_output"
_IDS = {
    **dict.fromkeys(RESULT_TYPES, ("call_id", "id")),
    "mcp_approval_request": ("id",),
    _APPROVAL: ("approval_request_id",),
    _LOCAL_SHELL: ("call_id", "id"),  # a local shell's result may have it as its own `id`
}
"""The members that may have the id of a call, if it is not `call_id` alone."""
_SAID = {
    "function_call": ("", "arguments"),
    "custom_tool_call": ("", "input"),
    "local_shell_call": ("local_shell", "action"),
    "shell_call": ("shell", "action"),
    "apply_patch_call": ("apply_patch", "operation"),
    "computer_call": ("computer", "action"),
    "mcp_approval_request": ("", "arguments"),
}
"""For each type of call, the tool's name (if empty, the call has it) and the member with what the model asks for."""
_SHORTENS = {"function_call": Arguments.JSON, "custom_tool_call": Arguments.TEXT}
_OF_CALL = frozenset({"type", "id", "call_id", "name", "namespace", "arguments", "input", "status"}) | {
    "internal_chat_message_metadata_passthrough",
    *CACHE_MARKERS,
}
"""The members of such calls. Another one may say that a server's program has made it, so it stays as it is."""
_STREAMS = ("stdout", "stderr")
_BLANK = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAEAAAABAAQAAAACCEkxzAAAAEklEQVR42mP4DwUMo4xRBukMAOPT/hAC2mzjAAAAAElFTkSu"
    "QmCC"
)
BLANK_SCREENSHOT = orjson.dumps({"type": "computer_screenshot", "image_url": _BLANK})
"""A white image. The result of a computer call must be an image, so this one replaces an image that is removed."""


class Output(NamedTuple):
    """What a result says: its texts, its media, the canonical bytes of each media part, and whether it is an error."""

    texts: tuple[str, ...] = ()
    media: tuple[Media, ...] = ()
    canonical: tuple[bytes, ...] = ()
    is_error: bool = False


def read_call(item_type: str, members: dict[str, msgspec.Raw]) -> ToolCall:
    """A call that the client answers. What the model asks for is JSON or, for a custom tool, any text."""
    tool, key = _SAID[item_type]
    said = decode_or_none(members.get(key))
    if said is None and item_type == "computer_call":
        said = decode_or_none(members.get("actions"))
    name = tool or decode_or_none(members.get("name"))
    arguments = said if isinstance(said, str) else "" if said is None else write_compact(said)
    call_id = find_id(item_type, members)
    form, name = RESULT_TYPES[item_type], name if isinstance(name, str) else ""
    shortens = _SHORTENS.get(item_type, Arguments.FIXED) if members.keys() <= _OF_CALL else Arguments.FIXED
    return ToolCall(read_id(call_id), name, arguments, write_id(call_id), form, shortens)


def write_call(raw: bytes, members: dict[str, msgspec.Raw], call: ToolCall) -> bytes:
    """The item of a call with its arguments; the same bytes if they are equal."""
    if call.shortens is Arguments.FIXED:
        return raw
    item_type = str(decode_or_none(members.get("type")))
    if read_call(item_type, members).arguments == call.arguments:
        return raw
    key = _SAID[item_type][1]
    return msgspec.json.encode({**members, key: write_arguments(call, members[key])})


def find_id(item_type: str, members: dict[str, msgspec.Raw]) -> Any:
    """The id of a call, or of the call that a result answers."""
    found = (decode_or_none(members.get(key)) for key in _IDS.get(item_type, ("call_id",)))
    return next((one for one in found if isinstance(one, str) or read_id(one)), None)


def read_output(item_type: str, members: dict[str, msgspec.Raw], count: CountTokens, costs: Costs) -> Output:
    output = members.get("output")
    if item_type == _APPROVAL:
        reason = decode_or_none(members.get("reason"))
        return Output((reason,) if isinstance(reason, str) and reason else ())
    if item_type == _COMPUTER and output is not None and begins(output, b"{"):
        return _read_screenshot(bytes(output), count, costs)
    chunks = _read_chunks(output) if item_type == _SHELL else None
    if chunks is not None:
        texts = tuple(text for chunk in chunks for name in _STREAMS if (text := chunk.get(name)))
        ends = [as_schema(chunk.get("outcome")) for chunk in chunks]
        has_failed = any(end.get("type") == "timeout" or end.get("exit_code") not in (0, None) for end in ends)
        return Output(texts, is_error=has_failed)
    texts, parts = read_content(output)
    media = tuple(read_media(part, before, count, costs) for part, before in parts)
    is_error = bytes(members.get("status", b"")) == b'"failed"' or bytes(members.get("success", b"")) == b"false"
    return Output(texts, media, tuple(write_canonical(part) for part, _ in parts), is_error)


def _read_screenshot(output: bytes, count: CountTokens, costs: Costs) -> Output:
    shot = read_media(_as_image(output), "", count, costs)
    blank = read_media(_as_image(BLANK_SCREENSHOT), "", count, costs)
    media = Media(output, shot.tokens, shot.line, min(blank.tokens, shot.tokens), guessed_tokens=shot.guessed_tokens)
    return Output((), (media,), (write_canonical(output),))


def _as_image(screenshot: bytes) -> bytes:
    members = decode_or_none(msgspec.Raw(screenshot))
    return msgspec.json.encode({**members, "type": "input_image"} if isinstance(members, dict) else members)


def _read_chunks(output: msgspec.Raw | None) -> list[dict[str, Any]] | None:
    chunks = decode_or_none(output)
    if not isinstance(chunks, list) or not all(isinstance(chunk, dict) for chunk in chunks):
        return None
    return chunks if all(isinstance(chunk.get(name, ""), str) for chunk in chunks for name in _STREAMS) else None


def write_result(message: Message, members: dict[str, msgspec.Raw], item_type: str) -> dict[str, msgspec.Raw]:
    output = members.get("output")
    rename(message, members, "approval_request_id" if item_type == _APPROVAL else "call_id")
    if item_type == _APPROVAL:
        return {**members, "reason": _raw(message.text)}
    if item_type == _COMPUTER and (output is None or begins(output, b"{")):
        shot = next((part.raw for part in message.media if not part.is_removed), BLANK_SCREENSHOT)
        return {**members, "output": msgspec.Raw(shot)}
    if item_type == _SHELL and output is not None and _read_chunks(output) is not None:
        return {**members, "output": msgspec.Raw(_write_chunks(message.texts, list(map(bytes, decode_items(output)))))}
    return {**members, "output": msgspec.Raw(write_content(message, output, "input_text"))}


def _write_chunks(texts: Sequence[str], chunks: Sequence[bytes]) -> bytes:
    """A shell's output with each text replaced. Each chunk stays, because it tells how its command ended."""
    left, written = list(texts), []
    for chunk in chunks:
        members = read_members(chunk)
        for name in _STREAMS:
            if decode_or_none(members.get(name)):
                members[name] = _raw(left.pop(0) if left else "")
        written.append(msgspec.json.encode(members))
    if left:
        written.append(_write_chunk("\n".join(left), failed=False))
    return b"[" + b",".join(written) + b"]"


def _write_chunk(text: str, *, failed: bool) -> bytes:
    return orjson.dumps({"stdout": text, "stderr": "", "outcome": {"type": "exit", "exit_code": int(failed)}})


def write_missing_result(message: Message, call_type: str) -> bytes:
    """The result of a call of this type for which the client sent none. It approves nothing and reports a failure."""
    call_id, text = orjson.Fragment(bytes(write_answered(message))), message.text
    item_type = RESULT_TYPES.get(call_type, "function_call_output")
    said: dict[str, Any] = {"call_id": call_id, "output": text}
    if item_type == _APPROVAL:
        said = {"approval_request_id": call_id, "approve": False, "reason": text}
    elif item_type == _COMPUTER:
        said["output"] = orjson.Fragment(BLANK_SCREENSHOT)
    elif item_type == _SHELL:
        said["output"] = orjson.Fragment(b"[" + _write_chunk(text, failed=True) + b"]")
    elif item_type == _PATCH:
        said = {"call_id": call_id, "status": "failed", "output": text}
    elif item_type == _LOCAL_SHELL:
        said = {"id": call_id, "output": text}
    return orjson.dumps({"type": item_type, **said})


def _raw(value: str) -> msgspec.Raw:
    return msgspec.Raw(orjson.dumps(value))


SEALED_FRAME_BYTES = 650  # Of encrypted reasoning: its header, its signature, its padding. Source: Codex.
BYTES_PER_TOKEN = 4  # Bytes of reasoning per token. Source: Codex.
_COUNTED_OF_ITEM = frozenset({
    "type", "id", "role", "content", "status", "phase", "summary", "encrypted_content", "call_id", "name",
    "arguments", "input", "output", "action", "actions", "operation", "approval_request_id", "approve", "reason",
    "internal_chat_message_metadata_passthrough", *CACHE_MARKERS,
})  # fmt: skip
_COUNTED_OF_PARTS = dict.fromkeys(
    ("content", "output"),
    frozenset({"type", "text", "refusal", "logprobs", "stdout", "stderr", "outcome", *CACHE_MARKERS}),
)
LOCAL_TYPES = frozenset({"ghost_snapshot"})  # Items of clients alone; no server reads them. Source: Codex.
REFERENCED_TOKENS = 100  # Of an item by its id. Measured: a little below the mean of an assistant's text in sessions.
_SERVED_TEXTS = {
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
    """Whether an item has members that are not counted but may be rendered. Raises one of DECODE_ERRORS."""
    return has_uncounted(members, _COUNTED_OF_ITEM, _COUNTED_OF_PARTS)


class Said:
    """What a unit's items say and cost. extra_texts: counted but not said, as reasoning. sealed_tokens: encrypted."""

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

    def _add_unknown(self, raw: bytes, item_type: str) -> None:
        if item_type not in LOCAL_TYPES:
            self._add_media(raw, count_json(raw, decode_or_none(msgspec.Raw(raw)), self._count))
            self.canonical.append(write_canonical(raw))

    def _add_reasoning(self, members: dict[str, msgspec.Raw]) -> None:
        """Encrypted reasoning stands for its texts. Servers render the reasoning itself, or else its summary."""
        self._has_reasoning = True
        if isinstance(decode_or_none(members.get("encrypted_content")), str):
            self.sealed_tokens += _count_sealed(members)
            return
        texts = [*_find_texts(decode_or_none(members.get("content")))]
        self.extra_texts += texts or [*_find_texts(decode_or_none(members.get("summary")))]

    def _add_served(self, raw: bytes, item_type: str, members: dict[str, msgspec.Raw]) -> None:
        """Add a call that its server has answered. The server may render more than the item has."""
        self._has_uncounted = self._has_fixed_texts = True
        if item_type == REFERENCE:
            self.sealed_tokens += REFERENCED_TOKENS
            self.canonical.append(write_canonical(raw))
        if item_type in _SCHEMAS:
            self.extra_texts += _find_texts(decode_or_none(members.get(_SCHEMAS[item_type])))
        for name in _SERVED_TEXTS.get(item_type, ()):
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
