"""A summary request copies what the model reads and what finds the cache, and leaves out the rest."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from support.odd_json import dump, odd_objects

from proxy.wire.codec import UndecodableError
from proxy.wire.messages.codec import MESSAGES
from proxy.wire.messages.inline import read_thinking, write_members

SCHEMA = {"type": "json_schema", "schema": {"type": "object"}}


def _write(**members: Any) -> dict[str, Any] | None:
    written = write_members(MESSAGES.read(orjson.dumps({"model": "m", "messages": [], **members})))
    return None if written is None else {name: orjson.loads(bytes(value)) for name, value in written.items()}


def test_what_is_rendered_or_cached_is_copied() -> None:
    """Limits, streaming and sampling are the summary's own."""
    kept = {
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "tools": [{"name": "ls"}],
        "tool_choice": {"type": "auto"},
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "high"},
        "context_management": {"edits": []},
        "metadata": {"user_id": "x"},
        "mcp_servers": [],
        "cache_control": {"type": "ephemeral"},
    }
    dropped = {
        "max_tokens": 9,
        "stream": True,
        "temperature": 1,
        "stop_sequences": ["x"],
        "thread": {},
        "fallbacks": [],
    }
    assert _write(**kept, **dropped) == {"model": "m", **kept}


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "ls"}])
def test_a_choice_that_forces_a_call_is_left_out(choice: object) -> None:
    assert _write(tool_choice=choice) == {"model": "m"}


@pytest.mark.parametrize(
    "members",
    [{"output_config": {"format": SCHEMA}}, {"output_format": SCHEMA}, {"compaction": {"type": "summarize"}}],
)
def test_a_prescribed_form_leaves_no_room_for_a_summary(members: dict) -> None:
    """Nor does a request that makes the server write one."""
    assert _write(**members) is None
    assert _write(**dict.fromkeys(members)) is not None


@pytest.mark.parametrize(
    ("thinking", "tokens"),
    [
        ({"type": "enabled", "budget_tokens": 1024}, 1024),
        ({"type": "adaptive"}, 0),
        ({"type": "enabled", "budget_tokens": "many"}, 0),
        ({"type": "disabled", "budget_tokens": 5}, None),
        (None, None),
        ([], None),
    ],
)
def test_thinking_is_on_or_off(thinking: object, tokens: int | None) -> None:
    written = write_members(MESSAGES.read(orjson.dumps({"messages": [], "thinking": thinking})))
    assert written is not None
    assert read_thinking(written) == tokens


@given(odd_objects("tool_choice", "thinking", "output_config", "system", "output_format", "compaction", "format"))
def test_odd_members_are_copied_or_nothing_is(members: object) -> None:
    if not isinstance(members, dict):
        return
    try:
        request = MESSAGES.read(dump({**members, "messages": []}))
    except UndecodableError:
        return
    written = write_members(request)
    assert written is None or written.keys() <= members.keys()
    if written is not None:
        assert read_thinking(written) is None or members.get("thinking")


def test_a_body_that_must_be_repaired_is_not_copied() -> None:
    assert write_members(MESSAGES.read(b'{"messages":[],"x":"\\ud83d"}')) is None
