"""Decodes, counts and encodes one message of a chat request, and what is counted outside the messages.

Law: a message that no rule touched keeps its bytes. In an edited message, the members other than `content` keep theirs.
Counting never raises: a value of an unexpected type is counted by its JSON.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import orjson

from trimtab.proxy.wire.cache_help import CACHE_MARKERS
from trimtab.proxy.wire.codec import Counting
from trimtab.proxy.wire.content import (
    SEALED_CHARS_PER_TOKEN,
    begins,
    has_uncounted,
    read_content,
    read_media,
    rename,
    write_answered,
    write_arguments,
    write_canonical,
    write_content,
)
from trimtab.proxy.wire.json import (
    decode_any,
    decode_items,
    decode_member,
    decode_members,
    decode_or_none,
    read_id,
    read_members,
    write_compact,
    write_id,
)
from trimtab.proxy.wire.tools import REFERENCE_MARK, as_list, find_referenced, find_served, read_choice, read_format
from trimtab.proxy.wire.transcript.body import UndecodableError
from trimtab.rules.conversation import NOT_SERVED, Arguments, CountTokens, Message, Role, ToolCall
from trimtab.rules.prefix import digest_message
from trimtab.rules.tokens.families import Costs
from trimtab.rules.tokens.messages import LEGACY_CALL_TOKENS, ToolsAndFormat, as_counted, as_schema, count_message

EXTRA_TEXT_KEYS = ("reasoning_content", "reasoning", "refusal")
"""Members of assistant messages, outside `content`, whose texts upstreams put into the prompt."""
REASONING_KEYS = ("reasoning_details", "thinking_blocks")
"""Members that hold such texts as lists of parts. Source: OpenRouter; LiteLLM."""


def count_wire_message(message: Message, members: dict[str, msgspec.Raw], count: CountTokens, costs: Costs) -> int:
    """Prompt tokens of a message. `members` may hold more that is counted, such as reasoning."""
    said = [decode_or_none(members[key]) for key in EXTRA_TEXT_KEYS if key in members]
    extra = [text for text in said if isinstance(text, str)] if said else said
    tokens = count_message(message, count, costs, extra, calls=[*map(as_counted, message.tool_calls)])
    for key in () if extra else REASONING_KEYS:
        if key in members:
            tokens += _count_reasoning(decode_or_none(members[key]), count)
    if "function_call" in members and (legacy := as_schema(decode_or_none(members["function_call"]))):
        called = [legacy[key] for key in ("name", "arguments") if legacy.get(key) is not None]
        texts = (each if isinstance(each, str) else write_compact(each) for each in called)
        tokens += LEGACY_CALL_TOKENS + sum(map(count, texts))
    return tokens


def read_tools_and_format(
    tools: Any, functions: Any, tool_choice: Any, function_call: Any, response_format: Any
) -> ToolsAndFormat:
    """What the members outside the messages cost; None for a missing one."""
    legacy = as_list(functions)
    listed = [*as_list(tools), *(item for item in legacy if not isinstance(item, dict))]
    wrapped = [tool for tool in listed if isinstance(as_schema(tool).get("function"), dict)]
    bare = [item for item in legacy if isinstance(item, dict)]
    return ToolsAndFormat(
        functions=[*(tool["function"] for tool in wrapped), *bare],
        functions_json=write_compact([*wrapped, *bare]),
        others=[write_compact(tool) for tool in listed if not isinstance(as_schema(tool).get("function"), dict)],
        choice=read_choice(tool_choice if tool_choice is not None else function_call),
        format_texts=tuple(read_format(as_schema(as_schema(response_format).get("json_schema")))),
    )


def _count_reasoning(parts: Any, count: CountTokens) -> int:
    """Tokens of reasoning in parts: texts are counted, encrypted parts are estimated by their length."""
    tokens = 0
    for part in map(as_schema, parts if isinstance(parts, list) else ()):
        texts = [part.get(key) for key in ("text", "thinking", "summary")]
        tokens += sum(count(text) for text in texts if isinstance(text, str))
        sealed = part.get("data")
        tokens += len(sealed) // SEALED_CHARS_PER_TOKEN if isinstance(sealed, str) else 0
    return tokens


_ROLES = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "tool": Role.TOOL,
    "function": Role.TOOL,
}
ERROR_KEYS = ("is_error", "isError")
_SAYS_ERROR = (*((key, b"true") for key in ERROR_KEYS), ("status", b'"error"'))
_BESIDE = (
    "reasoning_content", "reasoning", "reasoning_text", "reasoning_details", "thinking", "thinking_content",
    "thinking_blocks",
)  # fmt: skip
"""Members beside `content` that hold an assistant's reasoning. Source: the API references of DeepSeek, Moonshot, vLLM,
OpenRouter, GitHub Copilot and LiteLLM."""
_EMPTY = {b'"': b'" "', b"[": b"[]", b"{": b"{}"}
"""An empty value for each kind of JSON. Some servers take an empty text for a missing one, so a text is one space.
Source: what clients send to Moonshot and DeepSeek for a message without reasoning."""

_COUNTED = frozenset({
    "role", "content", "name", "tool_calls", "tool_call_id", "function_call", "status", *EXTRA_TEXT_KEYS,
    *REASONING_KEYS, *ERROR_KEYS, *CACHE_MARKERS,
})  # fmt: skip
_OF_CALL = frozenset({"id", "type", "function", "custom", "index", *CACHE_MARKERS})
_OF_FUNCTION = frozenset({"name", "arguments", "input"})
"""The members of a call and of what it calls. Others may be signatures, as Gemini's, so the call stays as it is."""
_COUNTED_OF_PARTS = {"content": frozenset({"type", "text", *CACHE_MARKERS}), "tool_calls": _OF_CALL}


def decode_element(counting: Counting, raw: bytes) -> tuple[Message]:
    return (decode_message(raw, counting.count, counting.costs),)


def decode_message(raw: bytes, count: CountTokens, costs: Costs) -> Message:
    members = read_members(raw)
    wire_role = decode_member(members.get("role"))
    if not isinstance(wire_role, str):
        raise UndecodableError("a message has no role")
    role = _ROLES.get(wire_role, Role.OTHER)
    texts, media = read_content(members.get("content"))
    said = [(name, bytes(members[name])[:1]) for name in _BESIDE if name in members] if role is Role.ASSISTANT else []
    beside = tuple([(name, _EMPTY[sign]) for name, sign in said if sign in _EMPTY])
    named = members.get("name", members.get("tool_name") if role is Role.TOOL else None)
    name = None if named is None else decode_member(named)
    make = partial(
        Message,
        role=role,
        texts=texts,
        tool_calls=_read_calls(members),
        answers=_read_answered_id(wire_role, members),
        name=name if isinstance(name, str) else None,
        media=tuple([read_media(part, before, count, costs) for part, before in media]) if media else (),
        raw=raw,
        wire_role="" if wire_role == role else wire_role,
        has_reasoning=b'"reasoning' in raw or b'"thinking' in raw,
        has_uncounted=has_uncounted(members, _COUNTED, _COUNTED_OF_PARTS),
        has_unread_calls=role is Role.ASSISTANT and _has_unread_calls(members),
        beside=beside,
        loads=find_referenced(raw) if REFERENCE_MARK in raw else (),
        served=find_served(raw, (decode_members(part) for part, _ in media if part[:1] == b"{"))
        if media
        else NOT_SERVED,
    )
    message = make()
    return make(  # not `replace`, which costs a call for each field
        tokens=count_wire_message(message, members, count, costs),
        is_error=role is Role.TOOL and _is_error(members),
        digest=digest_message(message, [write_canonical(part) for part, _ in media] if media else ()),
    )


def _has_unread_calls(members: dict[str, msgspec.Raw]) -> bool:
    """Whether a message calls in the legacy form, or as Messages has it."""
    legacy, content = members.get("function_call"), members.get("content")
    return (legacy is not None and begins(legacy, b"{")) or (content is not None and b'"tool_use"' in bytes(content))


def _read_answered_id(wire_role: str, members: dict[str, msgspec.Raw]) -> str | None:
    """The id of the call that a message answers. A result with the legacy role `function` names only the function."""
    is_named = "tool_call_id" in members and wire_role != "function"
    answered = read_id(decode_member(members["tool_call_id"])) if is_named else ""
    return answered or ("" if wire_role == "tool" else None)


def _is_error(members: dict[str, msgspec.Raw]) -> bool:
    """Whether a member says that a result is an error: Anthropic's `is_error`, MCP's `isError`, LangChain's status."""
    for key, said in _SAYS_ERROR:
        if key in members and bytes(members[key]) == said:
            return True
    content = members.get("content")
    if content is None or not begins(content, b"[") or b"rror" not in bytes(content):
        return False
    parts = (part for part in map(bytes, decode_items(content)) if part[:1] == b"{" and b"rror" in part)
    return any(bytes(found.get(key, b"")) == b"true" for found in map(decode_members, parts) for key in ERROR_KEYS)


def encode_message(message: Message) -> bytes:
    """The JSON of one message: its own bytes, with new content if a rule edited it."""
    if not message.edited:
        return message.raw
    message = message.as_said()
    members = read_members(message.raw) if message.raw else {"role": msgspec.Raw(orjson.dumps(message.role_name))}
    if not message.raw:  # made by a rule
        members["content"] = msgspec.Raw(b"null")
        members |= {} if message.answers is None else {"tool_call_id": write_answered(message)}
        members |= {name: msgspec.Raw(empty) for name, empty in message.beside}
    if not message.tool_calls or message.media or read_content(members.get("content"))[0] != message.texts:
        members["content"] = msgspec.Raw(write_content(message, members.get("content")))
    if message.tool_calls and "tool_calls" in members:  # one for each object in the list
        calls, listed = iter(message.tool_calls), map(bytes, decode_items(members["tool_calls"]))
        written = [_write_call(raw, next(calls)) if raw[:1] == b"{" else raw for raw in listed]
        members["tool_calls"] = msgspec.Raw(b"[" + b",".join(written) + b"]")
    rename(message, members, "tool_call_id")
    return msgspec.json.encode(members)


def _read_calls(members: dict[str, msgspec.Raw]) -> tuple[ToolCall, ...]:
    """The message's tool calls. A call of an unknown type has its whole JSON as arguments."""
    calls = decode_member(members["tool_calls"]) if "tool_calls" in members else None
    if not isinstance(calls, list):
        return ()
    # Such members may hold what a server has signed together with the calls.
    is_bound = not members.keys().isdisjoint(REASONING_KEYS)
    read = [_read_call(call) for call in calls if isinstance(call, dict)]
    return tuple([replace(call, shortens=Arguments.FIXED) for call in read] if is_bound else read)


def _read_call(call: dict[str, Any]) -> ToolCall:
    given, called = call.get("id"), call.get("function")
    call_id, id_json = read_id(given), write_id(given)
    function = called or call.get("custom")
    if not isinstance(function, dict):
        said = {name: value for name, value in call.items() if name not in CACHE_MARKERS}
        whole = msgspec.json.encode(said).decode()
        return ToolCall(call_id, str(call.get("type") or ""), whole, id_json, shortens=Arguments.FIXED)
    arguments = function.get("arguments", function.get("input", ""))
    shortens = Arguments.JSON if called else Arguments.TEXT
    if not isinstance(arguments, str):
        arguments = msgspec.json.encode(arguments).decode()
    if not call.keys() <= _OF_CALL or not function.keys() <= _OF_FUNCTION:
        shortens = Arguments.FIXED
    return ToolCall(call_id, str(function.get("name") or ""), arguments, id_json, shortens=shortens)


def _write_call(raw: bytes, call: ToolCall) -> bytes:
    """The call with new arguments; the same bytes if they are equal."""
    if call.shortens is Arguments.FIXED or _read_call(decode_any(raw)).arguments == call.arguments:
        return raw
    members = decode_members(raw)
    kind = "function" if decode_member(members.get("function")) else "custom"
    inner = decode_members(members[kind])
    key = "arguments" if "arguments" in inner else "input"
    inner[key] = write_arguments(call, inner[key])
    return msgspec.json.encode({**members, kind: msgspec.Raw(msgspec.json.encode(inner))})
