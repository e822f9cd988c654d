"""Sessions in the form of Responses: items of all kinds that clients send."""

from fuzzing.choices import Choices
from fuzzing.session_bodies import Grammar, Wire, write_text

IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"}
TOOL = {"type": "function", "name": "run", "description": "Runs.", "parameters": {"type": "object", "properties": {}}}


def _members(choices: Choices) -> Wire:
    members: Wire = {"model": "m"}
    if choices.happens(128):
        members["instructions"] = write_text(choices, 12)
    if choices.happens(64):
        members["tools"] = [TOOL, {"type": "web_search"}][: choices.below(3)]
    if choices.happens(48):
        members["max_output_tokens"] = choices.pick((100, 16, 2000, 10**6))
    if choices.happens(64):
        members["store"] = False
    if choices.happens(64):
        members["stream"] = True
    if choices.happens(32):
        members["include"] = ["reasoning.encrypted_content"]
    return members


def _start(choices: Choices) -> list[Wire]:
    items: list[Wire] = []
    if choices.happens(64):
        items.append({"type": "message", "role": choices.pick(("developer", "system")), "content": "Be brief."})
    return [*items, _say(choices)]


def _say(choices: Choices) -> Wire:
    """A message of the user: a text, or parts."""
    text = write_text(choices)
    if not choices.happens(64):
        return {"role": "user", "content": text}
    parts = [{"type": "input_text", "text": text}, IMAGE]
    return {"type": "message", "role": "user", "content": parts[: 1 + choices.below(2)]}


def _step(choices: Choices, number: int) -> list[Wire]:
    """Reasoning, a message and calls of the model, and the outputs; or what the user says.

    Rarely a call has no output, or an output has no call.
    """
    if choices.happens(40):
        return [_say(choices)]
    items: list[Wire] = []
    if choices.happens(96):
        items.append({"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": "QUFB" * 300})
    if choices.happens(160) or not items:
        content = [{"type": "output_text", "text": write_text(choices, 20), "annotations": []}]
        items.append({"type": "message", "id": f"msg_{number}", "role": "assistant", "content": content})
    if choices.happens(24):
        items.append({"type": "web_search_call", "id": f"ws_{number}", "status": "completed", "action": {}})
    pairs = [_call(choices, f"c{number}-{rank}") for rank in range(1 + choices.below(3) // 2)]
    outputs = [output for _, output in pairs]
    if choices.happens(12):
        outputs.pop()  # a client was interrupted
    if choices.happens(12):
        outputs.append({"type": "function_call_output", "call_id": f"lost{number}", "output": write_text(choices)})
    return [*items, *(call for call, _ in pairs), *outputs]


def _call(choices: Choices, key: str) -> tuple[Wire, Wire]:
    """A call of a kind, and its output."""
    text = write_text(choices, 120)
    kind = choices.below(10)
    if kind == 1:
        call = {"type": "custom_tool_call", "call_id": key, "name": "patch", "input": write_text(choices, 4)}
        return call, {"type": "custom_tool_call_output", "call_id": key, "output": text}
    if kind == 2:
        action = {"type": "exec", "command": ["ls"], "env": {}}
        call = {"type": "local_shell_call", "id": f"lsh_{key}", "call_id": key, "status": "completed", "action": action}
        return call, {"type": "local_shell_call_output", "id": key, "output": text}
    if kind == 3:
        call = {"type": "shell_call", "call_id": key, "action": {"commands": ["ls"]}}
        said = {"stdout": text, "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
        return call, {"type": "shell_call_output", "call_id": key, "output": [said]}
    if kind == 4:
        operation = {"type": "update_file", "path": "a.py", "diff": "-a\n+b"}
        call = {"type": "apply_patch_call", "call_id": key, "status": "completed", "operation": operation}
        return call, {"type": "apply_patch_call_output", "call_id": key, "status": "completed", "output": text}
    call = {"type": "function_call", "call_id": key, "name": "run", "arguments": '{"path":"a"}'}
    parts = [{"type": "input_text", "text": text}, IMAGE]
    output = parts[: 1 + choices.below(2)] if choices.happens(32) else text
    return call, {"type": "function_call_output", "call_id": key, "output": output}


GRAMMAR = Grammar(
    "input",
    _members,
    _start,
    _step,
    (
        "type", "role", "content", "text", "output", "call_id", "id", "name", "arguments", "input", "summary",
        "encrypted_content", "instructions", "previous_response_id", "conversation", "tools", "action", "image_url",
    ),
)  # fmt: skip
