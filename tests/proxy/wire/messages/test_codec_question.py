"""The request for a summary, and the response to it."""

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from support.dialects.messages_validity import check_body, walk_markable
from support.odd_json import dump, odd_objects

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.answering import Question
from trimtab.proxy.wire.codec import Counting
from trimtab.proxy.wire.messages.codec import MESSAGES
from trimtab.proxy.wire.transcript.body import UndecodableError

QUESTION = Question("m", 400, 0.2)
MARKER = {"type": "ephemeral"}
USE = {"type": "tool_use", "id": "c", "name": "ls", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "c", "content": "a.txt"}
TOOLS = [{"name": "ls", "input_schema": {"type": "object"}}]
TALK = [
    {"role": "user", "content": "task"},
    {"role": "assistant", "content": [USE]},
    {"role": "user", "content": [RESULT, {"type": "text", "text": "and?"}]},
    {"role": "assistant", "content": "done"},
]


def _ask_behind(
    talk: list[dict[str, Any]], stop: int | None = None, question: Question = QUESTION, **members: object
) -> dict[str, Any] | None:
    """The question after the first messages of a conversation. `stop`: how many, with the system prompt."""
    body = {"model": "client", "max_tokens": 9000, "system": "Be brief.", "tools": TOOLS, "messages": talk, **members}
    request = MESSAGES.read(orjson.dumps(body))
    whole = MESSAGES.decode(request, Counting(count_by_heuristic, make_known()))
    prefix = replace(whole, messages=whole.messages[:stop], origins=whole.origins[:stop])
    asked = MESSAGES.ask_behind(request, prefix, question, "WRITE")
    return None if asked is None else orjson.loads(asked)


def test_a_question_behind_a_conversation_begins_with_it() -> None:
    """System prompt and tools are copied; the system prompt is not repeated as a message."""
    asked = _ask_behind(TALK, temperature=1, stream=True)
    assert asked is not None
    assert asked["messages"] == [*TALK, {"role": "user", "content": "WRITE"}]
    assert (asked["system"], asked["tools"], asked["max_tokens"], asked["stream"]) == ("Be brief.", TOOLS, 400, False)
    assert asked["temperature"] == 0.2
    assert check_body(asked) == []


@pytest.mark.parametrize(("stop", "kinds"), [(2, ["text", "text"]), (4, ["tool_result", "text"]), (5, ["tool_result"])])
def test_the_question_joins_the_last_words_of_the_user(stop: int, kinds: list[str]) -> None:
    """Also if the prefix ends within an element."""
    asked = _ask_behind(TALK, stop)
    assert asked is not None
    assert check_body(asked) == []
    last = asked["messages"][-1]["content"]
    assert [block["type"] for block in last][: len(kinds)] == kinds
    assert last[-1] == {"type": "text", "text": "WRITE"}


def test_the_prefix_ends_with_a_marker_if_the_client_marks_messages() -> None:
    """The client's own are kept; there are at most four."""
    said = {"type": "text", "text": "and?", "cache_control": MARKER}
    marked = [*TALK[:2], {"role": "user", "content": [RESULT, said]}, TALK[3]]
    for stop, places in ((4, ["tool_result"]), (5, ["text"]), (2, ["text"])):
        asked = _ask_behind(marked, stop)
        assert asked is not None
        assert [block["type"] for block in walk_markable(asked) if "cache_control" in block] == places
        assert check_body(asked) == []
    full = _ask_behind(marked, 4, tools=[{**TOOLS[0], "cache_control": MARKER}] * 3, cache_control=MARKER)
    assert full is not None
    assert check_body(full) == []
    assert not any("cache_control" in block for block in full["messages"][-1]["content"])
    none = _ask_behind(TALK, 4)
    assert none is not None
    assert not any("cache_control" in block for block in walk_markable(none))


@pytest.mark.parametrize(
    ("max_tokens", "budget", "expected"), [(9000, 1024, 1424), (9000, 8999, 9000), (2000, 1500, 1900), (500, 450, 850)]
)
def test_thinking_gets_room_within_the_clients_own_limit(max_tokens: int, budget: int, expected: int) -> None:
    """A model may refuse a larger limit. If the client's is small, the summary's is added. No temperature is sent."""
    asked = _ask_behind(TALK, max_tokens=max_tokens, thinking={"type": "enabled", "budget_tokens": budget})
    assert asked is not None
    assert asked["max_tokens"] == expected
    assert "temperature" not in asked
    assert check_body(asked) == []


@pytest.mark.parametrize(
    ("message", "form"),
    [
        ("`temperature` may only be set to 1 when thinking is enabled.", "temperature"),
        ("`temperature` is deprecated for this model.", "temperature"),
        ("max_tokens: 900 > 128, which is the maximum allowed number of output tokens", "limit>128"),
        ("max_tokens: Field required", None),
    ],
)
def test_a_refused_parameter_is_named_in_the_message(message: str, form: str | None) -> None:
    """The limit is required, so only a smaller one can be tried."""
    body = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    assert MESSAGES.find_refused(QUESTION, orjson.dumps(body)) == form
    assert MESSAGES.find_refused(QUESTION, b"<html>") is None
    limited = Question("m", 400, refused=frozenset({"limit>128", "stream"}))
    asked = orjson.loads(MESSAGES.ask(limited, "x"))
    assert (asked["max_tokens"], asked["stream"]) == (128, True)


def test_a_question_of_its_own_is_of_the_clients_session() -> None:
    """It has the system prompt and the account, but neither tools nor thinking: Claude Code's login needs the first."""
    system = [{"type": "text", "text": "You are Claude Code.", "cache_control": MARKER}]
    own = {"system": system, "metadata": {"user_id": "u"}, "service_tier": "auto"}
    request = MESSAGES.read(orjson.dumps({
        "model": "m", "messages": TALK, **own, "max_tokens": 9, "thinking": {"type": "enabled", "budget_tokens": 1024},
        "tools": TOOLS, "tool_choice": {"type": "any"}, "context_management": {"edits": []}, "stream": True,
        "output_config": {"format": {"type": "json_schema"}}, "stop_sequences": ["x"],
    }))  # fmt: skip
    prefix = MESSAGES.decode(request, Counting(count_by_heuristic, make_known()))
    leading = replace(prefix, messages=prefix.messages[:1], origins=prefix.origins[:1])
    body = MESSAGES.ask_behind(request, leading, Question("other", 400), "WRITE", is_apart=True)
    assert body is not None
    asked = orjson.loads(body)
    assert {name: asked.pop(name) for name in own} == own
    assert asked.pop("messages") == [{"role": "user", "content": "WRITE"}]
    assert asked == {"model": "other", "max_tokens": 400, "stream": False}


SCHEMA = {"type": "json_schema", "schema": {"type": "object"}}


def _write(**members: Any) -> dict[str, Any] | None:
    written = MESSAGES.copy_members(MESSAGES.read(orjson.dumps({"model": "m", "messages": [], **members})))
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
    written = MESSAGES.copy_members(MESSAGES.read(orjson.dumps({"messages": [], "thinking": thinking})))
    assert written is not None
    assert MESSAGES.read_thinking(written) == tokens


@given(odd_objects("tool_choice", "thinking", "output_config", "system", "output_format", "compaction", "format"))
def test_odd_members_are_copied_or_nothing_is(members: object) -> None:
    if not isinstance(members, dict):
        return
    try:
        request = MESSAGES.read(dump({**members, "messages": []}))
    except UndecodableError:
        return
    written = MESSAGES.copy_members(request)
    assert written is None or written.keys() <= members.keys()
    if written is not None:
        assert MESSAGES.read_thinking(written) is None or members.get("thinking")


def test_a_body_that_must_be_repaired_is_not_copied() -> None:
    assert MESSAGES.copy_members(MESSAGES.read(b'{"messages":[],"x":"\\ud83d"}')) is None
