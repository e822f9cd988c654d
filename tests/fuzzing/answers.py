"""Writes responses of an upstream: streams, completions, lists of models and errors, valid and invalid."""

from collections.abc import Mapping, Sequence
from typing import Any

from fuzzing.choices import Choices, dump

_USAGES: Sequence[Any] = (
    {"prompt_tokens": 11, "completion_tokens": 3},
    {"input_tokens": 5, "output_tokens": 2, "cache_read_input_tokens": 7},
    {"prompt_tokens": -1},
    {"prompt_tokens": 10**30},
    {"prompt_tokens": 1.5, "completion_tokens": True},
    {"output_tokens": 9},
    None,
    [],
)
_MODEL_KEYS = (
    "id", "key", "parent", "owned_by", "context_length", "max_model_len", "context_window", "meta", "loaded_instances",
)  # fmt: skip
_WINDOWS = (
    4096,
    1023,
    1024,
    131_072,
    10**8,
    10**8 + 1,
    -1,
    0,
    True,
    "4096",
    4096.0,
    10**30,
    None,
    [8192],
    {"n_ctx": 8192},
)


def write_answer(choices: Choices) -> bytes:
    """The body of a completion or of a stream, intact or damaged."""
    kind = choices.below(6)
    if kind == 1:
        return choices.rest()
    if kind == 2:
        body = dump(_chunk(choices, "message"), choices)
    else:
        body = b"".join(_event(choices) for _ in range(choices.below(12)))
    return choices.mutate(body) if kind == 3 else body


def _event(choices: Choices) -> bytes:
    """An event with any line ending, on several lines, or after comments; or bytes that are not an event."""
    end = choices.pick((b"\n", b"\n", b"\r\n", b"\r"))
    kind = choices.below(10)
    if kind == 1:
        return choices.pick((b": ping", b"event: message", b"id: 1", b"retry: 1", b"data", b"data:", b"")) + end
    if kind == 2:
        return b"data: [DONE]" + end + end
    if kind == 3:
        return choices.take(choices.below(40)) + end
    data = dump(choices.value(3) if kind == 4 else _chunk(choices, "delta"), choices)
    lines = data.split(b"\n") if kind != 5 else [data[:20], data[20:]]
    space = choices.pick((b" ", b"", b"  "))
    written = b"".join(b"data:" + space + line + end for line in lines)
    return written + (b"" if choices.happens(32) else end)


def _chunk(choices: Choices, key: str) -> Mapping[str, Any]:
    """A chunk with several choices: content, reasoning, calls and usage, each sometimes with an odd value."""
    chunk: dict[str, Any] = {"id": "chatcmpl-1", "choices": []}
    for index in range(choices.below(3)):
        delta: dict[str, Any] = {"content": choices.text(40)}
        if choices.happens(64):
            delta[choices.pick(("reasoning_content", "reasoning", "refusal"))] = choices.text(20)
        if choices.happens(64):
            named = {"name": "run", choices.pick(("arguments", "input")): choices.text(20)}
            delta["tool_calls"] = [{"index": 0, choices.pick(("function", "custom")): named}]
        if choices.happens(24):
            delta[choices.pick(("content", "tool_calls", "reasoning"))] = choices.value()
        chunk["choices"].append(
            {"index": choices.pick((index, 0, 10**30, -1, "0")) if choices.happens(16) else index, key: delta}
        )
    if choices.happens(64):
        chunk["usage"] = choices.pick(_USAGES)
    if choices.happens(24):
        chunk["message"] = {"usage": choices.pick(_USAGES)}
    if choices.happens(16):
        chunk[choices.pick(("choices", "usage", "message"))] = choices.value()
    return chunk


def write_models(choices: Choices) -> bytes:
    """A list of models in any server's form, with any number as the context window."""
    kind = choices.below(6)
    if kind == 1:
        return choices.rest()
    entries: list[Any] = []
    for _ in range(choices.below(6)):
        entry: dict[str, Any] = {choices.pick(("id", "key", "name")): choices.pick(("m", "n", "", choices.text()))}
        for _ in range(choices.below(4)):
            entry[choices.pick(_MODEL_KEYS)] = choices.pick((choices.pick(_WINDOWS), choices.value()))
        entries.append(choices.value() if choices.happens(16) else entry)
    props = {"default_generation_settings": {"n_ctx": choices.pick(_WINDOWS)}}
    body = dump(({"data": entries}, entries, {"models": entries}, props)[choices.below(4)], choices)
    return choices.mutate(body) if kind == 2 else body
