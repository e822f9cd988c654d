"""Requests that begin with results without a call, as they go out in each dialect."""

from typing import Any

import orjson
import pytest
from support.builders import count
from support.checker import check_alternation, check_pairing
from support.dialects import messages_validity, responses_validity

from trimtab.proxy.compaction import read_request
from trimtab.proxy.compaction.compactor import Compactor
from trimtab.rules.policy import Policy
from trimtab.rules.text.markers import ACKNOWLEDGEMENT, RESULT_HEADER

WRITTEN = f"{RESULT_HEADER}eight\n\nnine"

CHAT = [
    {"role": "tool", "tool_call_id": "8", "content": "eight"},
    {"role": "tool", "tool_call_id": "9", "content": [{"type": "text", "text": "nine"}]},
]
MESSAGES = [
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "8", "content": "eight"},
            {"type": "tool_result", "tool_use_id": "9", "content": [{"type": "text", "text": "nine"}]},
        ],
    }
]
RESPONSES = [
    {"type": "function_call_output", "call_id": "8", "output": "eight"},
    {"type": "function_call_output", "call_id": "9", "output": [{"type": "input_text", "text": "nine"}]},
]


def send(dialect: str, elements: list[dict[str, Any]]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    member = "input" if dialect == "responses" else "messages"
    around = {"model": "m", "max_tokens": 100} if dialect == "messages" else {"model": "m"}
    request, compactor = read_request(orjson.dumps({**around, member: elements}), dialect), Compactor(count)
    sent = orjson.loads(compactor.apply(compactor.plan(request, Policy(context_window=24_000)), None).body)
    return sent, sent[member]


def test_chat_sends_them_as_a_message_of_the_user() -> None:
    said = [{"role": "assistant", "content": "so"}, {"role": "user", "content": "and?"}]
    _, sent = send("chat", [*CHAT, *said])
    assert sent == [{"role": "user", "content": WRITTEN}, *said]
    assert check_pairing(sent) == check_alternation(sent) == []


def test_the_users_own_words_behind_them_stay_apart() -> None:
    asked = {"role": "user", "content": "and?"}
    _, sent = send("chat", [*CHAT, asked])
    assert sent == [{"role": "user", "content": WRITTEN}, {"role": "assistant", "content": ACKNOWLEDGEMENT}, asked]


@pytest.mark.parametrize("is_asked", [False, True])
def test_messages_sends_them_as_a_message_of_the_user(*, is_asked: bool) -> None:
    asked = {"type": "text", "text": "and?"}
    results = [{"role": "user", "content": [*MESSAGES[0]["content"], asked]}] if is_asked else MESSAGES
    body, (first, *between, last) = send("messages", [*results, {"role": "assistant", "content": "so"}])
    assert messages_validity.check_body(body) == []
    assert (first, last) == ({"role": "user", "content": WRITTEN}, {"role": "assistant", "content": "so"})
    line = {"role": "assistant", "content": ACKNOWLEDGEMENT}
    assert between == ([line, {"role": "user", "content": [asked]}] if is_asked else [])


def test_responses_sends_them_as_a_message_of_the_user() -> None:
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "so"}]}
    body, (first, *rest) = send("responses", [*RESPONSES, said])
    assert responses_validity.check_body(body) == []
    assert (first["role"], "\n\n".join(part["text"] for part in first["content"])) == ("user", WRITTEN)
    assert rest == [said]
