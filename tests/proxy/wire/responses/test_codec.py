"""The dialect as a whole: recorded requests, and recorded sessions in two dialects."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import orjson
import pytest
from support.sessions import make_session, read_rows, recorded_files

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.compactor import Compacted, Compactor
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.codec import Codec, Counting
from trimtab.proxy.wire.responses.codec import RESPONSES
from trimtab.proxy.wire.responses.units import RESULT_TYPES
from trimtab.rules.policy import Policy

POLICY = Policy(context_window=32_000)
MAX_SESSIONS = 3
"""Sessions of each file that are compared. Chosen: a few seconds for all files."""
RESULTS = {result: call for call, result in RESULT_TYPES.items()}


def _read_recorded() -> Iterator[dict[str, Any]]:
    """The bodies that real clients sent to this endpoint."""
    for file in recorded_files("wire"):
        yield from (row["body"] for row in read_rows(file) if row["path"].endswith("/responses"))


def test_recorded_requests_are_decoded_and_written_back() -> None:
    """Byte for byte, however they are spaced. Their messages are those of the client."""
    bodies = list(_read_recorded())
    assert len(bodies) > 2
    for body in bodies:
        for option in (0, orjson.OPT_INDENT_2):
            encoded = orjson.dumps(body, option=option)
            request = RESPONSES.read(encoded)
            before = RESPONSES.decode(request, Counting(count_by_heuristic, make_known()))
            assert b"".join(RESPONSES.encode(request, before, replace(before))) == encoded
            assert before.messages


def _convert(session: dict[str, Any]) -> dict[str, Any]:
    """A session of chat completions as a request of this dialect: its first system message as the instructions."""
    first, *rest = session["messages"]
    has_instructions = first["role"] == "system" and isinstance(first["content"], str)
    body: dict[str, Any] = {"instructions": first["content"]} if has_instructions else {}
    messages = rest if has_instructions else session["messages"]
    tools = [{"type": "function", **tool["function"]} for tool in session.get("tools") or ()]
    return {**body, "tools": tools, "input": [item for message in messages for item in _convert_message(message)]}


def _convert_message(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    content = message.get("content")
    text_type = "output_text" if message["role"] == "assistant" else "input_text"
    if isinstance(content, list):
        content = [part | {"type": text_type} if part["type"] == "text" else part for part in content]
    if message["role"] == "tool":
        yield {"type": "function_call_output", "call_id": message.get("tool_call_id") or "", "output": content or ""}
        return
    calls = message.get("tool_calls") or ()
    if content or not calls:
        yield {"type": "message", "role": message["role"], "content": content or ""}
    for call in calls:
        yield {"type": "function_call", "call_id": call["id"], **call["function"]}


def _compact(codec: Codec, body: dict[str, Any]) -> Compacted:
    compactor = Compactor(count_by_heuristic)
    return compactor.apply(compactor.plan(codec.read(orjson.dumps({"model": "m", **body})), POLICY), None)


def _check_items(items: list[dict[str, Any]]) -> None:
    """Right after the calls that the model made in one go come their results, each of the kind that fits its call."""
    wanted: dict[str, list[str]] = {}
    answering = False
    for item in items:
        kind = item.get("type", "message")
        if kind in RESULTS:
            answering = True
            assert wanted[item["call_id"]].pop() == RESULTS[kind]
            continue
        assert not answering or not any(wanted.values())
        answering = False
        if kind in RESULT_TYPES:
            wanted.setdefault(item["call_id"], []).append(kind)
        else:
            assert item["content"]
    assert not any(wanted.values())


def _check_session(session: dict[str, Any]) -> bool:
    """Compare a session in both dialects; returns whether it was cut."""
    chat, ours = _compact(CHAT, session), _compact(RESPONSES, _convert(session))
    assert chat.decisions == ours.decisions
    assert (chat.original_tokens, chat.sent_tokens) == (ours.original_tokens, ours.sent_tokens)
    _check_items(orjson.loads(ours.body)["input"])
    return any(decision.rule == "digest" for decision in ours.decisions)


def test_a_session_gets_the_same_decisions_in_both_dialects() -> None:
    assert _check_session(make_session(80))


@pytest.mark.parametrize("file", recorded_files("conversations"), ids=lambda file: file.stem)
def test_recorded_sessions_get_the_same_decisions_in_both_dialects(file: Any) -> None:
    """And cost the same: whoever counts, the dialect makes no difference."""
    for session in islice(read_rows(file), MAX_SESSIONS):
        _check_session(session)
