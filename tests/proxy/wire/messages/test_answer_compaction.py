"""Anthropic's compaction on demand: what is asked, and which answers have a note."""

from typing import Any

import orjson
import pytest

from trimtab.proxy.compaction.caches import Caches
from trimtab.proxy.wire.answering import Question
from trimtab.proxy.wire.codec import Counting
from trimtab.proxy.wire.messages.answer import MOST_INSTRUCTIONS_CHARS, NOTE
from trimtab.proxy.wire.messages.codec import MESSAGES
from trimtab.proxy.wire.transcript.body import UndecodableError

BLOCK = {"type": "compaction", "content": "Nine metres.", "signature": "c2ln"}
TALK = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
ITERATIONS = [
    {"type": "compaction", "input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 90},
    {"type": "compaction", "input_tokens": 1, "output_tokens": 2, "cache_creation_input_tokens": 4},
    {"output_tokens": 30},
    {"input_tokens": 600},
]
USAGE = {"input_tokens": 0, "output_tokens": 0, "iterations": ITERATIONS}


def _make_answer(*blocks: Any, stop_reason: str = "compaction", **more: Any) -> dict[str, Any]:
    return {"type": "message", "content": list(blocks), "stop_reason": stop_reason, "usage": USAGE, **more}


def _read(answer: Any) -> Any:
    return NOTE.read(orjson.dumps(answer))


def _ask(instructions: str = "", messages: Any = TALK, **more: Any) -> dict[str, Any] | None:
    body = {"model": "claude", "max_tokens": 900, "messages": messages, **more}
    request = MESSAGES.read(orjson.dumps(body))
    prefix = MESSAGES.decode(request, Counting(len, Caches().known))
    asked = MESSAGES.ask_provider(request, prefix, Question("claude", 400, 0.2), instructions=instructions)
    return None if asked is None else orjson.loads(asked)


def test_the_conversation_is_sent_as_it_is_with_the_parameter() -> None:
    """With the members that the prompt and the cache depend on; without those that it must not have."""
    tools = [{"name": "t", "input_schema": {"type": "object"}}]
    management = {"edits": [{"type": "clear_thinking_20251015"}]}
    more: dict[str, Any] = {"system": "Be brief.", "tools": tools, "metadata": {"user_id": "u"}, "stream": True}
    more |= {"stop_sequences": ["x"], "temperature": 1, "context_management": management}
    asked = _ask(**more, tool_choice={"type": "any"})
    kept = {"model": "claude", "system": "Be brief.", "tools": tools, "metadata": {"user_id": "u"}, "messages": TALK}
    assert asked == {**kept, "max_tokens": 400, "stream": False, "compaction": {"type": "summarize"}}


def test_instructions_replace_the_providers_own() -> None:
    """So they begin with what it must be told, and end where its limit is."""
    asked = _ask("Keep names.")
    assert asked["compaction"]["instructions"].endswith("Do not call tools.\nKeep names.")
    longest = _ask("n" * MOST_INSTRUCTIONS_CHARS)
    assert len(longest["compaction"]["instructions"]) == MOST_INSTRUCTIONS_CHARS


@pytest.mark.parametrize(
    "more",
    [
        {"context_management": {"edits": [{"type": "compact_20260112"}]}},
        {"output_config": {"task_budget": {"total": 9, "remaining": 3}}},
        {"output_config": {"format": {"type": "json_schema", "schema": {}}}},
        {"messages": [{"role": "system", "content": "s"}, *TALK]},
        {"messages": [{"role": "assistant", "content": [BLOCK]}, *TALK]},
    ],
)
def test_it_is_not_asked_if_the_request_or_later_ones_would_be_refused(more: dict[str, Any]) -> None:
    """A client's own compaction, a running budget, a prescribed form, a system message that would come before."""
    assert _ask(**more) is None


def test_the_budget_of_a_task_alone_is_no_hindrance() -> None:
    """Only what remains of it is."""
    assert _ask(output_config={"task_budget": {"total": 9}}) is not None


def test_a_signed_block_is_the_note() -> None:
    """With the bytes that it came with; its text can be read. Its cost is that of all iterations."""
    raw = b'{ "type":"compaction","content":"Nine \\u006detres.", "signature":"c2ln" }'
    answer = orjson.dumps(_make_answer()).replace(b'"content":[]', b'"content":[' + raw + b"]")
    found = NOTE.read(answer)
    assert found.note == b'{"role":"assistant","content":[' + raw + b"]}"
    assert found.text == "Nine metres."
    usage = found.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, usage.written_tokens) == (705, 37, 90, 4)


def test_a_block_may_have_metadata_of_its_own() -> None:
    """It is sent back as it is."""
    block = {**BLOCK, "encrypted_content": "c2VhbGVk"}
    assert orjson.loads(_read(_make_answer(block)).note)["content"] == [block]


def test_the_block_of_a_stream_comes_whole() -> None:
    """The usage is in the last event but one."""
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"usage": {"input_tokens": 3}}},
        {"type": "ping"},
        {"type": "content_block_start", "index": 0, "content_block": BLOCK},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "compaction"}, "usage": USAGE},
        {"type": "message_stop"},
    ]
    stream = b"".join(b"event: x\ndata: %b\n\n" % orjson.dumps(event) for event in events)
    assert NOTE.read(stream) == _read(_make_answer(BLOCK))
    cut = [events[0], {**events[4], "delta": {"stop_reason": "max_tokens"}}]
    assert NOTE.read(b"".join(b"data: %b\n\n" % orjson.dumps(event) for event in cut)).was_cut


@pytest.mark.parametrize(
    "blocks",
    [
        [],
        [BLOCK, {"type": "text", "text": "t"}],
        [{**BLOCK, "type": "text"}],
        [{**BLOCK, "content": None}],
        [{**BLOCK, "content": " "}],
        [{**BLOCK, "signature": ""}],
        [{"type": "compaction", "content": "t"}],
        [{**BLOCK, "strange": 1}],
    ],
)
def test_anything_else_is_no_note(blocks: list[Any]) -> None:
    """A block that is not signed, is blank, or is not alone."""
    assert _read(_make_answer(*blocks)).note == b""


def test_why_there_is_none() -> None:
    """It was cut, refused, or the model answered: that text is no note."""
    assert _read(_make_answer(stop_reason="max_tokens")).was_cut
    assert not _read(_make_answer(stop_reason="refusal")).was_cut
    assert _read(_make_answer(stop_reason="refusal")).was_filtered
    assert not _read(_make_answer(stop_reason="end_turn")).was_filtered
    assert _read(_make_answer({"type": "text", "text": "Hi"}, {"type": "text", "text": "!"})).text == "Hi!"


@pytest.mark.parametrize(
    "answer",
    [b"", b"{}", b'{"content":[1]}', b'{"type":"error","content":[]}'],
)
def test_what_cannot_be_read_is_said_to_be_so(answer: bytes) -> None:
    """Never another error."""
    with pytest.raises(UndecodableError):
        NOTE.read(answer)


def test_a_strange_usage_costs_the_note_nothing() -> None:
    """It counts as not reported."""
    for usage in (None, [1], {"iterations": 3}, {"iterations": [1, {"input_tokens": "x"}]}):
        found = _read(_make_answer(BLOCK, usage=usage))
        assert found.note
        assert found.usage.prompt_tokens is None
