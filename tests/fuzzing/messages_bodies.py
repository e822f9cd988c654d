"""Sessions in the form of Messages: blocks of all kinds that clients send."""

from fuzzing.choices import Choices
from fuzzing.session_bodies import Grammar, Wire, write_text

MARKER = {"type": "ephemeral"}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
TOOL = {"name": "run", "description": "Runs.", "input_schema": {"type": "object", "properties": {}}}


def _members(choices: Choices) -> Wire:
    members: Wire = {"model": "m", "max_tokens": choices.pick((100, 1, 2000, 10**6))}
    if choices.happens(64):
        members["system"] = write_text(choices, 12)
    elif choices.happens(96):
        block = {"type": "text", "text": write_text(choices, 12)}
        members["system"] = [block, {**block, "cache_control": MARKER}][: 1 + choices.below(2)]
    members["tools"] = [{**TOOL, "cache_control": MARKER}] if choices.happens(32) else [TOOL]
    if choices.happens(64):
        members["stream"] = True
    return members


def _start(choices: Choices) -> list[Wire]:
    return [{"role": "user", "content": _say(choices)}]


def _say(choices: Choices) -> str | list[Wire]:
    """What the user says: a text, or blocks."""
    text = write_text(choices)
    if not choices.happens(64):
        return text
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": text}}
    blocks: list[Wire] = [{"type": "text", "text": text}, IMAGE, document]
    return blocks[: 1 + choices.below(3)]


def _step(choices: Choices, number: int) -> list[Wire]:
    """A message of the model, and the message of the user with the results and perhaps more."""
    blocks = [*_think(choices), {"type": "text", "text": write_text(choices, 20)}]
    if choices.happens(40):
        return [{"role": "assistant", "content": blocks}, {"role": "user", "content": _say(choices)}]
    if choices.happens(24):
        key = f"srv{number}"
        blocks.append({"type": "server_tool_use", "id": key, "name": "web_search", "input": {"query": "x"}})
        blocks.append({"type": "web_search_tool_result", "tool_use_id": key, "content": []})
    keys = [f"c{number}-{rank}" for rank in range(1 + choices.below(3) // 2)]
    blocks += [{"type": "tool_use", "id": key, "name": "run", "input": {"path": "a"}} for key in keys]
    said = [{"role": "assistant", "content": blocks}, {"role": "user", "content": _answer_all(choices, keys)}]
    if number == 0 and choices.happens(64):
        said[1]["content"][0]["cache_control"] = MARKER
    return said


def _think(choices: Choices) -> list[Wire]:
    """What only the provider can read, or nothing."""
    blocks: list[Wire] = []
    if choices.happens(96):
        blocks.append({"type": "thinking", "thinking": write_text(choices, 8), "signature": "QUFB"})
    if choices.happens(24):
        blocks.append({"type": "redacted_thinking", "data": "QUFB" * 20})
    return blocks


def _answer_all(choices: Choices, keys: list[str]) -> list[Wire]:
    """The results of calls, and what the user adds. Rarely a call has no result, or a result has no call."""
    answers = [_answer(choices, key) for key in keys]
    if choices.happens(12):
        answers[-1] = {"type": "text", "text": write_text(choices)}  # a client was interrupted
    elif choices.happens(12):
        answers.append({"type": "tool_result", "tool_use_id": "lost", "content": write_text(choices)})
    elif choices.happens(32):
        answers.append({"type": "text", "text": write_text(choices)})
    return answers


def _answer(choices: Choices, key: str) -> Wire:
    """The result of a call."""
    result: Wire = {"type": "tool_result", "tool_use_id": key, "content": write_text(choices, 120)}
    if choices.happens(32):
        result["content"] = [{"type": "text", "text": result["content"]}, IMAGE][: 1 + choices.below(2)]
    if choices.happens(16):
        result["is_error"] = True
    return result


GRAMMAR = Grammar(
    "messages",
    _members,
    _start,
    _step,
    (
        "type", "role", "content", "text", "thinking", "signature", "data", "id", "tool_use_id", "name", "input",
        "is_error", "cache_control", "system", "tools", "source", "citations", "max_tokens",
    ),
)  # fmt: skip
