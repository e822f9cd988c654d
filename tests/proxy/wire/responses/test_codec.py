"""Single messages and items: bytes <-> Message."""

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.compactor import Compactor
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.codec import ELEMENT_BYTES, Counting
from trimtab.proxy.wire.responses.codec import RESPONSES, decode_unit, encode_message
from trimtab.proxy.wire.transcript.body import Unsent
from trimtab.rules.conversation import Conversation, Media, Message, Origin, Role
from trimtab.rules.policy import Policy

IMAGE = {"type": "input_image", "image_url": "https://x/cat.png"}


def _decode(raw: bytes | object) -> Message:
    unit = raw if isinstance(raw, bytes) else orjson.dumps(raw)
    (message,) = decode_unit(Counting(count_by_heuristic, make_known()), unit)
    assert message.raw == unit
    return message


def _encode(message: Message) -> Any:
    return orjson.loads(encode_message(message, {}))


@pytest.mark.parametrize(
    ("item", "role", "wire_role", "texts"),
    [
        ({"role": "user", "content": "x"}, Role.USER, "", ("x",)),
        ({"type": "message", "role": "system", "content": "x"}, Role.SYSTEM, "", ("x",)),
        ({"role": "developer", "content": [{"type": "input_text", "text": "x"}]}, Role.SYSTEM, "developer", ("x",)),
        ({"role": "critic", "content": "x"}, Role.OTHER, "critic", ("x",)),
        ({"type": "item_reference", "id": "msg_1"}, Role.ASSISTANT, "", ()),
        ({"id": "msg_1"}, Role.OTHER, "item_reference", ()),
        ({"type": "new_thing", "role": "user", "content": "x"}, Role.OTHER, "new_thing", ()),
        ({"type": 5, "role": "user"}, Role.OTHER, "", ()),
        (
            {"type": "additional_tools", "role": "developer", "tools": []},
            Role.SYSTEM,
            "additional_tools",
            ('{"type":"additional_tools","role":"developer","tools":[]}',),
        ),
    ],
)
def test_who_speaks(item: dict[str, Any], role: Role, wire_role: str, texts: tuple[str, ...]) -> None:
    """A message needs no type. What holds for everything after it counts as a message of the system."""
    message = _decode(item)
    assert (message.role, message.wire_role, message.texts) == (role, wire_role, texts)
    assert encode_message(message, {}) is message.raw


@pytest.mark.parametrize(
    ("role", "text_type"),
    [(Role.USER, "input_text"), (Role.ASSISTANT, "output_text"), (Role.SYSTEM, "input_text")],
)
def test_a_message_of_ours_has_the_form_of_its_role(role: Role, text_type: str) -> None:
    """Its content has parts, because llama.cpp's server reads only these from the model."""
    made = Message(role, ("a", "b"), media=(Media(orjson.dumps(IMAGE), 85),) if role is Role.USER else (), edited=True)
    assert _encode(made) == {
        "type": "message",
        "role": role,
        "content": [*({"type": text_type, "text": text} for text in "ab"), *([IMAGE] if role is Role.USER else [])],
    }
    assert _decode(_encode(made)).texts == ("a", "b")


def test_ids_and_spacing_say_nothing() -> None:
    """A client that sends items again may leave out their ids."""
    plain = {"role": "user", "content": [IMAGE]}
    digest = _decode({"type": "message", "id": "msg_1", "status": "completed", **plain}).digest
    assert digest == _decode(orjson.dumps(plain, option=orjson.OPT_INDENT_2)).digest
    assert digest != _decode({"role": "user", "content": [IMAGE | {"detail": "low"}]}).digest


def test_members_that_are_not_counted_are_told() -> None:
    """Small ones are ignored."""
    plain = {"role": "user", "content": [{"type": "input_text", "text": "x"}], "phase": "final_answer" * 9}
    assert not _decode(plain).has_uncounted
    assert not _decode(plain | {"x": 1}).has_uncounted
    assert _decode(plain | {"x": "y" * 40}).has_uncounted
    assert _decode({"role": "user", "content": [{"type": "input_text", "text": "x", "y": "z" * 40}]}).has_uncounted
    assert _decode({"type": "function_call_output", "output": "x", "namespace": "y" * 40}).has_uncounted


def test_an_item_that_needs_repair_is_read() -> None:
    """A lone surrogate becomes U+FFFD in what is read; the bytes stay."""
    message = _decode(b'{"role":"user","content":"a\\ud83d"}')
    assert message.texts == ("a\ufffd",)
    said = _decode(b'{"type":"function_call","call_id":"1","name":"ls","arguments":"\\ud83d"},{"type":"reasoning"}')
    assert said.tool_calls[0].arguments == "\ufffd"


# Requests: bytes <-> Conversation.

DEVELOPER = b'{ "type": "message",\n  "role": "developer", "content": "Be \\"brief\\" ]}, \\u00e9" }'
USER = b'{"content":"hi","role":"user","content":"h\xc3\xa9llo","seed":123456789012345678901234567890}'
REASONING = b'{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAA"}'
CALL = b'{"type":"function_call","call_id":"c1","name":"ls","arguments":"{\\"a\\": 1}","x":{"b":1.50}}'
RESULT = b'{"call_id":"c1","output":"a.txt\\nb.txt","type":"function_call_output"}'
ITEMS = [DEVELOPER, USER, REASONING, CALL, RESULT, USER]
PRETTY = b"".join(
    [
        b'\n{"model" : "m" , "metadata":{"input":[1]}, "input":[{"role":"user"}], "x":"\\"input\\": [",\n',
        b'  "input" : [ \n',
        b" ,\n  ".join(ITEMS),
        b'\n ]\t,  "stream":true,"tail":{"input":[{"role":"user"}]}, "n": 1e2 }\n\n',
    ]
)


@pytest.fixture
def counting() -> Counting:
    return _count()


def _count() -> Counting:
    return Counting(count_by_heuristic, make_known())


def _body(**members: object) -> bytes:
    return orjson.dumps({"model": "m", **members})


def _body_decode(body: bytes) -> Conversation:
    return RESPONSES.decode(RESPONSES.read(body), _count())


def _edit(conversation: Conversation, at: int, *texts: str) -> Conversation:
    messages = list(conversation.messages)
    messages[at] = replace(messages[at], texts=texts, edited=True)
    return conversation.edit(messages)


@pytest.mark.parametrize("body", [b"{}", b'{"input":null}', b'{"input":[],"prompt":{"id":"p"}}'])
def test_a_request_may_have_no_items(body: bytes) -> None:
    """Its transcript is a template or a conversation that the upstream holds."""
    assert _body_decode(body).messages == ()


def test_items_become_messages(counting: Counting) -> None:
    """The model's items are one message, whose origin is all of them."""
    conversation = RESPONSES.decode(RESPONSES.read(PRETTY), counting)
    roles = [message.role for message in conversation.messages]
    assert roles == [Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.TOOL, Role.USER]
    assert conversation.origins == (Origin(0, 1), Origin(1, 2), Origin(2, 4), Origin(4, 5), Origin(5, 6))
    assert conversation.messages[2].raw == REASONING + b"," + CALL
    assert not conversation.continues


def test_an_item_seen_before_is_not_counted_again(counting: Counting) -> None:
    """Only a unit that has grown, and what is new after it, is decoded."""
    first = RESPONSES.read(b'{"input":[%b]}' % b",".join(ITEMS[:3]))
    longer = RESPONSES.read(b'{"input":[%b]}' % b",".join(ITEMS))
    size = len(DEVELOPER) + len(USER) + len(REASONING) + 3 * ELEMENT_BYTES
    assert RESPONSES.uncounted_bytes(first, counting) == size
    conversation = RESPONSES.decode(first, counting)
    grown = len(REASONING) + 1 + len(CALL) + len(RESULT) + 2 * ELEMENT_BYTES
    assert RESPONSES.uncounted_bytes(longer, counting) == grown
    again = RESPONSES.decode(longer, counting)
    assert all(map(lambda old, new: old is new, conversation.messages[:2], again.messages))
    assert RESPONSES.uncounted_bytes(longer, counting) == 0


def test_the_instructions_are_the_first_message(counting: Counting) -> None:
    """They count as a system message does, are no item, and are written again only if they are shortened."""
    plain = _body(input=[{"role": "user", "content": "a"}])
    body = _body(instructions="Be brief.", input=[{"role": "user", "content": "a"}])
    request = RESPONSES.read(body)
    before = RESPONSES.decode(request, counting)
    assert [(message.role, message.texts) for message in before.messages] == [
        (Role.SYSTEM, ("Be brief.",)),
        (Role.USER, ("a",)),
    ]
    as_item = _body(input=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "a"}])
    assert before.tokens == _body_decode(as_item).tokens > _body_decode(plain).tokens
    assert b"".join(RESPONSES.encode(request, before, _edit(before, 1, "b"))) == body.replace(b'"a"', b'"b"')
    request = RESPONSES.read(body := _body(instructions="Be brief.", input=[{"role": "user", "content": "a"}]))
    before = RESPONSES.decode(request, counting)
    assert b"".join(RESPONSES.encode(request, before, _edit(before, 0, "Brief."))) == body.replace(b"Be b", b"B")


@pytest.mark.parametrize("instructions", ["", None])
def test_no_instructions_are_no_message(instructions: str | None) -> None:
    assert _body_decode(_body(instructions=instructions, input="a")).messages == _body_decode(_body(input="a")).messages


def test_a_text_is_a_message_of_the_user(counting: Counting) -> None:
    """It counts like one, and stays a text if it is edited. An item in just the form of a text is none."""
    body = b'{ "input": "h\\u00e9llo" , "model":"input", "x":{"input":"a"} }'
    request = RESPONSES.read(body)
    before = RESPONSES.decode(request, counting)
    assert before.messages[0].texts == ("héllo",)
    assert before.tokens == _body_decode(_body(input=[{"role": "user", "content": "héllo"}])).tokens
    assert RESPONSES.encode(request, before, before)[0] is body
    edited = b"".join(RESPONSES.encode(request, before, _edit(before, 0, "b")))
    assert edited == body.replace(b'"h\\u00e9llo"', b'"b"')
    made = Message(Role.ASSISTANT, ("c",), edited=True)
    after = replace(before, messages=(*before.messages, made), origins=(*before.origins, None))
    written = orjson.loads(b"".join(RESPONSES.encode(request, before, after)))
    assert [item["role"] for item in written["input"]] == ["user", "assistant"]
    body = b'{"input":[ {"role":"user","content":"a"} ]}'
    request = RESPONSES.read(body)
    before = RESPONSES.decode(request, counting)
    assert b"".join(RESPONSES.encode(request, before, _edit(before, 0, "b"))) == body.replace(b'"a"', b'"b"')


@pytest.mark.parametrize(
    "members",
    [
        {"previous_response_id": "resp_1"},
        {"conversation": {"id": "conv_1"}},
        {"input": [{"type": "item_reference", "id": "fc_1"}, {"type": "function_call_output", "call_id": "1"}]},
    ],
)
def test_a_transcript_may_continue_what_the_upstream_holds(members: dict[str, Any]) -> None:
    assert _body_decode(_body(**{"input": [{"role": "user", "content": "a"}], **members})).continues


def test_references_to_what_the_model_said_are_cut_with_it() -> None:
    """All calls and results are in the request, so only the text of a reference is unknown. It is counted roughly."""
    steps: list[Any] = []
    for number in range(40):
        steps.append({"type": "item_reference", "id": f"msg_{number}"})
        steps.append({"type": "function_call", "call_id": f"c{number}", "name": "run", "arguments": "{}"})
        steps.append({"type": "function_call_output", "call_id": f"c{number}", "output": f"{number} " + "word " * 400})
    body = _body(input=[{"role": "user", "content": "Mend it."}, *steps])
    compactor = Compactor(lambda text: len(text) // 4)
    planned = compactor.plan(RESPONSES.read(body), Policy(context_window=16_000))
    compacted = compactor.apply(planned, None)

    assert not planned.original.continues
    assert planned.original.messages[1].tokens > 100
    assert compacted.sent_tokens < 12_000
    items = orjson.loads(compacted.body)["input"]
    assert items[-3:] == steps[-3:]
    assert [item["id"] for item in items if item.get("type") == "item_reference"] == [
        f"msg_{item['call_id'][1:]}" for item in items if item.get("type") == "function_call"
    ]


def test_of_an_answer_that_is_edited_only_what_was_said_is_written() -> None:
    """Its reasoning and its calls keep their bytes: upstreams refuse encrypted reasoning that is not the same."""
    reasoning = b'{"type":"reasoning","id":"r1",  "summary":[],"encrypted_content":"x"}'
    said = b'{"type":"message","role":"assistant","id":"m1","content":[{"type":"output_text","text":"old"}]}'
    call = b'{"type":"function_call","call_id":"c",  "name":"f","arguments":"{}"}'
    request = RESPONSES.read(
        b'{"model":"m","input":[{"role":"user","content":"a"},%b]}' % b",".join((reasoning, said, call))
    )
    before = RESPONSES.decode(request, _count())
    after = before.edit([before.messages[0], replace(before.messages[1], texts=("new",), edited=True)])
    written = b"".join(RESPONSES.encode(request, before, after))
    assert written.endswith(b",".join((reasoning, said.replace(b"old", b"new"), call)) + b"]}")


# What is counted outside the transcript.

FUNCTION = {
    "name": "ls",
    "description": "List files.",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
}


def _count_fixed(**members: object) -> int:
    counting = Counting(count_by_heuristic, make_known())
    return RESPONSES.decode(RESPONSES.read(orjson.dumps({"input": "a", **members})), counting).fixed_tokens


def test_tools_count_as_the_model_reads_them() -> None:
    """Functions of a namespace are functions; of a tool to search for, only name and description are read."""
    plain = _count_fixed(tools=[{"type": "function", **FUNCTION}])
    space = {"type": "namespace", "name": "files", "description": "Files.", "tools": [{"type": "function", **FUNCTION}]}
    assert _count_fixed(tools=[space]) > plain
    longer = {"type": "function", **FUNCTION, "description": "List files. " * 20}
    grown = _count_fixed(tools=[{**space, "tools": [longer]}]) - _count_fixed(tools=[space])
    assert grown == _count_fixed(tools=[longer]) - plain  # each is counted once
    long = FUNCTION | {"parameters": {"type": "object", "properties": {f"p{n}": {} for n in range(99)}}}
    deferred = {"type": "function", "defer_loading": True, **long}
    assert _count_fixed(tools=[deferred]) < plain + 100 < _count_fixed(tools=[{"type": "function", **long}])
    assert _count_fixed(tools=[{"type": "web_search"}]) > _count_fixed()
    nested = [{"type": "function", "function": FUNCTION}]
    assert _count_fixed(tools=nested) == plain  # some clients nest it as chat completions do


# Items that belong to the client alone are not sent.

GHOST = b'{ "type" : "ghost_snapshot", "ghost_commit": {"id":"[,]"} }'
CLEAN_USER = b'{"role":"user","content":"ghost_snapshot, \\"ghost_snapshot\\""}'
LOCAL = Unsent(local_items=("ghost_snapshot",))


def _clean(body: bytes, unsent: Unsent = LOCAL) -> bytes:
    return RESPONSES.clean(RESPONSES.read(body), unsent)[0]


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        (b"[U , G]", b"[U  ]"),
        (b"[ G,\n U ]", b"[ \n U ]"),
        (b"[U,G ,G , U]", b"[U,   U]"),
        (b"[ G , G,G ]", b"[    ]"),
    ],
)
def test_with_each_item_goes_one_comma(items: bytes, expected: bytes) -> None:
    """Everything else keeps its bytes."""

    def write(letters: bytes) -> bytes:
        return (
            b' {"x":"input", "input" : '
            + letters.replace(b"U", CLEAN_USER).replace(b"G", GHOST)
            + b' , "store":false}\n'
        )

    assert _clean(write(items)) == write(expected)


@given(st.lists(st.booleans(), max_size=8), st.sampled_from([b",", b" , ", b",\n"]))
def test_what_is_left_is_the_rest(ghosts: list[bool], separator: bytes) -> None:
    items = [GHOST if is_ghost else CLEAN_USER for is_ghost in ghosts]
    body = b'{"input":[' + separator.join(items) + b"]}"
    cleaned, decisions = RESPONSES.clean(RESPONSES.read(body), LOCAL)
    assert orjson.loads(cleaned)["input"] == [orjson.loads(CLEAN_USER)] * ghosts.count(False)
    if True not in ghosts:
        assert (cleaned is body, decisions) == (True, ())
        return
    (decision,) = decisions
    assert (decision.rule, decision.messages) == ("local_items", ghosts.count(True))
    assert (decision.tokens_before, decision.tokens_after) == (0, 0)
    assert decision.first_changed == ghosts.index(True)


@pytest.mark.parametrize(
    "body",
    [
        b'{"input":[%b]}' % CLEAN_USER,
        b'{"input":"\\"ghost_snapshot\\""}',
        b'{"inp\\u0075t":[%b]}' % GHOST,
        b'{"input":[7,{"type":["ghost_snapshot"]}]}',
    ],
)
def test_a_body_without_such_items_is_the_same_object(body: bytes) -> None:
    """A body that cannot be spliced is forwarded as it is."""
    assert _clean(body) is body


def test_nothing_is_taken_out_unless_it_is_named() -> None:
    body = b'{"input":[%b]}' % GHOST
    assert _clean(body, Unsent()) is body
    assert _clean(body, Unsent(local_items=("other",))) is body
    assert _clean(body, Unsent(local_items=("other", "ghost_snapshot"))) == b'{"input":[]}'
