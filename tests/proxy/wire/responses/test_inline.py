"""What a summary request takes over from the client's request."""

from typing import Any

import orjson
import pytest

from proxy.wire.responses.inline import write_members

KEPT = {
    "model": "m",
    "instructions": "Be brief.",
    "tools": [{"type": "function", "name": "ls"}],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "text": {"verbosity": "low", "format": {"type": "text"}},
    "reasoning": {"effort": "low"},
    "truncation": "disabled",
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "k",
    "prompt_cache_options": {"mode": "explicit"},
    "service_tier": "flex",
    "store": False,
    "user": "u",
    "client_metadata": {"a": "b"},
    "metadata": {"a": "b"},
}
DROPPED = {
    "input": [],
    "stream": True,
    "stream_options": {"include_obfuscation": False},
    "background": True,
    "max_output_tokens": 9,
    "temperature": 1,
    "top_p": 0.5,
    "previous_response_id": None,
    "unknown": 1,
}


def _write(members: dict[str, Any]) -> dict[str, Any] | None:
    written = write_members(orjson.dumps(members))
    return None if written is None else {name: orjson.loads(bytes(value)) for name, value in written.items()}


def test_what_the_upstream_renders_or_caches_is_taken_over() -> None:
    """What says only how to respond is not."""
    assert _write(KEPT | DROPPED) == KEPT


@pytest.mark.parametrize(
    ("choice", "is_kept"),
    [
        ("auto", True),
        ("none", True),
        (None, True),
        ("required", False),
        ({"type": "function", "name": "ls"}, False),
        ({"type": "allowed_tools", "mode": "auto", "tools": []}, True),
        ({"type": "allowed_tools", "mode": "required", "tools": []}, False),
        (["x"], False),
        ({"mode": ["x"]}, False),
    ],
)
def test_no_tool_is_forced(choice: object, *, is_kept: bool) -> None:
    """The model should write a summary instead."""
    written = _write({"tool_choice": choice})
    assert written is not None
    assert ("tool_choice" in written) is is_kept


@pytest.mark.parametrize(
    ("text", "is_free"),
    [
        (None, True),
        ({}, True),
        ({"format": None}, True),
        ({"format": {"type": "text"}}, True),
        ({"format": {"type": "json_object"}}, False),
        ({"format": 7}, False),
        (7, True),
    ],
)
def test_a_prescribed_form_forbids_a_summary(text: object, *, is_free: bool) -> None:
    assert (_write({"text": text}) is not None) is is_free


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"text":{"a":}}'])
def test_what_cannot_be_decoded_is_not_continued(body: bytes) -> None:
    assert write_members(body) is None
