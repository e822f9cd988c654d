"""The request for a summary, and the response to it."""

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dialects.messages_checker import check_request
from support.dialects.messages_validity import check_body, walk_markable
from support.dialects.oddities import NotConvertibleError
from support.dialects.to_messages import to_messages
from support.odd_json import dump, odd_objects
from support.sessions import read_rows, recorded_files, some_sessions

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.compactor import Compactor
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.answering import Question
from trimtab.proxy.wire.codec import Counting
from trimtab.proxy.wire.messages.codec import COUNT_TOKENS, MESSAGES
from trimtab.proxy.wire.transcript.body import UndecodableError
from trimtab.rules.conversation import Conversation, Origin, Role, ToolCall
from trimtab.rules.pipeline.exceeded import LimitExceededError
from trimtab.rules.policy import Policy

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
    assert asked["messages"] == [*TALK, {"role": "user", "content": "WRITE"}]
    assert (asked["system"], asked["tools"], asked["max_tokens"], asked["stream"]) == ("Be brief.", TOOLS, 400, False)
    assert asked["temperature"] == 0.2
    assert check_body(asked) == []


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


@pytest.mark.parametrize(
    ("max_tokens", "budget", "expected"), [(9000, 1024, 1424), (9000, 8999, 9000), (2000, 1500, 1900), (500, 450, 850)]
)
def test_thinking_gets_room_within_the_clients_own_limit(max_tokens: int, budget: int, expected: int) -> None:
    """A model may refuse a larger limit. If the client's is small, the summary's is added. No temperature is sent."""
    asked = _ask_behind(TALK, max_tokens=max_tokens, thinking={"type": "enabled", "budget_tokens": budget})
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


def _body(*messages: bytes) -> bytes:
    return b'{"model":"m","messages":[' + b",".join(messages) + b"]}"


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


@pytest.mark.parametrize("system", ['""', "null", "[]"])
def test_an_empty_system_prompt_is_no_message(counting: Counting, system: str) -> None:
    request = MESSAGES.read(b'{"system":%b,"messages":[%b]}' % (system.encode(), USER))
    assert [message.role for message in MESSAGES.decode(request, counting).messages] == [Role.USER]


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


def test_a_made_result_joins_the_results_of_its_step() -> None:
    """A call without a result gets one in the next user element, before its texts."""
    call = b'{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"ls","input":{}}]}'
    body = orjson.dumps({"model": "m", "max_tokens": 9, "messages": [1, 2, 3]}).replace(
        b"1,2,3", b",".join([USER, call, b'{"role":"user","content":"and?"}'])
    )
    compactor = Compactor(count_by_heuristic)
    compacted = compactor.apply(compactor.plan(MESSAGES.read(body), Policy(context_window=9000)), None)
    last = orjson.loads(compacted.body)["messages"][-1]
    assert [block["type"] for block in last["content"]] == ["tool_result", "text"]
    assert last["content"][0]["tool_use_id"] == "c"


def test_consecutive_elements_of_one_role_stay_apart() -> None:
    """The API joins them itself; so does a late result keep its place behind an earlier one."""
    call = b'{"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"ls","input":{}}]}'
    body = _body(USER, USER, call, RESULTS, USER)
    edited = orjson.loads(_encode(body, _shorten_results).replace(b"\\ud83d", b""))
    assert [message["role"] for message in edited["messages"]] == ["user", "user", "assistant", "user", "user"]


def test_tools_and_system_count_as_work_until_they_are_known(counting: Counting) -> None:
    body = b'{"system":"%b","tools":[1],"messages":[%b,%b]}' % (b"x" * 100, USER, CALLER)
    request = MESSAGES.read(body)
    assert MESSAGES.uncounted_bytes(request, counting) > 100 + len(USER) + len(CALLER)
    conversation = MESSAGES.decode(request, counting)
    assert MESSAGES.uncounted_bytes(request, counting) == 0
    assert 0 < MESSAGES.count_outside(request, counting).format_tokens < conversation.fixed_tokens


@pytest.mark.parametrize(
    ("members", "counts"),
    [
        ({}, True),
        ({"temperature": 1, "metadata": {"user_id": "x"}, "thinking": {"type": "adaptive"}}, True),
        ({"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}}, True),
        ({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}, False),
        ({"context_management": {}}, False),
        ({"context_management": 1}, False),
        ({"mcp_servers": []}, False),
        ({"of_the_future": 1}, False),
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


@pytest.mark.parametrize("raw", [b"", b"[]", b'{"messages":{}}', b"{}", b'{"messages":[', b"\xff"])
def test_what_is_no_request_is_refused(raw: bytes) -> None:
    with pytest.raises(UndecodableError):
        MESSAGES.read(raw)


def test_counting_reads_and_writes_the_same_requests(counting: Counting) -> None:
    request = COUNT_TOKENS.read(PRETTY)
    assert COUNT_TOKENS.is_count
    assert request.codec is COUNT_TOKENS
    assert COUNT_TOKENS.decode(request, counting) == MESSAGES.decode(MESSAGES.read(PRETTY), counting)


def test_recorded_requests_are_counted_in_full() -> None:
    rows = (row for file in recorded_files("wire") for row in read_rows(file))
    bodies = [row["body"] for row in rows if row["path"].endswith("/messages")]
    assert bodies
    assert all(MESSAGES.counts_all(MESSAGES.read(orjson.dumps(body))) for body in bodies)


@pytest.mark.recorded
def test_compacted_recordings_are_valid() -> None:
    """Each body is what an independent checker of the API accepts, and keeps what a client relies on."""
    cuts = 0
    for file in recorded_files("conversations"):
        if file.stem.startswith("chained"):
            continue
        for session in some_sessions(file):
            try:
                body = orjson.dumps(to_messages(session, with_thinking=True, with_markers=True))
                compactor = Compactor(count_by_heuristic)
                compacted = compactor.apply(compactor.plan(MESSAGES.read(body), Policy(context_window=24_000)), None)
            except (NotConvertibleError, LimitExceededError):
                continue
            assert check_request(body, compacted.body, last_may_shrink=True) == [], session["id"]
            cuts += any(decision.rule == "digest" for decision in compacted.decisions)
    assert cuts > 0


def test_tools_go_by_their_names() -> None:
    """One that the request's choice names stays."""
    tools = [{"name": name, "input_schema": {"type": "object"}} for name in ("a", "b")]
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "a"}], "tools": tools}
    counting = Counting(count_by_heuristic, make_known())
    for choice, left in (({"type": "auto"}, []), ({"type": "tool", "name": "b"}, tools[1:])):
        request = MESSAGES.read(orjson.dumps({**body, "tool_choice": choice}))
        written, number = MESSAGES.drop_tools(request, MESSAGES.decode(request, counting), ("*",), counting)
        assert (orjson.loads(written).get("tools", []), number) == (left, 2 - len(left))
