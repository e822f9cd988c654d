"""Our calls in Messages."""

import orjson

from trimtab.proxy.wire.answers.recall import NAME
from trimtab.proxy.wire.messages.recall import MessagesSifter

THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "s1"}
OURS = {"type": "tool_use", "id": "t1", "name": NAME, "input": {"query": "a"}}


def block(index: int, start: dict, *deltas: dict) -> bytes:
    events = [{"type": "content_block_start", "index": index, "content_block": start}]
    events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    events.append({"type": "content_block_stop", "index": index})
    return b"".join(b"event: %b\ndata: %b\n\n" % (one["type"].encode(), orjson.dumps(one)) for one in events)


def end(reason: str) -> bytes:
    return b"".join(
        b"event: %b\ndata: %b\n\n" % (one["type"].encode(), orjson.dumps(one))
        for one in ({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {}}, {"type": "message_stop"})
    )


def think(index: int) -> bytes:
    deltas = ({"type": "thinking_delta", "thinking": "Hm."}, {"type": "signature_delta", "signature": "s1"})
    return block(index, {"type": "thinking", "thinking": "", "signature": ""}, *deltas)


def ask(index: int) -> bytes:
    deltas = [{"type": "input_json_delta", "partial_json": part} for part in ('{"query"', ':"a"}')]
    return block(index, {**OURS, "input": {}}, *deltas)


def test_the_answer_is_said_again_with_its_thinking() -> None:
    """Sealed as it was: it is bound to what is before it, which is the same."""
    sifter = MessagesSifter()
    assert sifter.feed(think(0)) == think(0)
    assert sifter.feed(ask(1) + end("tool_use")) == b""
    said = sifter.end()[1]
    assert orjson.loads(said.elements[0]) == {"role": "assistant", "content": [THINKING, OURS]}
    (results,) = sifter.write_results(said, ["found"])
    assert orjson.loads(results)["content"] == [{"type": "tool_result", "tool_use_id": "t1", "content": "found"}]


def test_thinking_behind_a_result_of_ours_is_not_shown() -> None:
    """It is bound to what the client's transcript does not have. In the next round, it is said again all the same."""
    sifter = MessagesSifter()
    sifter.feed(think(0) + ask(1) + end("tool_use"))
    sifter.end()
    text = block(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "So."})
    assert sifter.feed(think(0) + text + end("end_turn")) == text + end("end_turn")
    sifter = MessagesSifter()
    sifter.rounds = 1
    answer = {"content": [dict(THINKING), {"type": "text", "text": "So."}], "stop_reason": "end_turn"}
    assert sifter.sift_body(answer) is None
    assert [each["type"] for each in answer["content"]] == ["text"]


def test_odd_answers_are_left_alone() -> None:
    for odd in ({}, {"content": 3}, {"content": [3, {"type": "tool_use"}]}):
        assert MessagesSifter().sift_body(odd) is None
