"""Gemini's generateContent as a dialect that only the tests speak. It proves what a dialect needs beside the base.

A content has parts: texts and images, or the model's thoughts, texts and calls, or results of calls. System
instructions are outside of the contents, and so are all parameters of the answer, within one member. Results have the
name of their function, and an id only if the call has one.

Simplified: the model is a member of the body; in Google's API it is in the path. Source: its reference, v1beta.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any

import msgspec
import orjson
from support.gemini import answer

from trimtab.proxy.wire.answering import Question
from trimtab.proxy.wire.codec import Codec, Counting, Request, UndecodableError
from trimtab.proxy.wire.content import count_json, count_part, write_canonical, write_line
from trimtab.proxy.wire.json import decode_any, decode_items, decode_member, decode_or_none, read_members, write_compact
from trimtab.proxy.wire.tools import as_list, read_format
from trimtab.proxy.wire.transcript.body import Form
from trimtab.proxy.wire.transcript.elements import OUTSIDE, Placed, WriteElement
from trimtab.rules.conversation import Conversation, Media, Message, Role, Shape, ToolCall
from trimtab.rules.prefix import digest_message
from trimtab.rules.tokens.messages import NO_CHOICE, ToolsAndFormat, as_schema, count_message

FIXED = ("systemInstruction", "tools", "toolConfig", "generationConfig")
FORM = Form("contents", FIXED, long=("systemInstruction", "tools"))
TAKEN_OVER = frozenset(
    {"model", "systemInstruction", "tools", "toolConfig", "cachedContent", "safetySettings", "labels"}
)
WITHOUT_TOKENS = frozenset({"model", "stream", "safetySettings", "labels", "contents", *FIXED})
OUTPUTS = ("output", "result", "content", "error")
"""Members of a result that hold its text."""
USER_SIDE = frozenset({Role.USER, Role.TOOL})
_MARK = b"system:"

Part = tuple[bytes, dict[str, Any]]


def describe(members: Any) -> tuple[Any, bool, bool]:
    config = as_schema(decode_or_none(members.generationConfig))
    return config.get("maxOutputTokens"), "thinkingConfig" in config, True


def shares_element(left: Message, right: Message) -> bool:
    """What a user says and all results of one step are in one content."""
    return left.speaker in USER_SIDE and right.speaker in USER_SIDE


def decode_unit(counting: Counting, raw: bytes) -> tuple[Message, ...]:
    members = read_members(raw)
    parts = _read_parts(bytes(members.get("parts", b"[]")))
    role = decode_member(members.get("role")) or "user"
    if not parts or role not in {"user", "model", "function"}:
        problem = "a content has no parts, or an unknown role"
        raise UndecodableError(problem)
    if role == "model":
        return (_read_model(raw, parts, counting),)
    messages: list[Message] = []
    for is_result, run in groupby(parts, key=lambda part: "functionResponse" in part[1]):
        together = list(run)
        said = (_read_said(together, counting),)
        messages += [_read_result(*part, counting) for part in together] if is_result else said
    return tuple(messages)


def _read_parts(raw: bytes) -> list[Part]:
    return [(bytes(item), as_schema(decode_any(bytes(item)))) for item in decode_items(raw)]


def _read_text(part: dict[str, Any]) -> str | None:
    text = part.get("text")
    return text if isinstance(text, str) and not part.get("thought") else None


def _finish(message: Message, media: Sequence[bytes], counting: Counting, thoughts: Sequence[str] = ()) -> Message:
    tokens = count_message(message, counting.count, counting.costs, thoughts)
    return replace(message, tokens=tokens, digest=digest_message(message, map(write_canonical, media)))


def _read_media(raw: bytes, part: dict[str, Any], counting: Counting) -> Media:
    inline = as_schema(part.get("inlineData"))
    if not str(inline.get("mimeType", "")).startswith("image/"):
        cost = count_json(raw, part, counting.count)
        return Media(raw, cost.tokens, guessed_tokens=cost.guessed)
    source = {"type": "base64", "media_type": inline["mimeType"], "data": inline.get("data")}
    image = orjson.dumps({"type": "image", "source": source})
    line, cost = write_line(image, ""), count_part(image, counting.count, counting.costs)
    return Media(raw, cost.tokens, line, counting.count(line), guessed_tokens=cost.guessed)


def _read_said(parts: list[Part], counting: Counting, role: Role = Role.USER, raw: bytes | None = None) -> Message:
    texts = tuple(text for _, part in parts if (text := _read_text(part)) is not None)
    others = [(own, part) for own, part in parts if _read_text(part) is None]
    media = tuple(_read_media(own, part, counting) for own, part in others)
    own = b"[" + b",".join(part for part, _ in parts) + b"]" if raw is None else raw
    return _finish(Message(role, texts, media=media, raw=own), [raw for raw, _ in others], counting)


def _read_result(raw: bytes, part: dict[str, Any], counting: Counting) -> Message:
    told = as_schema(part["functionResponse"])
    response = as_schema(told.get("response"))
    key = _find_output(response)
    text = response[key] if key else write_compact(response)
    name, answered = told.get("name"), told.get("id")
    answers = answered if isinstance(answered, str) else ""
    message = Message(Role.TOOL, (text,), answers=answers, name=name if isinstance(name, str) else None, raw=raw)
    return _finish(replace(message, is_error=key == "error"), (), counting)


def _find_output(response: Mapping[str, Any]) -> str:
    return next((key for key in OUTPUTS if isinstance(response.get(key), str)), "")


def _read_model(raw: bytes, parts: list[Part], counting: Counting) -> Message:
    calls = [as_schema(part["functionCall"]) for _, part in parts if "functionCall" in part]
    thoughts = [part["text"] for _, part in parts if part.get("thought") and isinstance(part.get("text"), str)]
    spoken = [(own, part) for own, part in parts if "functionCall" not in part and not part.get("thought")]
    message = replace(
        _read_said(spoken, counting, Role.ASSISTANT, raw),
        tool_calls=tuple(_read_call(call) for call in calls),
        has_reasoning=bool(thoughts) or b'"thoughtSignature"' in raw,
    )
    return _finish(message, [own for own, part in spoken if _read_text(part) is None], counting, thoughts)


def _read_call(call: dict[str, Any]) -> ToolCall:
    return ToolCall(str(call.get("id") or ""), str(call.get("name") or ""), write_compact(call.get("args") or {}))


def read_tools_and_format(tools: Any, config: Any, generation: Any) -> ToolsAndFormat:
    listed = [as_schema(tool) for tool in as_list(tools)]
    functions = [one for tool in listed for one in as_list(tool.get("functionDeclarations")) if isinstance(one, dict)]
    calling = as_schema(as_schema(config).get("functionCallingConfig"))
    return ToolsAndFormat(
        functions=functions,
        functions_json=write_compact([{"type": "function", "function": function} for function in functions]),
        others=[write_compact(tool) for tool in listed if "functionDeclarations" not in tool],
        choice=NO_CHOICE if calling.get("mode") == "NONE" else None,
        format_texts=tuple(read_format({"schema": as_schema(generation).get("responseSchema")})),
    )


def list_system(request: Request) -> list[bytes]:
    return [_MARK + request.fixed[0]] if request.fixed[0] else []


def decode_system(counting: Counting, marked: bytes) -> tuple[Message, ...]:
    raw = marked[len(_MARK) :]
    parts = _read_parts(bytes(read_members(raw).get("parts", b"[]")))
    return (_read_said(parts, counting, Role.SYSTEM, raw),)


def write_system(after: Conversation) -> bytes | None:
    message = after.messages[0] if after.origins[:1] == (OUTSIDE,) else None
    return _write_own(message) if message is not None and message.edited else None


def _write_own(message: Message) -> bytes:
    """A content with new texts; everything else in it keeps its bytes."""
    members = read_members(message.raw)
    written = _write_parts(message, _read_parts(bytes(members["parts"])))
    return msgspec.json.encode({**members, "parts": msgspec.Raw(b"[" + b",".join(written) + b"]")})


def _write_parts(message: Message, parts: list[Part]) -> Iterator[bytes]:
    """The parts with each old text replaced; removed images as their lines; additional texts come last."""
    texts, media = iter(message.texts), iter(message.media)
    for own, part in parts:
        old = _read_text(part)
        if old is not None:
            new = next(texts, None)
            if new is not None:
                yield own if new == old else msgspec.json.encode({**read_members(own), "text": new})
        elif "functionCall" in part or part.get("thought"):
            yield own
        elif (kept := next(media, None)) is not None:
            yield orjson.dumps({"text": kept.line}) if kept.is_removed else kept.raw
    for kept in media:
        yield orjson.dumps({"text": kept.line}) if kept.is_removed else kept.raw
    yield from (orjson.dumps({"text": text}) for text in texts)


def write_element(names: Mapping[str, str], placed: Sequence[Placed]) -> bytes:
    """The content of these messages. `names`: the function of each call, by the call's id."""
    messages = [message.as_said() for message, _ in placed]
    first = messages[0]
    if first.role not in USER_SIDE:
        if not first.edited:
            return first.raw
        made = b'{"role":"%b","parts":[]}' % (b"model" if first.role is Role.ASSISTANT else b"user")
        return _write_own(first if first.raw else replace(first, raw=made))
    results = [_write_result(one, names) for one in messages if one.role is Role.TOOL]
    others = [one for one in messages if one.role is not Role.TOOL]
    said = [part for one in others for part in _write_parts(one, _read_parts(one.raw or b"[]"))]
    return b'{"role":"user","parts":[' + b",".join((*results, *said)) + b"]}"


def _write_result(message: Message, names: Mapping[str, str]) -> bytes:
    if not message.edited:
        return message.raw
    if not message.raw:
        told = {"id": message.answers, "name": names.get(message.answers or "", "unknown")}
        return orjson.dumps({"functionResponse": {**told, "response": {"error": message.text}}})
    told = dict(as_schema(decode_any(message.raw))["functionResponse"])
    response = as_schema(told.get("response"))
    key = _find_output(response)
    if message.answers and told.get("id") not in {None, message.answers}:
        told["id"] = message.answers
    return orjson.dumps(
        {"functionResponse": {**told, "response": {**(response if key else {}), key or "output": message.text}}}
    )


def prescribes_form(members: dict[str, msgspec.Raw]) -> bool:
    config = as_schema(decode_member(members.get("generationConfig")))
    return config.get("responseMimeType") not in (None, "text/plain") or "responseSchema" in config


def forces_call(name: str, value: msgspec.Raw) -> bool:
    return name == "toolConfig" and as_schema(as_schema(decode_member(value)).get("functionCallingConfig")).get(
        "mode"
    ) not in (None, "AUTO", "NONE")


class GeminiCodec(Codec):
    name = "gemini"
    transcript = "contents"
    outside = "systemInstruction"
    ending = ":generateContent"
    path = "/v1beta/models/any:generateContent"

    form = FORM
    fixed = attrgetter(*FIXED)
    counted_fixed = slice(1, None)
    known_members = WITHOUT_TOKENS
    shares = staticmethod(shares_element)
    describe = staticmethod(describe)
    decode_unit = staticmethod(decode_unit)
    list_outside = staticmethod(list_system)
    decode_outside = staticmethod(decode_system)
    write_outside = staticmethod(write_system)
    read_tools_and_format = staticmethod(read_tools_and_format)
    encode_message: Callable[[Message], bytes] = staticmethod(lambda said: write_element({}, ((said, None),)))

    read_answer = staticmethod(answer.read_answer)
    is_end = staticmethod(answer.is_end)
    is_part_of_answer = staticmethod(answer.is_part_of_answer)
    read_empty_answer = staticmethod(answer.read_empty_answer)
    describe_error = staticmethod(answer.describe_error)
    write_answer = staticmethod(answer.write_answer)
    join = staticmethod(answer.join)

    limits = refusable_limits = ("maxOutputTokens",)
    taken_over = TAKEN_OVER
    of_session = frozenset({"systemInstruction", "labels"})
    prescribes_form = staticmethod(prescribes_form)
    forces_call = staticmethod(forces_call)
    read_thinking = staticmethod(lambda _: None)

    def look_at(self, _: Request, messages: tuple[Message, ...]) -> tuple[tuple[Message, ...], Shape, bool]:
        return messages, Shape(has_system_messages=False), False

    def make_writer(self, _: Request, messages: Sequence[Message]) -> WriteElement:
        names = {call.id: call.name for message in messages for call in message.tool_calls}
        return partial(write_element, names)

    def write_parameters(self, question: Question, thinking_tokens: int | None, sure_tokens: int = 0) -> dict[str, Any]:
        written = super().write_parameters(question, thinking_tokens, sure_tokens)
        return {"generationConfig": {name: value for name, value in written.items() if name != "stream"}}


GEMINI = GeminiCodec()
