"""OpenAI's compaction: what is asked, and which answers have a note."""

from typing import Any

import orjson
import pytest

from trimtab.proxy.compaction.caches import Caches
from trimtab.proxy.wire.answering import Question
from trimtab.proxy.wire.codec import Counting
from trimtab.proxy.wire.responses.answer import NOTE
from trimtab.proxy.wire.responses.codec import RESPONSES
from trimtab.proxy.wire.transcript.body import UndecodableError

PACKED = {"type": "compaction", "id": "cmp_1", "encrypted_content": "c2VhbGVk"}
SAID = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]}
USAGE = {"input_tokens": 100, "output_tokens": 7, "input_tokens_details": {"cached_tokens": 90}}
INPUT: list[Any] = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]


def _read(*items: Any, **more: Any) -> Any:
    return NOTE.read(orjson.dumps({"object": "response.compaction", "output": list(items), "usage": USAGE, **more}))


def _ask(items: Any = INPUT, **more: Any) -> dict[str, Any] | None:
    request = RESPONSES.read(orjson.dumps({"model": "gpt", "input": items, **more}))
    prefix = RESPONSES.decode(request, Counting(len, Caches().known))
    asked = RESPONSES.ask_provider(request, prefix, Question("gpt", 400, 0.2), instructions="Keep names.")
    return None if asked is None else orjson.loads(asked)


def test_only_what_the_endpoint_knows_is_sent() -> None:
    """Another member would be refused."""
    kept = {"instructions": "Be brief.", "prompt_cache_key": "k", "service_tier": "flex"}
    more: dict[str, Any] = {"tools": [], "store": False, "reasoning": {"effort": "low"}, "stream": True, "metadata": {}}
    assert _ask(**kept, **more) == {"model": "gpt", "input": INPUT, **kept}
    assert NOTE.path == "/compact"


@pytest.mark.parametrize(
    "more",
    [
        {"previous_response_id": "resp_1"},
        {"text": {"format": {"type": "json_schema"}}},
        {"items": [PACKED, *INPUT]},
    ],
)
def test_it_is_not_asked_without_the_whole_conversation(more: dict[str, Any]) -> None:
    """Or if the client compacts itself."""
    assert _ask(**more) is None


def test_messages_and_one_encrypted_item_are_the_note() -> None:
    """The system's messages are left out, since the client's own are forwarded. The rest has its own bytes."""
    system, developer = {**SAID, "role": "system"}, {"role": "developer", "content": "d"}
    said = {"role": "assistant", "content": "b"}
    found = _read(system, SAID, developer, said, PACKED)
    assert found.note == b",".join(map(orjson.dumps, (SAID, said, PACKED)))
    assert found.text == ""
    assert (found.usage.prompt_tokens, found.usage.completion_tokens, found.usage.cached_tokens) == (100, 7, 90)


@pytest.mark.parametrize(
    "items",
    [
        [],
        [SAID],
        [{**PACKED, "encrypted_content": ""}],
        [{"type": "compaction"}],
        [SAID, {"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"}, PACKED],
        [{"type": "function_call_output", "call_id": "c", "output": "o"}, PACKED],
        [{**SAID, "role": "tool"}, PACKED],
        [{"role": ["user"]}, PACKED],
    ],
)
def test_anything_else_is_no_note(items: list[Any]) -> None:
    """No item or several, an empty one, and what needs other items."""
    found = _read(*items)
    assert (found.note, found.text) == (b"", "")


def test_a_models_answer_says_that_there_is_no_such_endpoint() -> None:
    """A server that takes any path under its own may answer as for a response."""
    found = _read(SAID, PACKED, object="response")
    assert found.note == b""
    assert found.text


@pytest.mark.parametrize("answer", [b"", b"{}", b'{"output":"x"}', b"data: {}\n\ndata: {}\n\n"])
def test_what_cannot_be_read_is_said_to_be_so(answer: bytes) -> None:
    """Never another error."""
    with pytest.raises(UndecodableError):
        NOTE.read(answer)


def test_a_note_that_is_not_utf_8_is_none() -> None:
    """It would have to be stored and forwarded."""
    answer = orjson.dumps({"object": "response.compaction", "output": [{**SAID, "content": "@"}, PACKED]})
    with pytest.raises(UndecodableError):
        NOTE.read(answer.replace(b"@", b"\xff"))


@pytest.mark.parametrize("number", [0, 2])
def test_a_stream_has_no_note(number: int) -> None:
    """The endpoint answers with one object."""
    body = orjson.dumps({"object": "response.compaction", "output": [SAID, PACKED], "usage": USAGE})
    with pytest.raises(UndecodableError):
        NOTE.read(b"data: " + b"\n\ndata: ".join([body] * number or [b"[DONE]"]) + b"\n\n")
