"""Our calls in chat completions."""

import orjson
import pytest

from trimtab.proxy.wire.answers.recall import NAME
from trimtab.proxy.wire.chat.recall import ChatSifter


def call(index: int, name: str | None, arguments: str, **more: str) -> dict:
    function = {"arguments": arguments} | ({} if name is None else {"name": name})
    return {"index": index, "function": function, **more}


def event(*calls: dict, finish: str | None = None, **delta: object) -> bytes:
    choice = {"index": 0, "delta": {**delta, **({"tool_calls": list(calls)} if calls else {})}, "finish_reason": finish}
    return b"data: " + orjson.dumps({"id": "x", "choices": [choice]}) + b"\n\n"


def test_the_answer_is_said_again_with_our_call_only() -> None:
    """Its text, its reasoning, and the arguments as they came, piece by piece."""
    sifter = ChatSifter()
    parts = [
        event(role="assistant", reasoning_content="Hm."),
        event(content="Wait. "),
        event(call(0, NAME, "", id="c1")),
    ]
    parts += [event(call(0, None, '{"query":')), event(call(0, None, '"a"}')), event(finish="tool_calls")]
    parts += [b'data: {"id":"x","choices":[],"usage":{"prompt_tokens":3}}\n\n', b"data: [DONE]\n\n"]
    assert b"".join(map(sifter.feed, parts)) == parts[0] + parts[1]
    _, said = sifter.end()
    element = orjson.loads(said.elements[0])
    assert (element["content"], element["reasoning_content"], said.own) == ("Wait. ", "Hm.", ())
    assert element["tool_calls"][0]["function"] == {"name": NAME, "arguments": '{"query":"a"}'}
    assert [(one.id, one.query) for one in said.asked] == [("c1", "a")]
    assert orjson.loads(sifter.write_results(said, ["found"])[0]) == {
        "role": "tool", "tool_call_id": "c1", "content": "found",
    }  # fmt: skip


def test_the_clients_calls_are_numbered_without_ours() -> None:
    sifter = ChatSifter()
    first = event(call(0, NAME, "{}", id="c0"), call(1, "run", "", id="c1"))
    rest = [event(call(1, None, "{}")), event(finish="tool_calls")]
    passed = [orjson.loads(sifter.feed(one).removeprefix(b"data: ")) for one in (first, *rest)]
    assert [[one["index"] for one in each["choices"][0]["delta"].get("tool_calls", ())] for each in passed] == [
        [0],
        [0],
        [],
    ]
    assert passed[-1]["choices"][0]["finish_reason"] == "tool_calls"
    said = sifter.end()[1]
    assert said.own == ("c1",)


@pytest.mark.parametrize("index", [{}, {"index": 0}])
def test_whole_calls_with_one_index_stay_apart(index: dict) -> None:
    """Some servers send them so. A piece without id and name continues the last one."""
    sifter = ChatSifter()
    calls = [
        {"id": f"c{at}", "function": {"name": name, "arguments": "{"}} for at, name in enumerate((NAME, "run", NAME))
    ]
    passed = b"".join(sifter.feed(event(call | index)) for call in calls)
    passed += sifter.feed(event({"function": {"arguments": '"query":"a"}'}} | index))
    passed += sifter.feed(event(finish="tool_calls"))
    assert b'"run"' in passed
    assert NAME.encode() not in passed
    said = sifter.end()[1]
    assert (said.own, [one.id for one in said.asked], said.asked[1].query) == (("c1",), ["c0", "c2"], "a")


def test_another_choice_and_odd_answers_are_left_alone() -> None:
    sifter = ChatSifter()
    sifter.feed(event(call(0, NAME, "{}", id="c0")))
    other = b'data: {"id":"x","choices":[{"index":1,"delta":{"content":"b"},"finish_reason":null}]}\n\n'
    assert orjson.loads(sifter.feed(other).removeprefix(b"data: ")) == orjson.loads(other.removeprefix(b"data: "))
    for odd in ({}, {"choices": 3}, {"choices": [{"message": {"tool_calls": 3}}]}, {"choices": [{"message": None}]}):
        assert ChatSifter().sift_body(odd) is None


def test_a_whole_answer_loses_our_calls_only() -> None:
    """With none of its own left, it has neither a list of calls nor ends with one."""
    for own, finish in ((["run"], "tool_calls"), ([], "stop")):
        calls = [{"id": name, "function": {"name": name, "arguments": "{}"}} for name in (NAME, *own)]
        message = {"role": "assistant", "content": "Wait.", "tool_calls": calls}
        answer = {"choices": [{"message": message, "finish_reason": "tool_calls"}]}
        said = ChatSifter().sift_body(answer)
        assert said.own == tuple(own)
        assert orjson.loads(said.elements[0]) == {
            "role": "assistant",
            "content": "Wait.",
            "tool_calls": [calls[0] | {"type": "function"}],
        }
        assert [one["id"] for one in message.get("tool_calls", ())] == own
        assert ("tool_calls" in message, answer["choices"][0]["finish_reason"]) == (bool(own), finish)


def test_a_call_without_an_id_gets_one() -> None:
    """Some servers leave it out."""
    sifter = ChatSifter()
    sifter.feed(event(call(0, NAME, '{"query":"a"}')) + event(finish="tool_calls"))
    said = sifter.end()[1]
    assert said.asked[0].id == orjson.loads(said.elements[0])["tool_calls"][0]["id"] == "recall_0"
