"""The request for a summary, and the response to it."""

from dataclasses import replace
from itertools import dropwhile
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dialects.messages_validity import check_body, walk_markable

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.compactor import Compacted, Compactor
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.answering import Question
from trimtab.proxy.wire.codec import Counting
from trimtab.proxy.wire.dialects import read_request
from trimtab.proxy.wire.messages.codec import BETA, COUNT_TOKENS, MESSAGES, drop_thinking
from trimtab.proxy.wire.messages.codec import HEADER as BOUND_HEADER
from trimtab.proxy.wire.routing import binds_thinking
from trimtab.proxy.wire.transcript.body import UndecodableError, Unsent
from trimtab.rules.conversation import Conversation, Origin, Role, ToolCall
from trimtab.rules.policy import OverflowStrategy, Policy, SectionShares

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


def test_an_empty_system_prompt_is_no_message(counting: Counting) -> None:
    for system in (b'""', b"null", b"[]"):
        request = MESSAGES.read(b'{"system":%b,"messages":[%b]}' % (system, USER))
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


def test_counting_reads_and_writes_the_same_requests(counting: Counting) -> None:
    request = COUNT_TOKENS.read(PRETTY)
    assert COUNT_TOKENS.is_count
    assert request.codec is COUNT_TOKENS
    assert COUNT_TOKENS.decode(request, counting) == MESSAGES.decode(MESSAGES.read(PRETTY), counting)


# What only makes each request different is taken out of the system prompt, if that is wanted.

NONCES = Unsent(nonces=True)
LINE = "x-anthropic-billing-header: cc_version=2.1.197.3a3; cc_entrypoint=cli; cch=%s;"


def _clean(body: bytes) -> bytes:
    return MESSAGES.clean(MESSAGES.read(body), NONCES)[0]


def _text(text: str) -> bytes:
    return b'{ "type":"text" , "text": ' + orjson.dumps(text) + b"}"


def _body(system: bytes) -> bytes:
    said = orjson.dumps({"role": "user", "content": LINE % "0"})
    return b' {"system_":1, "messages" : [ %b ], "system": %b , "model":"m" }\n' % (said, system)


HEADER, OTHER = _text(LINE % "00000"), _text("You are Claude.")


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        (b"[%b , %b]" % (HEADER, OTHER), b"[%b]" % OTHER),
        (b"[%b,%b,%b]" % (HEADER, OTHER, HEADER), b"[%b,%b]" % (OTHER, HEADER)),
        (orjson.dumps(LINE % "1" + " You are Claude."), b'"You are Claude."'),
        (b"[ %b ]" % HEADER, b"[  ]"),
        (b"[%b,%b]" % (_text(LINE % "1" + "\r\n \n"), OTHER), b"[%b]" % OTHER),
        (b"[%b]" % _text(LINE % "1" + "\nYou are Claude."), b"[%b]" % OTHER),
        (orjson.dumps(LINE % "1"), b'""'),
        (b'[{"text":"x","text":%b,"type":"text"},%b]' % (orjson.dumps(LINE % "1"), OTHER), b"[%b]" % OTHER),
    ],
)
def test_the_line_goes_and_all_else_stays(system: bytes, expected: bytes) -> None:
    """A block that holds only the line goes with its comma. What the user says is not touched."""
    request = MESSAGES.read(_body(system))
    cleaned, (decision,) = MESSAGES.clean(request, NONCES)
    assert cleaned == _body(expected)
    assert (decision.rule, decision.tokens_before, decision.tokens_after) == ("nonce", 0, 0)
    assert "cch" not in decision.reason


@pytest.mark.parametrize(
    "system",
    [
        b"[%b]" % OTHER,
        b"[%b,%b]" % (OTHER, HEADER),
        _text("x-anthropic-billing-header: this text documents it."),
        b"[%b]" % _text("The header " + LINE % "1"),
        b'[{"type":"text","title":%b}]' % orjson.dumps(LINE % "1"),
    ],
)
def test_a_text_that_does_not_begin_with_it_stays(system: bytes) -> None:
    body = _body(system)
    assert MESSAGES.clean(MESSAGES.read(body), NONCES) == (body, ())


def test_it_stays_if_that_is_not_asked_for() -> None:
    body = _body(b"[%b]" % HEADER)
    assert MESSAGES.clean(MESSAGES.read(body), Unsent(local_items=("x",))) == (body, ())


@given(st.lists(st.sampled_from([HEADER, OTHER, b"1"]), max_size=5), st.sampled_from([b",", b" ,\n"]), st.booleans())
def test_requests_that_differ_only_in_it_become_equal(blocks, separator, is_long) -> None:
    """Also in long bodies, whose messages are not searched again."""
    blocks = sorted(blocks, key=lambda block: block is not HEADER)  # those after another text stay
    after = b'"messages":[{"role":"user","content":"%b"}]' % (b"x" * 20_000 * is_long)
    bodies = [
        b'{%b,"system":[%b]}' % (after, separator.join(blocks).replace(b"cch=00000", b"cch=%05d" % number))
        for number in range(2)
    ]
    cleaned = [_clean(body) for body in bodies]
    assert cleaned[0] == cleaned[1]
    kept = list(dropwhile(lambda block: block is HEADER, blocks))
    assert orjson.loads(cleaned[0])["system"] == [orjson.loads(block) for block in kept]


# Thinking that a model has bound to what was before it.

THOUGHT = {"type": "thinking", "thinking": "It may be the cache.", "signature": "c2ln" * 40}
HIDDEN = {"type": "redacted_thinking", "data": "c2ln" * 40}
FEW = "".join(f"line {number}: nothing of note in here\n" for number in range(12))
LONG = FEW * 250
ADDED = {"prefix_mismatch_behavior": "drop_block"}
PRUNES = Policy(context_window=4_000, completion_reserve=0, overflow_strategy=OverflowStrategy.PRUNE)
WIDE = Policy(context_window=200_000)
SHORTENS_SYSTEM = replace(PRUNES, sections=SectionShares(), truncate_system=True)


def _step(number: int, *said: dict[str, object], output: str = FEW) -> list[dict[str, object]]:
    call = {"type": "tool_use", "id": f"toolu_{number}", "name": "run", "input": {}}
    result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": f"run {number}\n{output}"}
    return [{"role": "assistant", "content": [*said, call]}, {"role": "user", "content": [result]}]


def _bound_body(
    model: str = "claude-sonnet-5-5", *said: dict[str, object], steps: int = 60, **members: object
) -> bytes:
    """A session that is too long: its old results are pruned."""
    elements = [element for number in range(steps) for element in _step(number, *(said or (THOUGHT,)))]
    body = {"model": model, "max_tokens": 900, "messages": [{"role": "user", "content": "Mend it."}, *elements]}
    return orjson.dumps(body | members)


def _compact(body: bytes, policy: Policy = PRUNES):
    compactor = Compactor(lambda text: len(text) // 4)
    planned = compactor.plan(read_request(body, "messages"), policy)
    return compactor.apply(planned, None)


def _rules(compacted: Compacted) -> list[str]:
    return [decision.rule for decision in compacted.decisions]


@pytest.mark.parametrize(
    ("model", "binds"),
    [
        ("claude-fable-5-1", True),
        ("claude-mythos-6", True),
        ("claude-opus-5-20260901", False),
        ("claude-sonnet-4-6", False),
    ],
)
def test_newer_models_bind_their_thinking(model: str, *, binds: bool) -> None:
    """The version is found wherever a gateway puts the name; a date is no version."""
    assert binds_thinking(model) is binds


@pytest.mark.parametrize("is_behind", [False, True])
@pytest.mark.parametrize("thinking", [{"type": "adaptive"}, {"budget_tokens": 1024, "type": "enabled"}, {}])
def test_the_setting_is_added_to_the_clients_own(thinking: dict[str, object], *, is_behind: bool) -> None:
    """It may be before or behind the messages; the other members keep their bytes."""
    body = _bound_body(thinking=thinking)
    if not is_behind:
        body = b'{"thinking":' + orjson.dumps(thinking) + b"," + _bound_body()[1:]
    compacted = _compact(body)
    after, before = orjson.loads(compacted.body), orjson.loads(body)

    assert after["thinking"] == {**thinking, "block_binding": ADDED}
    assert compacted.headers == ((BOUND_HEADER, BETA),)
    assert {**after, "thinking": 0, "messages": 0} == {**before, "thinking": 0, "messages": 0}
    assert _rules(compacted)[-1] == "thinking"
    assert len(_rules(compacted)) > 1


def test_the_setting_is_added_beside_a_system_prompt_that_was_shortened() -> None:
    """In the same request, and with every other member as it was."""
    members = {"system": LONG, "thinking": {"type": "adaptive"}}
    compacted = _compact(orjson.dumps(members | orjson.loads(_bound_body())), SHORTENS_SYSTEM)
    after = orjson.loads(compacted.body)
    assert len(after.pop("system")) < len(LONG) / 2
    assert after.pop("thinking") == {"type": "adaptive", "block_binding": ADDED}
    assert after.keys() == {"model", "max_tokens", "messages"}


def test_a_model_that_thinks_unasked_gets_the_setting_too_and_no_answer_is_left_empty() -> None:
    """A body without the member gets one that changes nothing else. A message without content would be refused."""
    compacted = _compact(_bound_body())
    assert orjson.loads(compacted.body)["thinking"] == {"type": "adaptive", "block_binding": ADDED}
    raw = orjson.dumps({"role": "assistant", "content": [THOUGHT, HIDDEN]})
    assert orjson.loads(drop_thinking(raw))["content"] == [{"type": "text", "text": "(no answer)"}]


@pytest.mark.parametrize(
    "body",
    [
        _bound_body("claude-sonnet-4-6", thinking={"type": "enabled", "budget_tokens": 1024}),
        _bound_body("claude-sonnet-5-5", {"type": "text", "text": "I run it."}),
        _bound_body(thinking={"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "error"}}),
        _bound_body(thinking={"type": "of a later version"}),
        _bound_body(thinking="often"),
    ],
    ids=["older model", "nothing thought", "own", "unknown", "odd"],
)
def test_the_setting_is_left_out(body: bytes) -> None:
    """Only the messages change."""
    compacted = _compact(body)
    after, before = orjson.loads(compacted.body), orjson.loads(body)

    assert compacted.headers == ()
    assert {**after, "messages": 0} == {**before, "messages": 0}
    assert after["messages"] != before["messages"]
    assert "thinking" not in _rules(compacted)


def test_what_is_truncated_from_the_first_request_on_needs_no_setting() -> None:
    """The model has seen nothing else, so no answer was given behind other messages."""
    steps = [element for number in range(5) for element in _step(number, THOUGHT, output=LONG)]
    said = [{"role": "user", "content": "Mend it."}, *steps]
    body = orjson.dumps({"model": "claude-fable-5-1", "max_tokens": 9, "messages": said})
    compacted = _compact(body, WIDE)
    assert compacted.headers == ()
    assert "thinking" not in orjson.loads(compacted.body)
    assert _rules(compacted) == ["truncate"]


@pytest.mark.parametrize("is_before", [False, True])
def test_a_text_that_thinking_is_bound_to_is_not_shortened(*, is_before: bool) -> None:
    """The model has written both in one answer, so it has seen the whole text."""
    text = {"type": "text", "text": LONG}
    answer = {
        "role": "assistant",
        "content": [THOUGHT, text, *([HIDDEN] if is_before else []), _step(1)[0]["content"][0]],
    }
    said = [{"role": "user", "content": "Mend it."}, answer, _step(1)[1]]
    body = orjson.dumps({"model": "claude-fable-5-1", "max_tokens": 9, "messages": said})
    compacted = _compact(body, replace(WIDE, max_message_tokens=400))
    assert (compacted.body == body) is is_before


@pytest.mark.parametrize("is_behind", [False, True])
@pytest.mark.parametrize("said", [(THOUGHT,), (HIDDEN,), (THOUGHT, {"type": "text", "text": "I run it."})])
def test_a_request_that_turns_thinking_off_is_sent_without_any(
    said: tuple[dict[str, object], ...], *, is_behind: bool
) -> None:
    """It cannot have the setting. Everything else is as for a model that does not bind its thinking."""
    setting = {"type": "disabled"}
    bound, free = (_bound_body(model, *said, thinking=setting) for model in ("claude-opus-5-5", "claude-opus-4-8"))
    if not is_behind:
        bound, free = (
            b'{"thinking":{"type":"disabled"},' + one[1:].replace(b',"thinking":{"type":"disabled"}', b"")
            for one in (bound, free)
        )
    compacted, other = _compact(bound), orjson.loads(_compact(free).body)

    assert compacted.headers == ()
    assert _rules(compacted)[-1] == "thinking"
    for message in other["messages"]:
        if message["role"] == "assistant":
            message["content"] = [block for block in message["content"] if block not in (THOUGHT, HIDDEN)]
    assert orjson.loads(compacted.body) == {**other, "model": "claude-opus-5-5"}


@pytest.mark.parametrize(
    "element",
    [
        {"role": "user", "content": [THOUGHT]},
        {"role": "assistant", "content": [{"type": "text", "text": '"thinking"'}]},
        {"role": "assistant"},
    ],
)
def test_an_element_without_thinking_keeps_its_bytes(element: dict[str, object]) -> None:
    """The word alone is no block."""
    raw = orjson.dumps(element, option=orjson.OPT_INDENT_2)
    assert drop_thinking(raw) == raw
