"""Sessions in the form of chat completions: messages of all kinds that clients send."""

from fuzzing.choices import Choices
from fuzzing.session_bodies import Grammar, Wire, write_text

IDS = ("a", "b", "c", "call_1", "")
MEDIA = (
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}},
    {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    {"type": "file", "file": {"file_data": "data:text/plain;base64,AAAA"}},
    {"type": "thing", "url": "data:"},
)
TOOL = {
    "type": "function",
    "function": {"name": "run", "description": "Runs.", "parameters": {"type": "object", "properties": {}}},
}


def _members(choices: Choices) -> Wire:
    members: Wire = {"model": "m"}
    if choices.happens(64):
        members["stream"] = True
    if choices.happens(64):
        members["tools"] = [TOOL] * choices.below(3)
    if choices.happens(48):
        members[choices.pick(("max_tokens", "max_completion_tokens"))] = choices.pick((100, 1, 2000, 10**6))
    return members


def _start(choices: Choices) -> list[Wire]:
    if not choices.happens(96):
        return []
    return [{"role": choices.pick(("system", "developer")), "content": write_text(choices, 30)}]


def _step(choices: Choices, number: int) -> list[Wire]:
    """Calls with their results, sometimes in another order; a message; a call or a result without the other."""
    kind = choices.below(11)
    if kind < 5:
        calls = [_call(f"c{number}-{rank}", f'{{"path":"{rank}"}}') for rank in range(1 + choices.below(3) // 2)]
        results = [{"role": "tool", "tool_call_id": call["id"], "content": _say(choices)} for call in calls]
        if choices.happens(16):
            results.reverse()
        return [{"role": "assistant", "content": write_text(choices, 20), "tool_calls": calls}, *results]
    if kind == 5:
        calls = [_call(choices.pick(IDS), "{}") for _ in range(1 + choices.below(3))]
        return [{"role": "assistant", "content": None, "tool_calls": calls}]
    if kind == 6:
        return [{"role": "tool", "tool_call_id": choices.pick(IDS), "content": write_text(choices, 90)}]
    if kind == 7:
        parts = [{"type": "text", "text": write_text(choices, 30)}, choices.pick(MEDIA)]
        return [{"role": "user", "content": parts}]
    role = ("user", "assistant", "function")[kind - 8]
    return [{"role": role, "content": write_text(choices)}]


def _call(call_id: str, arguments: str) -> Wire:
    return {"id": call_id, "type": "function", "function": {"name": "run", "arguments": arguments}}


def _say(choices: Choices) -> str | list[Wire]:
    """A result's content: one text, or several parts."""
    if not choices.happens(32):
        return write_text(choices, 120)
    return [{"type": "text", "text": write_text(choices, 90)} for _ in range(1 + choices.below(3))]


GRAMMAR = Grammar(
    "messages",
    _members,
    _start,
    _step,
    (
        "role", "content", "tool_calls", "tool_call_id", "name", "function_call", "reasoning_content", "refusal",
        "cache_control", "audio", "model", "tools", "functions", "tool_choice", "response_format", "n", "id", "type",
    ),
)  # fmt: skip
