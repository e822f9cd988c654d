"""The request for a summary, and the response to it."""

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dialects.messages_validity import check_body, walk_markable
from support.odd_json import dump, odd_objects

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.answering import Question
from trimtab.proxy.wire.codec import Counting
from trimtab.proxy.wire.messages.codec import COUNT_TOKENS, MESSAGES
from trimtab.proxy.wire.transcript.body import UndecodableError
from trimtab.rules.conversation import Conversation, Origin, Role, ToolCall

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


@pytest.mark.parametrize(("stop", "kinds"), [(2, ["text", "text"]), (4, ["tool_result", "text"]), (5, ["tool_result"])])
def test_the_question_joins_the_last_words_of_the_user(stop: int, kinds: list[str]) -> None:
    """Also if the prefix ends within an element."""
    asked = _ask_behind(TALK, stop)
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
    assert check_body(full) == []
    assert not any("cache_control" in block for block in full["messages"][-1]["content"])
    none = _ask_behind(TALK, 4)
    assert none is not None
    assert not any("cache_control" in block for block in walk_markable(none))


# Requests: bytes <-> Conversation.

USER = b'{"content":"hi","role":"user","content":"h\xc3\xa9llo","seed":123456789012345678901234567890}'
CALLER = (
    b'{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"c2ln"},'
    b'{"type":"tool_use","id":"c1","name":"ls","input":{"a" : 1.50}},{"type":"new","x":{"b":1.50}}]}'
)
RESULTS = (
    b'{ "role": "user", "content" : [ {"tool_use_id":"c1","type":"tool_result","content":"a.txt"},\n'
    b'  {"type":"text","text":"and \\"now\\" ]}, \\u00e9 \\ud83d","cache_control":{"type":"ephemeral"}} ] }'
)
PRETTY = b"".join(
    [
        b'\n{"model" : "m" , "metadata":{"messages":[1]}, "system":[ {"type":"text", "text":"Be brief."} ],\n',
        b'  "messages" : [ \n',
        b" ,\n  ".join([USER, CALLER, RESULTS, USER]),
        b'\n ]\t,  "stream":true,"tail":{"messages":[{"role":"user"}]}, "n": 1e2 }\n\n',
    ]
)
KINDS = ["text", "thinking", "tool_use", "tool_result", "image", "document", "compaction", "server_tool_use", "x"]
BLOCKS = odd_objects(
    "type", "text", "thinking", "signature", "data", "id", "name", "input", "tool_use_id", "content", "source",
    "cache_control", "is_error", type=st.sampled_from(KINDS),
)  # fmt: skip
ELEMENTS = odd_objects(
    "role", "content", role=st.sampled_from(["user", "assistant", "system"]), content=st.lists(BLOCKS, max_size=4)
)
BODIES = odd_objects(
    "messages", "system", "tools", "tool_choice", "thinking", "output_config", "max_tokens", "model", "thread",
    messages=st.lists(ELEMENTS, max_size=4), system=st.lists(BLOCKS, max_size=3),
)  # fmt: skip


@pytest.fixture
def counting() -> Counting:
    return _count()


def _count() -> Counting:
    return Counting(count_by_heuristic, make_known())


def _encode(body: bytes, change: object = None) -> bytes:
    request = MESSAGES.read(body)
    before = MESSAGES.decode(request, _count())
    after = replace(before) if change is None else change(before)  # type: ignore[operator]
    return b"".join(MESSAGES.encode(request, before, after))


def _shorten_results(before: Conversation) -> Conversation:
    return before.edit(
        [replace(one, texts=("cut",), edited=True) if one.role is Role.TOOL else one for one in before.messages]
    )


def test_what_stands_outside_the_messages_is_read() -> None:
    body = (
        b'{"tools":[ {"a":1} ],"system":null,"tool_choice":{},"output_config":{ },"output_format":1,"thread":"x",'
        b'"messages":[],"model":"m","max_tokens":5,"stream":true,"thinking":{"type":"enabled","budget_tokens":3}}'
    )
    request, other = MESSAGES.read(body), MESSAGES.read(b'{"messages":[],"model":3,"max_tokens":true,"thinking":[]}')
    assert (request.model, request.stream, request.max_tokens) == ("m", True, 5)
    assert request.fixed == (b"", b'[ {"a":1} ]', b"{}", b"{ }", b"1", b'"x"')
    assert request.is_reasoning
    assert request.asks_usage
    assert (other.model, other.stream, other.max_tokens, other.is_reasoning) == ("", False, None, False)


def test_a_request_is_one_conversation_with_its_system_prompt(counting: Counting) -> None:
    """The system prompt leads, and is in no element. Parts of an element differ in `part`."""
    conversation = MESSAGES.decode(MESSAGES.read(PRETTY), counting)
    assert [message.role.value for message in conversation.messages] == [
        "system", "user", "assistant", "tool", "user", "user",
    ]  # fmt: skip
    assert conversation.messages[2].tool_calls == (ToolCall("c1", "ls", '{"a" : 1.50}'),)
    assert conversation.origins == (
        Origin(0, 0), Origin(0, 1), Origin(1, 2), Origin(2, 3), Origin(2, 3, 1), Origin(3, 4),
    )  # fmt: skip
    assert conversation.shape.alternates
    assert not conversation.shape.has_system_messages
    assert not conversation.continues


def test_an_element_like_a_system_prompt_is_not_taken_for_one(counting: Counting) -> None:
    """What is remembered of the one is not used for the other."""
    MESSAGES.decode(MESSAGES.read(b'{"system":"x","messages":[]}'), counting)
    with pytest.raises(UndecodableError):
        MESSAGES.decode(MESSAGES.read(b'{"messages":["x"]}'), counting)


@pytest.mark.parametrize(
    ("thread", "continues"),
    [('{"type":"continue","previous_message_id":"x"}', True), ('{"type":"create"}', False), ('"continue"', False)],
)
def test_a_thread_continues_what_the_server_holds(counting: Counting, thread: str, *, continues: bool) -> None:
    request = MESSAGES.read(b'{"thread":%b,"messages":[%b]}' % (thread.encode(), USER))
    assert MESSAGES.decode(request, counting).continues is continues


def test_only_the_edited_result_differs() -> None:
    """The text beside it keeps its lone surrogate and its marker."""
    assert _encode(PRETTY, _shorten_results) == PRETTY.replace(RESULTS, _write_shortened())


def _write_shortened() -> bytes:
    text = RESULTS[RESULTS.index(b'{"type":"text"') : RESULTS.rindex(b" ] }")]
    return b'{"role":"user","content":[{"tool_use_id":"c1","type":"tool_result","content":"cut"},%b]}' % text


@pytest.mark.parametrize(
    ("members", "counts"),
    [
        ({"temperature": 1, "metadata": {"user_id": "x"}, "thinking": {"type": "adaptive"}}, True),
        ({"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}}, True),
        ({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}, False),
        ({"context_management": 1}, False),
        ({"mcp_servers": []}, False),
    ],
)
@pytest.mark.parametrize("length", [1, 20_000])
def test_a_request_is_counted_in_full_if_all_its_members_are(members: dict, length: int, *, counts: bool) -> None:
    """Server-side edits of anything but thinking change what the model reads."""
    message = {"role": "user", "content": "x" * length}
    request = MESSAGES.read(orjson.dumps({"messages": [message], "system": "x", "max_tokens": 1, **members}))
    assert MESSAGES.counts_all(request) is counts
    broken = MESSAGES.read(b'{"messages":[],"x":"\\ud83d"}')
    assert not MESSAGES.counts_all(broken)


@given(BODIES)
def test_odd_requests_are_refused_or_stay_whole(body: object) -> None:
    """Only UndecodableError is raised, by reading or by decoding. Nothing is lost when an edit is written."""
    raw = dump(body)
    try:
        request = MESSAGES.read(raw)
        conversation = MESSAGES.decode(request, _count())
    except UndecodableError:
        return
    assert b"".join(MESSAGES.encode(request, conversation, replace(conversation))) == raw
    written = b"".join(MESSAGES.encode(request, conversation, _shorten_results(conversation)))
    again = MESSAGES.decode(MESSAGES.read(written), _count())
    told = [(one.role, one.answers, one.tool_calls) for one in again.messages]
    ordered = sorted(told, key=str)
    assert ordered == sorted([(one.role, one.answers, one.tool_calls) for one in conversation.messages], key=str)


def test_counting_reads_and_writes_the_same_requests(counting: Counting) -> None:
    request = COUNT_TOKENS.read(PRETTY)
    assert COUNT_TOKENS.is_count
    assert request.codec is COUNT_TOKENS
    assert COUNT_TOKENS.decode(request, counting) == MESSAGES.decode(MESSAGES.read(PRETTY), counting)
