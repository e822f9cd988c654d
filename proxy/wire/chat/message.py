"""Decodes and encodes one message of a chat request.

Law: a message that no rule touched keeps its bytes. In an edited message, the members other than `content` keep theirs.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import orjson

from proxy.wire.chat.cost import EXTRA_TEXT_KEYS, REASONING_KEYS, count_part, count_wire_message
from proxy.wire.chat.image import write_line
from proxy.wire.codec import UndecodableError
from proxy.wire.json.repair import decode_any, decode_member, mend
from rules.conversation import CountTokens, Media, Message, Role, ToolCall
from rules.prefix import digest_message
from rules.tokens.families import Costs

_ROLES = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "tool": Role.TOOL,
    "function": Role.TOOL,
}
ERROR_KEYS = ("is_error", "isError")
CACHE_MARKERS = ("cache_control", "prompt_cache_breakpoint")
"""Members of a message or a part that ask for a prompt cache up to this position: Anthropic's and OpenAI's.

A client moves them to the end of its transcript at each request. So they do not count as part of a message's text.
"""
TEXT_PARTS = frozenset({"text", "input_text", "output_text"})

_COUNTED = frozenset(
    {
        "role", "content", "name", "tool_calls", "tool_call_id", "function_call", "status", *EXTRA_TEXT_KEYS,
        *REASONING_KEYS, *ERROR_KEYS, *CACHE_MARKERS,
    }
)  # fmt: skip
_COUNTED_OF_PART = frozenset({"type", "text", *CACHE_MARKERS})
_COUNTED_OF_CALL = frozenset({"id", "type", "function", "custom", "index", *CACHE_MARKERS})
TOLERATED_BYTES = 32
"""A member up to this size that is not counted is ignored. Chosen: it can be null, empty, or a number."""

_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode


def decode_message(raw: bytes, count: CountTokens, costs: Costs) -> Message:
    """One message of a chat request with its token count. Raises UndecodableError or one of DECODE_ERRORS."""
    members = _read_members(raw)
    wire_role = decode_member(members.get("role"))
    if not isinstance(wire_role, str):
        problem = "a message has no role"
        raise UndecodableError(problem)
    role = _ROLES.get(wire_role, Role.OTHER)
    texts, media = _read_content(members.get("content"))
    name = decode_member(members.get("name"))
    message = Message(
        role=role,
        texts=texts,
        tool_calls=_read_calls(members),
        answers=_read_answered_id(wire_role, members),
        name=name if isinstance(name, str) else None,
        media=tuple(_read_media(part, before, count, costs) for part, before in media),
        raw=raw,
        wire_role="" if wire_role == role else wire_role,
        has_reasoning=b'"reasoning' in raw or b'"thinking' in raw,
        has_uncounted=_has_uncounted(members),
    )
    tokens = count_wire_message(message, members, count, costs)
    is_error = role is Role.TOOL and _is_error(members)
    return replace(
        message,
        tokens=tokens,
        is_error=is_error,
        digest=digest_message(message, (_canonical(part) for part, _ in media)),
    )


def _has_uncounted(members: dict[str, msgspec.Raw]) -> bool:
    """Whether a message, a part or a call of it has members that are not counted but that a server may render."""
    if _is_uncounted(members, _COUNTED):
        return True
    for name, counted in (("content", _COUNTED_OF_PART), ("tool_calls", _COUNTED_OF_CALL)):
        listed = bytes(members.get(name, b""))
        parts = map(bytes, _decode_list(listed)) if listed[:1] == b"[" else ()
        if any(part[:1] == b"{" and _is_uncounted(_decode_members(part), counted) for part in parts):
            return True
    return False


def _is_uncounted(members: dict[str, msgspec.Raw], counted: frozenset[str]) -> bool:
    return any(len(bytes(members[name])) > TOLERATED_BYTES for name in members.keys() - counted)


def _read_answered_id(wire_role: str, members: dict[str, msgspec.Raw]) -> str | None:
    """The id of the call that a message answers. A result with the legacy role `function` names only the function."""
    answered = None if wire_role == "function" else decode_member(members.get("tool_call_id"))
    if isinstance(answered, str):
        return answered
    return "" if wire_role == "tool" else None


def _is_error(members: dict[str, msgspec.Raw]) -> bool:
    """Whether a member of a result, not its text, marks it as an error.

    In the message or a part: `is_error` as Anthropic writes it, `isError` as MCP does. Or LangChain's `status: error`.
    """
    if (
        any(bytes(members.get(key, b"")) == b"true" for key in ERROR_KEYS)
        or bytes(members.get("status", b"")) == b'"error"'
    ):
        return True
    content = members.get("content")
    if content is None or not _begins(content, b"[") or b"rror" not in bytes(content):
        return False
    parts = (part for part in map(bytes, _decode_list(content)) if part[:1] == b"{" and b"rror" in part)
    return any(bytes(found.get(key, b"")) == b"true" for found in map(_decode_members, parts) for key in ERROR_KEYS)


def _begins(value: msgspec.Raw, sign: bytes) -> bool:
    """Whether a value begins with this byte; the value is not copied."""
    return memoryview(value)[:1] == sign


def encode_message(message: Message) -> bytes:
    """The JSON of one message: its own bytes, with new content if a rule edited it."""
    if not message.edited:
        return message.raw
    members = _read_members(message.raw) if message.raw else _begin_members(message)
    members["content"] = msgspec.Raw(_write_content(message, members.get("content")))
    return msgspec.json.encode(members)


def _begin_members(message: Message) -> dict[str, msgspec.Raw]:
    """The members of a message that a rule made; `content` is null."""
    members = {"role": msgspec.Raw(orjson.dumps(message.role_name)), "content": msgspec.Raw(b"null")}
    if message.answers is not None:
        members["tool_call_id"] = msgspec.Raw(orjson.dumps(message.answers))
    return members


def _read_members(raw: bytes) -> dict[str, msgspec.Raw]:
    """The members of a message, repaired if need be: a lone surrogate becomes U+FFFD."""
    try:
        if b"\xed" not in raw:
            return _decode_members(raw)
    except msgspec.DecodeError:
        pass
    return _decode_members(mend(raw))


def _read_content(content: msgspec.Raw | None) -> tuple[tuple[str, ...], tuple[tuple[bytes, str], ...]]:
    """Texts and other parts of a message's content, each in wire order; each other part with the text before it."""
    if content is None:
        return (), ()
    if _begins(content, b"["):
        texts: list[str] = []
        media: list[tuple[bytes, str]] = []
        for part in map(bytes, _decode_list(content)):
            text = _part_text(part)
            if text is None:
                media.append((part, texts[-1] if texts else ""))
            else:
                texts.append(text)
        return tuple(texts), tuple(media)
    if _begins(content, b'"'):
        return (msgspec.json.decode(content),), ()
    encoded = bytes(content)
    return (), () if encoded == b"null" else ((encoded, ""),)


def _read_media(part: bytes, before: str, count: CountTokens, costs: Costs) -> Media:
    """A part that is not text, with its token count and the line that may replace it."""
    unmarked = _unmark(part)
    line = write_line(unmarked, before)
    return Media(part, count_part(unmarked, count, costs), line, count(line) if line else 0)


def _part_text(part: bytes) -> str | None:
    """The text of a text part; None for any other part."""
    if part[:1] != b"{":
        return None
    members = _decode_members(part)
    text, kind = decode_member(members.get("text")), decode_member(members.get("type"))
    return text if isinstance(text, str) and isinstance(kind, str) and kind in TEXT_PARTS else None


def _read_calls(members: dict[str, msgspec.Raw]) -> tuple[ToolCall, ...]:
    """The message's tool calls. A call of an unknown type has its whole JSON as arguments."""
    calls = decode_member(members.get("tool_calls"))
    if not isinstance(calls, list):
        return ()
    return tuple(_read_call(call) for call in calls if isinstance(call, dict))


def _read_call(call: dict[str, Any]) -> ToolCall:
    function = call.get("function") or call.get("custom")
    if not isinstance(function, dict):
        said = {name: value for name, value in call.items() if name not in CACHE_MARKERS}
        return ToolCall(str(call.get("id") or ""), str(call.get("type") or ""), msgspec.json.encode(said).decode())
    arguments = function.get("arguments", function.get("input", ""))
    if not isinstance(arguments, str):
        arguments = msgspec.json.encode(arguments).decode()
    return ToolCall(str(call.get("id") or ""), str(function.get("name") or ""), arguments)


def _canonical(part: bytes) -> bytes:
    """A content part without what may vary between requests: key order, white space, cache markers."""
    return msgspec.json.encode(decode_any(_unmark(part)), order="deterministic")


def _unmark(part: bytes) -> bytes:
    """A content part without cache markers; its own bytes if it has none."""
    if not _find_markers(part):
        return part
    members = _read_members(part)
    return msgspec.json.encode({name: value for name, value in members.items() if name not in CACHE_MARKERS})


def _find_markers(item: bytes) -> dict[str, msgspec.Raw]:
    """The cache markers among the members of a part or a message."""
    if item[:1] != b"{" or not any(name.encode() in item for name in CACHE_MARKERS):
        return {}
    members = _read_members(item)
    return {name: members[name] for name in CACHE_MARKERS if name in members}


def _find_markers_within(raw: bytes) -> dict[str, msgspec.Raw]:
    """The cache markers of a message and of its parts; the last one of each name."""
    if not any(name.encode() in raw for name in CACHE_MARKERS):
        return {}
    content = bytes(_read_members(raw).get("content", b""))
    parts = map(bytes, _decode_list(content)) if content[:1] == b"[" else ()
    return {name: marker for item in (raw, *parts) for name, marker in _find_markers(item).items()}


def _write_content(message: Message, content: msgspec.Raw | None) -> bytes:
    """The content of an edited message, in the form that the client chose: a string, or parts.

    Only a part can hold a cache marker. So if there are markers, a string becomes one part.
    """
    markers = {name: marker for raw in message.taken_in for name, marker in _find_markers_within(raw).items()}
    encoded = b"null" if content is None else bytes(content)
    if encoded[:1] != b"[" and not message.media:
        text = orjson.dumps("\n\n".join(message.texts))
        return b"[" + _mark(b'{"type":"text","text":' + text + b"}", markers) + b"]" if markers else text
    parts = list(map(bytes, _decode_list(encoded))) if encoded[:1] == b"[" else []
    return b"[" + b",".join(_write_parts(message, parts, markers)) + b"]"


def _write_parts(message: Message, parts: Sequence[bytes], markers: dict[str, msgspec.Raw]) -> list[bytes]:
    """The client's parts with each old text replaced by the new one; additional parts come last.

    The last part gets `markers` and the cache markers of removed parts.
    """
    texts = iter(message.texts)
    media = map(_write_media, message.media)
    written: list[bytes] = []
    left: dict[str, msgspec.Raw] = {}
    for part in parts:
        old = _part_text(part)
        new = next(media, None) if old is None else next(texts, None)
        if isinstance(new, bytes):
            written.append(new)
        elif new is not None:
            written.append(part if new == old else _replace_text(part, new))
        else:
            left |= _find_markers(part)
    written += [orjson.dumps({"type": "text", "text": text}) for text in texts]
    written += media
    left |= markers
    if left and written and written[-1][:1] == b"{":
        written[-1] = _mark(written[-1], left)
    return written


def _write_media(part: Media) -> bytes:
    """A part that is not text. The line that replaces a removed image keeps the cache markers."""
    if not part.is_removed:
        return part.raw
    return _mark(orjson.dumps({"type": "text", "text": part.line}), _find_markers(part.raw))


def _mark(part: bytes, markers: dict[str, msgspec.Raw]) -> bytes:
    """The part with these cache markers added; a marker that it already has stays."""
    members = _read_members(part)
    missing = {name: marker for name, marker in markers.items() if name not in members}
    return msgspec.json.encode(members | missing) if missing else part


def _replace_text(part: bytes, text: str) -> bytes:
    members = _decode_members(part)
    members["text"] = msgspec.Raw(orjson.dumps(text))
    return msgspec.json.encode(members)
