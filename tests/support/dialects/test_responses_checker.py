"""The checker of Responses: it names what is wrong. Each use of it shows that it accepts what is right."""

from typing import Any

import orjson
import pytest
from support.dialects.responses_checker import check_changes, check_request
from support.dialects.responses_validity import ANSWERS, check_body
from support.dialects.seals import seal

Wire = dict[str, Any]

NOTE = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "d"}]}
TASK = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "task"}]}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": seal("a")}
TOLD = {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "told"}]}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "run", "arguments": "{}", "odd": 1.50}
RESULT = {"type": "function_call_output", "call_id": "a", "output": "out", "odd": {"b": 1}}
SAID = {"type": "message", "id": "msg_2", "role": "assistant", "content": [{"type": "output_text", "text": "said"}]}
LAST = {"role": "user", "content": "last"}
ITEMS = [NOTE, TASK, THOUGHT, TOLD, CALL, RESULT, SAID, LAST]
MEMO = {**TASK, "content": [*TASK["content"], {"type": "input_text", "text": "summary"}]}
BRIDGE = {"type": "message", "role": "assistant", "content": "understood"}
PACKED = {"type": "compaction", "id": "cmp_1", "encrypted_content": seal("b")}


def body(items: object, **members: object) -> Wire:
    return {"model": "m", "instructions": "Be brief.", "input": items, "store": False, **members}


def change(items: list[Wire], old: list[Wire] = ITEMS, **members: object) -> list[str]:
    return check_changes(orjson.dumps(body(old, **members)), orjson.dumps(body(items, **members)))


def make_pair(kind: str) -> tuple[Wire, Wire]:
    """A call of a kind and its output, with what they need."""
    extra = {"name": "n", "arguments": "{}", "input": "", "action": {}, "operation": {}, "code": ""}
    call = {"type": kind, "id": "fc_k", "call_id": "k", **extra}
    output: object = [] if kind == "shell_call" else {} if kind == "computer_call" else "o"
    answer = {"type": ANSWERS[kind], "call_id": "k", "output": output, "status": "completed"}
    if kind == "mcp_approval_request":
        return call, {"type": ANSWERS[kind], "approval_request_id": "fc_k", "approve": True}
    return call, answer


@pytest.mark.parametrize("kind", ANSWERS)
def test_a_call_of_any_kind_has_exactly_one_output(kind: str) -> None:
    """A missing, a second, an early and an orphaned output are named, unless the server has what was before."""
    call, output = make_pair(kind)
    assert check_body(body([TASK, call, output, LAST])) == []
    assert any("no output found" in one for one in check_body(body([TASK, call, LAST])))
    assert any("a second output" in one for one in check_body(body([TASK, call, output, output])))
    assert any("no call found" in one for one in check_body(body([TASK, output, call])))
    assert any("no call found" in one for one in check_body(body([TASK, output, LAST])))
    assert check_body(body([output], previous_response_id="resp_1")) == []
    assert check_body(body([output], conversation="conv_1")) == []


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (body([]), "no input"),
        (body(5), "input is neither"),
        (body("x", max_output_tokens=15), "max_output_tokens is below 16"),
        (body([TASK, CALL, {**CALL, "id": "fc_2"}, RESULT]), "input[2]: a second call with the id 'a'"),
        (body([TASK, THOUGHT, LAST]), "input[1]: reasoning without its required following item"),
        (body([TASK, SAID, SAID, LAST]), "input[2]: duplicate item with id 'msg_2'"),
        (body([{**SAID, "id": "x"}, LAST]), "input[0].id: 'x' does not begin with 'msg'"),
        (body([{**CALL, "call_id": ""}, {**RESULT, "call_id": ""}]), "input[0].call_id: has 0 characters"),
        (body([{**SAID, "content": TASK["content"]}]), "input[0].content: 'input_text' as assistant"),
        (body([{**TASK, "content": None}]), "input[0].content: neither"),
        (body([{**CALL, "arguments": {}}, RESULT]), "input[0].arguments: missing or of a wrong type"),
        (body([{"type": "compaction_trigger"}, TASK]), "input[0]: the trigger of compaction is not last"),
    ],
)
def test_what_the_provider_refuses_is_named(wrong: Wire, problem: str) -> None:
    assert any(found.startswith(problem) for found in check_body(wrong)), check_body(wrong)


def test_a_missing_output_may_be_added_and_a_local_item_removed() -> None:
    """The output has only what it needs. A local item that is sent is named."""
    ghost = {"type": "ghost_snapshot", "ghost_commit": {}}
    assert (
        change([TASK, CALL, {"type": "function_call_output", "call_id": "a", "output": "aborted"}], [TASK, CALL]) == []
    )
    assert change([TASK, LAST], [TASK, ghost, LAST]) == []
    assert "a local item was sent: ghost_snapshot" in change([TASK, ghost, LAST], [TASK, ghost, LAST])


@pytest.mark.parametrize(
    ("sent", "problem"),
    [
        ([NOTE, TASK, THOUGHT, TOLD, {**CALL, "arguments": "{ }"}, RESULT, SAID, LAST], "kept item 3"),
        ([NOTE, TASK, {**THOUGHT, "encrypted_content": ""}, TOLD, CALL, RESULT, SAID, LAST], "kept item 1"),
        ([NOTE, TASK, SAID, TOLD, LAST], "kept item 2"),
        ([NOTE, MEMO, {**SAID, "content": "other"}, LAST], "kept item 1"),
        ([NOTE, TASK, TOLD, CALL, RESULT, SAID, LAST], "the items of a response were separated: those at 2 to 4"),
        ([NOTE, TASK, THOUGHT, TOLD, SAID, LAST], "the items of a response were separated"),
        ([NOTE, TASK, THOUGHT, TOLD, CALL, {**RESULT, "call_id": "b"}, SAID, LAST], "input[5]: members of a function"),
        ([NOTE, TASK, THOUGHT, TOLD, CALL, {**RESULT, "output": ""}, SAID, LAST], "message 5: a tool message without"),
        ([TASK, THOUGHT, TOLD, CALL, RESULT, SAID, LAST], "system or developer items are not the client's"),
        ([NOTE, {**MEMO, "name": "x"}, SAID, LAST], "input[1]: members of a message are not the client's"),
        ([NOTE, SAID, LAST], "the task statement is not complete"),
        ([NOTE, MEMO, SAID], "the last user message is missing or not complete"),
        ([NOTE, MEMO, LAST], "two user messages in a row"),
        ([NOTE, MEMO, BRIDGE, SAID, LAST], "an assistant message that is not the client's is between"),
    ],
)
def test_what_should_have_stayed_is_named(sent: list[Wire], problem: str) -> None:
    assert any(found.startswith(problem) for found in change(sent)), change(sent)


def test_a_compaction_and_what_is_before_it_stay() -> None:
    """Only what follows the last one may change."""
    old = [TASK, CALL, RESULT, PACKED, SAID, LAST, {**CALL, "id": "fc_2", "call_id": "b"}, {**RESULT, "call_id": "b"}]
    assert change([*old[:-1], {**old[-1], "output": "shorter"}], old) == []
    wrong = "an item up to the last compaction was changed"
    assert wrong in change([TASK, CALL, {**RESULT, "output": "shorter"}, *old[3:]], old)
    assert wrong in change([TASK, *old[3:]], old)
    assert wrong in change([one for one in old if one is not PACKED], old)


def test_new_items_of_a_continued_conversation_are_all_sent() -> None:
    """The provider has the history, so nothing is cut; a result may be shortened."""
    old = [RESULT, SAID, LAST]
    assert change([{**RESULT, "output": "shorter"}, SAID, LAST], old, previous_response_id="resp_1") == []
    wrong = ["an item of a continued conversation was dropped or added"]
    assert change([RESULT, LAST], old, conversation={"id": "conv_1"}) == wrong


def test_other_members_keep_their_bytes_and_order() -> None:
    sent = orjson.dumps(body(ITEMS))
    assert check_request(sent, sent) == []
    assert check_changes(sent, sent.replace(b"Be brief.", b"Be long.")) == ["instructions was changed"]
    assert check_changes(sent, sent.replace(b'"store":false', b'"store": false')) == []
    assert check_changes(sent, sent.replace(b'"model":"m",', b""))[0].startswith("members were added, removed or moved")
