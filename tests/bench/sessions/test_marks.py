"""Marks are read from a request, and a message is the same with them and without."""

from typing import Any

import orjson
import pytest

from bench.sessions.marks import Place, split_marked

CONTROL = {"type": "ephemeral"}
EXPLICIT = {"mode": "explicit"}


def write(*messages: dict[str, Any], **more: object) -> bytes:
    """A request body."""
    return orjson.dumps({"model": "m", "messages": messages, **more})


@pytest.mark.parametrize("name", ["cache_control", "prompt_cache_breakpoint"])
def test_a_text_that_became_a_marked_block_is_the_same_message(name: str) -> None:
    plain = write({"role": "user", "content": f"same text {name}"})
    block = {"type": "text", "text": f"same text {name}", name: CONTROL}
    (before, _), (after, marks) = split_marked(plain), split_marked(write({"role": "user", "content": [block]}))
    assert before[1] is after[1]
    found = marks.controls if name == "cache_control" else marks.breakpoints
    assert found == (Place(1, len(after[1].text)),)


def test_a_mark_inside_a_message_has_the_place_where_its_block_ends() -> None:
    blocks = [
        {"type": "text", "text": "task"},
        {"type": "text", "text": "summary", "prompt_cache_breakpoint": EXPLICIT},
        {"type": "text", "text": "tail"},
    ]
    parts, marks = split_marked(write({"role": "user", "content": blocks}))
    (place,) = marks.breakpoints
    assert parts[1].text[: place.chars] == "task\nsummary"


def test_a_marked_tool_marks_the_end_of_the_tools() -> None:
    tool = {"type": "function", "function": {"name": "look"}}
    user = {"role": "user", "content": "hello"}
    plain, _ = split_marked(write(user, tools=[tool]))
    parts, marks = split_marked(write(user, tools=[{**tool, "cache_control": CONTROL}]))
    assert parts[0] is plain[0]
    assert marks.controls == (Place(0, len(parts[0].text)),)
