"""The checker: it names what is wrong. Each use of it shows that it accepts what is right."""

from typing import Any

import msgspec
import pytest
from support.checker import check_alternation, check_pairing, check_pointers, check_request, check_transcript

Wire = dict[str, Any]

SYSTEM = {"role": "system", "content": "s"}
NOTE = {"role": "developer", "content": "d"}
TASK = {"role": "user", "content": "task"}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "a", "type": "function", "function": {"name": "run", "arguments": "{}"}}],
}


def call(arguments: str) -> Wire:
    """The call with these arguments."""
    (made,) = CALL["tool_calls"]
    return {**CALL, "tool_calls": [{**made, "function": {**made["function"], "arguments": arguments}}]}


RESULT = {"role": "tool", "tool_call_id": "a", "content": "out", "name": "run"}
SAID = {"role": "assistant", "content": "said"}
LAST = {"role": "user", "content": "last"}
MEMO = {"role": "user", "content": "task\n\nsummary"}
BRIDGE = {"role": "assistant", "content": "understood"}
ORIGINAL = [SYSTEM, TASK, CALL, RESULT, NOTE, SAID, LAST]


@pytest.mark.parametrize(
    ("arguments", "is_right"),
    [
        ('{"path":"a","text":"x[the call had this part]y"}', True),
        ('{"path":"a","text":"xy"}', False),
        ('{"text":"x[the call had this part]y"}', False),
    ],
)
def test_arguments_may_be_excerpts_that_say_so(arguments: str, *, is_right: bool) -> None:
    """Of the same members."""
    own = [TASK, call('{"path":"a","text":"xzzzzzzzzzzy"}'), RESULT, LAST]
    assert (check_transcript(own, [TASK, call(arguments), RESULT, LAST]) == []) is is_right


@pytest.mark.parametrize(
    ("sent", "problem"),
    [
        ([SYSTEM, TASK, CALL, NOTE, SAID, LAST], "before message 3: call 'a' has no result"),
        ([SYSTEM, TASK, RESULT, NOTE, SAID, LAST], "message 2: a result for 'a' without its call right before it"),
        (
            [SYSTEM, TASK, {**CALL, "tool_calls": [{**CALL["tool_calls"][0], "type": "x"}]}, RESULT, NOTE, SAID, LAST],
            "message 2: calls or their arguments are not the client's",
        ),
        ([MEMO, NOTE, SAID, LAST], "system or developer messages were added, lost, changed or reordered"),
        ([TASK, SYSTEM, CALL, RESULT, NOTE, SAID, LAST], "a leading system message no longer leads"),
        (
            [SYSTEM, TASK, CALL, {**RESULT, "content": ""}, NOTE, SAID, LAST],
            "message 3: a tool message without content",
        ),
        (
            [SYSTEM, TASK, CALL, {**RESULT, "content": [{"type": "text", "text": ""}]}, NOTE, SAID, LAST],
            "message 3: an emptied text",
        ),
        ([SYSTEM, MEMO, NOTE, {**SAID, "name": "x"}, LAST], "message 3: keys or ids are not the client's"),
        ([SYSTEM, MEMO, NOTE, LAST], "two user messages in a row: 'task summary' and 'last'"),
        ([SYSTEM, MEMO, NOTE, BRIDGE, SAID, LAST], "an assistant message that is not the client's is between"),
        ([SYSTEM, LAST, NOTE, SAID, LAST], "the task statement is not complete"),
        ([SYSTEM, MEMO, NOTE, SAID], "the last user message is missing or not complete"),
    ],
)
def test_what_is_wrong_is_named(sent: list[Wire], problem: str) -> None:
    assert any(found.startswith(problem) for found in check_transcript(ORIGINAL, sent))


def test_a_last_message_that_may_shrink_is_no_problem() -> None:
    """Under `on_exceeded: truncate` the last user message may be shortened."""
    sent = [*ORIGINAL[:-1], {**LAST, "content": "l"}]
    assert check_transcript(ORIGINAL, sent, last_may_shrink=True) == []
    assert check_transcript(ORIGINAL, sent) == ["the last user message is missing or not complete"]
    said = [*ORIGINAL[:-2], {**SAID, "content": "s"}]
    assert check_transcript(ORIGINAL[:-1], said, last_may_shrink=True) == []
    gone = [*ORIGINAL[:-1], {**LAST, "content": ""}]
    problems = ["message 6: a user message without content", "message 6: an emptied text"]
    assert check_transcript(ORIGINAL, gone, last_may_shrink=True) == problems


def test_bytes_of_system_messages_and_other_members_count() -> None:
    """System messages and the body's other members keep their exact bytes. Whitespace elsewhere may change."""
    body = msgspec.json.encode({"model": "m", "messages": ORIGINAL})
    respaced = body.replace(b'"system",', b'"system", ')
    assert check_request(body, body) == []
    assert check_request(body, body.replace(b'"said"', b' "said"')) == []
    assert check_request(body, respaced) == ["the bytes of a system or developer message were changed"]
    assert check_request(body, body.replace(b'"m"', b'"n"')) == ["members other than messages were changed"]


def test_roles_alternate_where_they_must() -> None:
    """Results and system messages do not count. The user must be first."""
    talk = [LAST, SAID, {"role": "system", "content": "s"}, LAST]
    assert check_alternation(talk) == []
    assert len(check_alternation([*talk, LAST])) == 1
    assert check_alternation([SAID, LAST]) == ["the user does not begin"]


SAME = "[trimtab: same as the tool result 1 before this, from the same call]"
NEAR = "[trimtab: same as the tool result 1 before this, from the same call, except for this diff:]\n"


@pytest.mark.parametrize(
    ("first", "second", "problem"),
    [
        ("out", SAME, None),
        ("one\ntwo", NEAR + "@@ -2,1 +2,1 @@\n-two\n+2", None),
        ("one\ntwo", NEAR + "@@ -2,0 +3,1 @@\n+three\n@@ -2,0 +4,1 @@\n+four", None),
        ("[trimtab: tool result of 99 tokens removed]", SAME, "message 4: points to a result that is not there"),
        ("out", SAME.replace("1 before", "2 before"), "message 4: points to a result that is not there"),
        ("one\ntwo", NEAR + "@@ -2,1 +2,1 @@\n-three\n+2", "message 4: a diff that does not fit"),
        ("one\ntwo", NEAR + "@@ -2,1 +2,1 @@\n-two\n2", "message 4: a diff that does not fit"),
    ],
)
def test_pointers_are_followed(first: str, second: str, problem: str | None) -> None:
    """The result that a pointer names is there in full, and the diff fits it."""
    original = [TASK, CALL, RESULT, CALL, {**RESULT, "content": "long"}, LAST]
    sent = [TASK, CALL, {**RESULT, "content": first}, CALL, {**RESULT, "content": second}, LAST]
    problems = check_pointers(original, sent)
    # A first result that is a pointer itself is reported as well.
    assert [one for one in problems if one.startswith("message 4")] == ([problem] if problem else [])
    assert check_pointers(sent, sent) == []


def test_the_last_diff_may_be_shortened_where_the_policy_may_do_that() -> None:
    """It may be in the last step only."""
    original = [TASK, CALL, RESULT, CALL, {**RESULT, "content": "long"}]
    sent = [*original[:4], {**RESULT, "content": NEAR + "[trimtab: omitted 3 lines (9 tokens)]"}]
    assert check_pointers(original, sent) == ["message 4: a diff that does not fit"]
    assert check_pointers(original, sent, last_may_shrink=True) == []
    assert check_pointers([*original, LAST], [*sent, LAST], last_may_shrink=True) != []


def test_a_result_of_the_legacy_role_may_answer_a_call_and_needs_none() -> None:
    """It answers one call at most, and only right behind the calls."""
    legacy = {"role": "function", "name": "run", "content": "out"}
    two = {**CALL, "tool_calls": [CALL["tool_calls"][0], {**CALL["tool_calls"][0], "id": "b"}]}
    for right in (
        [TASK, legacy],
        [CALL, legacy],
        [CALL, RESULT, legacy],
        [two, legacy, RESULT, LAST],
        [legacy, CALL, RESULT],
    ):
        assert check_pairing(right) == []
    for wrong in ([two, legacy, LAST], [legacy, CALL], [CALL, LAST, legacy], [CALL, legacy, LAST, CALL, LAST]):
        assert check_pairing(wrong)
