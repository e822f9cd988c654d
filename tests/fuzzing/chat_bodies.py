"""Bodies of chat completions: plain sessions, sessions with oddities, damaged ones, and arbitrary bytes."""

from collections.abc import Callable, Sequence
from typing import Any

from fuzzing.choices import Choices, dump
from fuzzing.session_bodies import write_deep

Wire = dict[str, Any]
MAX_ROWS = 18
RAW, DAMAGED, ODD = 1, 2, 3
"""Kinds of bodies, chosen by the first byte. Any other kind is a plain session."""

_PLAIN = (
    "all of this is what came out\n",
    "line of a log 12345\n",
    "word ",
    "é中\U0001f600 ",
    "x",
    "error: no such file\n",
)
_IDS = ("a", "b", "c", "call_1", "")
_MEDIA = (
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}},
    {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
    {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    {"type": "file", "file": {"file_data": "data:text/plain;base64,AAAA"}},
    {"type": "thing", "url": "data:"},
)
_KEYS = (
    "role", "content", "tool_calls", "tool_call_id", "name", "function_call", "reasoning_content",
    "reasoning_details", "refusal", "cache_control", "audio",
)  # fmt: skip
_ROLES = ("user", "assistant", "tool", "system", "developer", "function", "critic", "")
_MEMBERS = (
    "model", "stream", "max_tokens", "max_completion_tokens", "tools", "functions", "tool_choice", "response_format",
    "n", "user",
)  # fmt: skip
_TOOL = {
    "type": "function",
    "function": {"name": "run", "description": "Runs.", "parameters": {"type": "object", "properties": {}}},
}


def write_body(choices: Choices) -> tuple[bytes, bool]:
    """A body, and whether any upstream could read it. Its calls and results need not match."""
    kind = choices.below(8)
    if kind == RAW:
        return choices.rest(), False
    if kind == ODD:
        return _dump_odd(_write_members(choices, _odd_message), choices), False
    body = dump(_write_members(choices, _plain_message), choices)
    return (choices.mutate(body), False) if kind == DAMAGED else (body, True)


def _write_members(choices: Choices, write: Callable[[Choices, Wire], Any]) -> Wire:
    """The members of a request with a session made of rows. `write` may change each message at the end."""
    members: Wire = {"model": "m"}
    if choices.happens(64):
        members["stream"] = True
    if choices.happens(64):
        members["tools"] = [_TOOL] * choices.below(3)
    if choices.happens(48):
        members[choices.pick(("max_tokens", "max_completion_tokens"))] = choices.pick((100, 1, 2000, 10**6))
    session: list[Wire] = []
    for number in range(choices.below(MAX_ROWS)):
        session += _row(choices, number)
    members["messages"] = [write(choices, message) for message in session]
    if choices.happens(64):
        members["temperature"] = 0.5
    return members


def _row(choices: Choices, number: int) -> Sequence[Wire]:
    """A step, a plain message, a call without a result, or a result without a call."""
    kind = choices.below(12)
    if kind < 5:
        return _step(choices, number)
    if kind == 5:
        return [{"role": choices.pick(("system", "developer")), "content": _text(choices, 30)}]
    if kind == 6:
        ids = [choices.pick(_IDS) for _ in range(1 + choices.below(3))]
        return [{"role": "assistant", "content": None, "tool_calls": [_call(one, "{}") for one in ids]}]
    if kind == 7:
        return [{"role": "tool", "tool_call_id": choices.pick(_IDS), "content": _text(choices, 90)}]
    if kind == 8:
        parts = [{"type": "text", "text": _text(choices, 30)}, choices.pick(_MEDIA)]
        return [{"role": "user", "content": parts}]
    role = ("user", "assistant", "user", "function")[kind - 9 if kind < 12 else 0]
    return [{"role": role, "content": _text(choices, 60)}]


def _step(choices: Choices, number: int) -> Sequence[Wire]:
    """An assistant's calls and their results, sometimes in another order."""
    calls = [_call(f"c{number}-{rank}", f'{{"path":"{rank}"}}') for rank in range(1 + choices.below(3) // 2)]
    results = [{"role": "tool", "tool_call_id": call["id"], "content": _content(choices)} for call in calls]
    if choices.happens(16):
        results.reverse()
    return [{"role": "assistant", "content": _text(choices, 20), "tool_calls": calls}, *results]


def _call(call_id: str, arguments: str) -> Wire:
    return {"id": call_id, "type": "function", "function": {"name": "run", "arguments": arguments}}


def _content(choices: Choices) -> Any:
    """A result's content: one text, or several parts."""
    if not choices.happens(32):
        return _text(choices, 120)
    return [{"type": "text", "text": _text(choices, 90)} for _ in range(1 + choices.below(3))]


def _text(choices: Choices, max_repeats: int) -> str:
    """A text that is not empty: empty texts belong to the odd sessions."""
    return choices.pick(_PLAIN) * (1 + choices.below(max_repeats))


def _plain_message(_choices: Choices, message: Wire) -> Wire:
    return message


def _odd_message(choices: Choices, message: Wire) -> Any:
    """The message, often with an unexpected value in it, and rarely replaced by another JSON value."""
    if choices.happens(150):
        return message
    if choices.happens(6):
        return choices.value()
    odd = dict(message)
    key = choices.pick(_KEYS)
    odd[key] = choices.pick(_ODDITIES)(choices)
    if choices.happens(64):
        odd["role"] = choices.pick(_ROLES)
    if choices.happens(16):
        odd.pop(choices.pick(_KEYS), None)
    return odd


def _dump_odd(members: Wire, choices: Choices) -> bytes:
    """The body, sometimes with a member that is odd, repeated, or written with escapes."""
    if choices.happens(64):
        members[choices.pick(_MEMBERS)] = choices.value(3)
    body = dump(members, choices)
    if choices.happens(32):
        body = dump(choices.pick(_MEMBERS), choices) + b":" + dump(choices.value(), choices) + b"," + body.lstrip()[1:]
        body = b"{" + body
    if choices.happens(16):
        body = b'{"messages":' + dump(choices.value(), choices) + b"," + body.lstrip()[1:]
    if choices.happens(8):
        body = body.replace(b'"messages"', b'"\\u006dessages"')
    if choices.happens(16):
        body = b" \n" + body + b"\t "
    return body


def _odd_parts(choices: Choices) -> list[Any]:
    parts = [{"type": "text", "text": choices.text(20)}, *_MEDIA, {"type": "input_text", "text": choices.value()}]
    return [choices.pick(parts) if choices.happens(200) else choices.value() for _ in range(choices.below(5))]


def _odd_calls(choices: Choices) -> list[Any]:
    made: list[Any] = []
    for _ in range(choices.below(4)):
        call: Any = _call(choices.pick(_IDS), choices.text(20))
        key = choices.pick(("", "id", "type", "function", "custom", "index"))
        if key:
            call[key] = choices.pick((choices.value(), {"name": choices.value(0), "input": choices.value()}))
        made.append(choices.value() if choices.happens(16) else call)
    return made


_ODDITIES: Sequence[Callable[[Choices], Any]] = (
    lambda choices: choices.text(200),
    lambda choices: choices.value(3),
    _odd_parts,
    _odd_calls,
    lambda choices: choices.pick((None, "", 0, [], {})),
    lambda choices: [choices.pick(_ROLES), choices.value()],
    write_deep,
)
