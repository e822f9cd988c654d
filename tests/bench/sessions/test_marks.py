"""Marks are read from a request, and a message is the same with them and without."""

from typing import Any

import orjson
import pytest

from bench.sessions.marks import NO_MARKS, Place, split_marked
from bench.sessions.prompts import split_body

CONTROL = {"type": "ephemeral"}
EXPLICIT = {"mode": "explicit"}


def write(*messages: dict[str, Any], **more: object) -> bytes:
    """A request body."""
    return orjson.dumps({"model": "m", "messages": messages, **more})


def test_a_body_without_marks_has_its_parts_and_none() -> None:
    body = write({"role": "user", "content": "cache_control is a key"})
    assert split_marked(body) == (split_body(body), NO_MARKS)


@pytest.mark.parametrize("name", ["cache_control", "prompt_cache_breakpoint"])
def test_a_text_that_became_a_marked_block_is_the_same_message(name: str) -> None:
    plain = write({"role": "user", "content": f"same text {name}"})
    block = {"type": "text", "text": f"same text {name}", name: CONTROL}
    (before, _), (after, marks) = split_marked(plain), split_marked(write({"role": "user", "content": [block]}))
    assert before[1] is after[1]
    found = marks.controls if name == "cache_control" else marks.breakpoints
    assert found == (Place(1, len(after[1].text)),)


def test_a_list_of_one_block_stays_the_same_message_when_it_is_marked() -> None:
    block = {"type": "text", "text": "listed from the beginning"}
    plain = write({"role": "user", "content": [block]})
    marked = write({"role": "user", "content": [{**block, "cache_control": CONTROL}]})
    assert split_marked(plain)[0][1] is split_marked(marked)[0][1]


def test_a_mark_inside_a_message_has_the_place_where_its_block_ends() -> None:
    blocks = [
        {"type": "text", "text": "task"},
        {"type": "text", "text": "summary", "prompt_cache_breakpoint": EXPLICIT},
        {"type": "text", "text": "tail"},
    ]
    parts, marks = split_marked(write({"role": "user", "content": blocks}))
    (place,) = marks.breakpoints
    assert parts[1].text[: place.chars] == "task\nsummary"


def test_a_mark_on_a_message_stands_at_its_end() -> None:
    parts, marks = split_marked(write({"role": "tool", "tool_call_id": "a", "content": "x", "cache_control": CONTROL}))
    assert marks.controls == (Place(1, len(parts[1].text)),)
    assert parts[1].answers == "a"


def test_a_mark_on_a_message_with_calls_stands_behind_them() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    message = {"role": "assistant", "content": "so", "tool_calls": [call], "cache_control": CONTROL}
    parts, marks = split_marked(write(message))
    assert parts[1].text[: marks.controls[0].chars] == "so\nlook\n{}"


def test_marks_beside_the_messages() -> None:
    user = {"role": "user", "content": "hello"}
    assert split_marked(write(user, cache_control=CONTROL))[1].is_automatic
    assert split_marked(write(user, prompt_cache_options={"mode": "explicit", "ttl": "30m"}))[1].is_explicit
    assert not split_marked(write(user, prompt_cache_options={"mode": "implicit"}))[1].is_explicit


def test_a_marked_tool_marks_the_end_of_the_tools() -> None:
    tool = {"type": "function", "function": {"name": "look"}}
    user = {"role": "user", "content": "hello"}
    plain, _ = split_marked(write(user, tools=[tool]))
    parts, marks = split_marked(write(user, tools=[{**tool, "cache_control": CONTROL}]))
    assert parts[0] is plain[0]
    assert marks.controls == (Place(0, len(parts[0].text)),)
