"""Giving a request the tool, and its transcript what was found."""

import orjson
import pytest
from msgspec.structs import replace
from support.builders import assistant, call, conversation, count, result, user
from support.dialects.spoken.all_dialects import each_dialect
from support.policies import POLICY

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.recall import RECALL_TOOL, add_answers, append, declare, find_answers, name_outcome
from trimtab.proxy.wire.codec import Counting
from trimtab.proxy.wire.dialects import name_codec
from trimtab.rules.conversation import Decision
from trimtab.rules.pipeline.order import apply, plan
from trimtab.rules.tokens.families import GENERIC

RUN = {"type": "function", "function": {"name": "run", "parameters": {"type": "object", "properties": {}}}}
COUNTING = Counting(count, make_known())
TALK = [{"role": "user", "content": "Mend it."}]


@each_dialect
def test_the_tool_is_the_first_and_all_other_bytes_stay(dialect):
    body = orjson.dumps(dialect.write(TALK, [RUN]), option=orjson.OPT_INDENT_2)
    request = dialect.codec.read(body)
    declared = declare(request, COUNTING, lambda _, __: None)
    assert declared.body.replace(dialect.codec.recall_tool + b",", b"") == body
    assert orjson.loads(declared.body)["tools"][0] == orjson.loads(dialect.codec.recall_tool)
    (decision,) = declared.cleaned
    was, now = (dialect.codec.decode(one, COUNTING).fixed_tokens for one in (request, declared))
    assert (decision.rule, decision.saved_tokens) == (RECALL_TOOL, was - now)
    assert was < now
    assert declare(declared, COUNTING, lambda _, __: None) is declared


@each_dialect
def test_a_server_whose_template_leaves_out_tools_does_not_get_it(dialect):
    """No model could call it."""
    request = dialect.codec.read(orjson.dumps(dialect.write(TALK, [RUN])))
    counting = Counting(count, make_known(), replace(GENERIC.costs, drops_tools=True))
    assert declare(request, counting, lambda _, __: None, without_tools=True) is request


@each_dialect
@pytest.mark.parametrize("odd", [{"tools": []}, {"tools": "x"}, {"to\\u006fls": 1}])
def test_a_request_without_tools_stays(dialect, odd):
    body = orjson.dumps({**dialect.write(TALK), **odd})
    request = dialect.codec.read(body)
    assert declare(request, COUNTING, lambda _, __: None) is request


@each_dialect
def test_a_request_without_tools_gets_it_if_that_is_wanted(dialect):
    """All other bytes stay. A forced call is never added to."""
    for tools in ({}, {"tools": []}):
        body = orjson.dumps({**dialect.write(TALK), **tools})
        declared = declare(dialect.codec.read(body), COUNTING, lambda _, __: None, without_tools=True).body
        if declared != body:  # Responses takes an empty list for none, and it stays
            assert orjson.loads(declared) == {**orjson.loads(body), "tools": [orjson.loads(dialect.codec.recall_tool)]}
        assert tools or declared != body


def test_an_input_that_is_a_text_stays():
    """Nothing was cut from it, and answers to calls would find no place."""
    body = {"model": "m", "input": "hi", "tools": [{"type": "function", "name": "run", "parameters": {}}]}
    request = name_codec("responses").read(orjson.dumps(body))
    assert declare(request, COUNTING, lambda _, __: None) is request


def test_a_request_for_several_answers_or_a_later_one_stays():
    """The calls would be in each of the answers, or in one that nobody reads here."""
    for name, member, several, lone in (("chat", "n", 2, 1), ("responses", "background", True, False)):
        codec, tools = name_codec(name), [{"type": "function", "name": "run", "function": RUN["function"]}]
        talk = {"model": "m", "messages": TALK, "input": TALK, "tools": tools}
        for value, is_declared in ((several, False), (lone, True), (None, True)):
            request = codec.read(orjson.dumps({**talk, member: value}))
            assert (declare(request, COUNTING, lambda _, __: None) is not request) is is_declared


@each_dialect
def test_elements_are_appended(dialect):
    body = orjson.dumps(dialect.write(TALK, [RUN]))
    more = append(dialect.codec, [body], [b'{"a":1}', b'{"b":2}'])
    assert orjson.loads(more)[dialect.transcript] == [*orjson.loads(body)[dialect.transcript], {"a": 1}, {"b": 2}]
    empty = append(name_codec("chat"), [b'{"messages":[ ]}'], [b"1"])
    assert orjson.loads(empty) == {"messages": [1]}


def test_what_was_found_stands_behind_its_result():
    talk = conversation(user("Mend it."), assistant(None, call("a"), call("b")), result("a", "x"), result("b", "y"))
    planned = plan(talk, POLICY, count=count)
    assert add_answers(planned, find_answers(planned, lambda _: None), count) is planned
    kept = {(planned.hashes[1], "b"): "found"}
    told = add_answers(planned, find_answers(planned, kept.get), count)
    sent = apply(told, POLICY, count=count).conversation.messages
    assert [message.text for message in sent[2:]] == ["x", "y\nfound"]
    assert sent[:3] == talk.messages[:3]
    other = conversation(user("Mend that."), *talk.messages[1:])  # some models begin with the same ids again
    planned = plan(other, POLICY, count=count)
    assert find_answers(planned, kept.get) == []


def test_what_was_found_in_several_turns_stands_in_each():
    """Behind the last result of each, the newest first."""
    turns = [
        (assistant(None, call(f"a{at}"), call(f"b{at}")), result(f"a{at}", "x"), result(f"b{at}", "y"))
        for at in range(3)
    ]
    planned = plan(conversation(user("Mend it."), *(each for turn in turns for each in turn)), POLICY, count=count)
    kept = {(planned.hashes[1 + 3 * at], f"b{at}"): f"found {at}" for at in range(3)}
    assert find_answers(planned, kept.get) == [(9, "found 2"), (6, "found 1"), (3, "found 0")]
    assert find_answers(planned, {(planned.hashes[1], "a0"): "found"}.get) == [(2, "found")]


@pytest.mark.parametrize(
    ("rules", "outcome"),
    [
        ((), "unchanged"),
        ((RECALL_TOOL,), "recall"),
        (("recall",), "recall"),
        ((RECALL_TOOL, "recall"), "recall"),
        ((RECALL_TOOL, "prune"), "compacted"),
        (("prune",), "compacted"),
    ],
)
def test_the_outcome_is_named_by_what_was_done(rules, outcome):
    assert name_outcome([Decision(rule, "", 0, 0, 0, 0) for rule in rules]) == outcome


def test_of_what_was_found_the_newest_stands_that_fits():
    """A request is never refused because of it."""
    turns = [(assistant(None, call(f"c{at}")), result(f"c{at}", "x")) for at in range(30)]
    planned = plan(conversation(user("Mend it."), *(each for turn in turns for each in turn)), POLICY, count=count)
    found = "found " * (planned.fitting // 10)
    told = add_answers(planned, find_answers(planned, lambda _: found), count)
    assert 3 < len(told.recalled) < 15
    assert told.recalled[-1].at == 60
    assert planned.reserved_tokens + sum(pin.tokens for pin in told.recalled) <= planned.fitting
    assert apply(told, POLICY, count=count).conversation.messages[60].text == f"x\n{found}"
