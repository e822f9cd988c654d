"""Our calls in Responses."""

import orjson

from trimtab.proxy.wire.answers.recall import NAME
from trimtab.proxy.wire.responses.recall import ResponsesSifter

OURS = {"type": "function_call", "id": "fc", "call_id": "c1", "name": NAME, "arguments": '{"query":"a"}'}
REASONING = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "s1"}
TEXT = {"type": "message", "id": "msg", "content": [{"type": "output_text", "text": "So."}]}


def write(*events: dict) -> bytes:
    numbered = ({**event, "sequence_number": number} for number, event in enumerate(events))
    return b"".join(b"event: %b\ndata: %b\n\n" % (one["type"].encode(), orjson.dumps(one)) for one in numbered)


def say(*output: dict) -> list[dict]:
    events = [{"type": "response.created", "response": {}}]
    for at, item in enumerate(output):
        events += [
            {"type": f"response.output_item.{done}", "output_index": at, "item": item} for done in ("added", "done")
        ]
    return [*events, {"type": "response.completed", "response": {"output": list(output)}}]


def read(passed: bytes) -> list[dict]:
    return [orjson.loads(line[6:]) for line in passed.split(b"\n") if line.startswith(b"data: ")]


def test_reasoning_goes_with_the_call_that_follows_it() -> None:
    """The API refuses reasoning without its item. It is said again, with the call, in the next round."""
    sifter = ResponsesSifter()
    passed = read(sifter.feed(write(*say(REASONING, OURS))))
    assert [event["type"] for event in passed] == ["response.created"]
    left, said = sifter.end()
    assert left == b""
    assert list(map(orjson.loads, said.elements)) == [REASONING, OURS]
    (result,) = sifter.write_results(said, ["found"])
    assert orjson.loads(result) == {"type": "function_call_output", "call_id": "c1", "output": "found"}
    passed = read(sifter.feed(write(*say(REASONING, TEXT))))
    assert passed[-1]["response"]["output"] == [REASONING, TEXT]
    assert [event["output_index"] for event in passed[:-1]] == [0, 0, 1, 1]
    assert [event["sequence_number"] for event in passed] == [1, 2, 3, 4, 5]


def test_reasoning_before_a_text_passes_as_it_is() -> None:
    """Once the text has begun."""
    sifter, events = ResponsesSifter(), say(REASONING, TEXT)
    whole = write(*events)
    stop = whole.index(b"event: response.output_item.added\ndata: " + orjson.dumps(
        {"type": "response.output_item.added", "output_index": 1, "item": TEXT, "sequence_number": 3}
    ))  # fmt: skip
    assert sifter.feed(whole[:stop]) == write(*events[:1])
    assert sifter.feed(whole[stop:]) == whole[len(write(*events[:1])) :]
    assert sifter.end() == (b"", None)


def test_whole_answers_lose_the_call_and_its_reasoning() -> None:
    answer = {"output": [REASONING, OURS, TEXT]}
    said = ResponsesSifter().sift_body(answer)
    assert (answer["output"], said.own) == ([TEXT], ())
    for odd in ({}, {"output": 3}, {"output": [3, {"type": 4}]}):
        assert ResponsesSifter().sift_body(odd) is None
