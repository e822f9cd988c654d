"""Tool calls that the recording repeats after their result was removed."""

from collections.abc import Sequence

import orjson

from bench.material.workload import Session
from bench.retention.needed.cases import RULES, Sent
from bench.retention.needed.measure import Measured, measure_sent
from bench.sessions.baselines import MASK
from bench.sessions.ledger import SessionLedger
from bench.sessions.prompts import read_part
from trimtab.rules.text.markers import mark_pruned


def read(call_id: str, path: str) -> bytes:
    function = {"name": "read", "arguments": path}
    calls = [{"id": call_id, "type": "function", "function": function}]
    return orjson.dumps({"role": "assistant", "content": None, "tool_calls": calls})


def result(call_id: str, text: str) -> bytes:
    return orjson.dumps({"role": "tool", "tool_call_id": call_id, "content": text})


TASK = orjson.dumps({"role": "user", "content": "go"})
MESSAGES = (TASK, read("c1", "a"), result("c1", "all of a"), read("c2", "a"), result("c2", "all of a"))


def forward(messages: Sequence[bytes]) -> Measured:
    """The measurement if the request before the second call forwards these messages."""
    session = Session("one", MESSAGES, b"", (3,))
    ledger = SessionLedger(RULES)
    ledger.add_turn([read_part(raw) for raw in messages])
    return measure_sent(session, [Sent(3, messages)], ledger)


def test_a_call_is_made_again_if_its_result_was_removed_masked_or_pruned() -> None:
    assert forward([TASK]).rereads == 1
    for text in (MASK, mark_pruned(700)):
        assert forward([TASK, MESSAGES[1], result("c1", text)]).rereads == 1


def test_a_call_whose_result_is_there_still_is_no_reread() -> None:
    assert forward(MESSAGES[:3]).rereads == 0
    assert forward([TASK, MESSAGES[1], result("c1", "all")]).rereads == 0


def test_a_body_as_the_client_sent_it_is_not_measured() -> None:
    assert forward(MESSAGES[:3]).changed == 0
    assert forward(MESSAGES[:3]).answered_calls == 1


def test_a_line_break_before_a_name_makes_no_other_name_of_it_where_arguments_are_decoded() -> None:
    messages = (TASK, read("c1", orjson.dumps({"text": "\nparse_url"}).decode()), result("c1", "done"))
    answer = read("c2", orjson.dumps({"text": "\nparse_url"}).decode())
    session = Session("one", (*messages, answer), b"", (3,))
    ledger = SessionLedger(RULES)
    done = measure_sent(session, [Sent(3, [TASK, result("c9", "about parse_url")])], ledger)
    assert (done.tally.kept["name"], done.tally.needed["name"]) == (0, 1)
    assert (done.decoded.kept["name"], done.decoded.needed["name"]) == (1, 1)


def test_what_the_tools_declare_is_there_where_arguments_are_decoded() -> None:
    tools = orjson.dumps([{"type": "function", "function": {"name": "read_file"}}])
    messages = (TASK, orjson.dumps({"role": "user", "content": "use read_file"}))
    session = Session("one", (*messages, orjson.dumps({"role": "assistant", "content": "read_file"})), tools, (2,))
    done = measure_sent(session, [Sent(2, [TASK])], SessionLedger(RULES))
    assert (done.tally.kept["name"], done.decoded.kept["name"]) == (0, 1)
