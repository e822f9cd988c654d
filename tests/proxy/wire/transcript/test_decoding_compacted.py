"""Messages that a server has compacted itself."""

from dataclasses import replace

import orjson
import pytest
from support.builders import assistant, conversation, result, user

from trimtab.proxy.compaction.compactor import Compactor
from trimtab.proxy.wire.dialects import read_request
from trimtab.proxy.wire.transcript.decoding import discount_compacted
from trimtab.rules.conversation import Role
from trimtab.rules.policy import Policy

GO_ON = {"role": "user", "content": "Go on."}
MEMO = replace(assistant("A memo for the server."), keeps_before=True)


def test_a_transcript_without_a_compaction_stays_the_same_object() -> None:
    """That is the usual case, in every request."""
    messages = conversation(user(), assistant("Yes.")).messages
    assert discount_compacted(messages) is messages


def test_what_is_before_the_last_compaction_costs_nothing() -> None:
    """Only counts change. Roles that the server reads anyway keep theirs."""
    messages = (user(), MEMO, result("c", "long"), MEMO, user())
    assert [one.tokens > 0 for one in discount_compacted(messages)] == [False, False, False, True, True]
    spared = discount_compacted(messages, {Role.USER})
    assert [one.tokens > 0 for one in spared] == [True, False, False, True, True]
    assert [replace(one, tokens=0) for one in spared] == [replace(one, tokens=0) for one in messages]


def _responses(long: str) -> dict[str, object]:
    call = {"type": "function_call", "call_id": "c", "name": "run", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": long}
    memo = {"type": "compaction", "encrypted_content": "A" * 4000}
    return {"model": "m", "input": [{"role": "user", "content": "Task"}, call, output, memo, GO_ON]}


def _messages(long: str) -> dict[str, object]:
    call = {"type": "tool_use", "id": "c", "name": "run", "input": {}}
    output = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": long}]}
    memo = {"type": "compaction", "content": "What was done."}
    said = [{"role": "assistant", "content": [call]}, output, {"role": "assistant", "content": [memo]}, GO_ON]
    return {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "Task"}, *said]}


@pytest.mark.parametrize(("dialect", "write"), [("responses", _responses), ("messages", _messages)])
def test_a_session_that_the_server_has_compacted_is_not_refused(dialect, write) -> None:
    """What is before the compaction would fill the window several times, but the model does not read it."""
    compactor = Compactor(lambda text: len(text) // 4)
    long = "".join(f"line {number}: nothing of note in here\n" for number in range(4000))
    body = orjson.dumps(write(long))
    planned = compactor.plan(read_request(body, dialect), Policy(context_window=16_000))
    compacted = compactor.apply(planned, None)

    assert compacted.body == body
    assert compacted.sent_tokens == planned.original.tokens < 2000
