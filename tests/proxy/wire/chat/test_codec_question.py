"""The request for a summary in chat completions, and the response to it."""

import orjson

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.answering import Question
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.codec import Counting

QUESTION = Question("m", 400, 0.2)
MESSAGES = b'[{"role": "system","content":"Be brief."} , {"role":"user","content":"hi"}]'


def _ask_behind(
    question: Question = QUESTION, *, is_apart: bool = False, **members: object
) -> dict[str, object] | None:
    body = b'{"messages":' + MESSAGES + b"," + orjson.dumps({"model": "client", **members})[1:]
    request = CHAT.read(body)
    prefix = CHAT.decode(request, Counting(count_by_heuristic, make_known()))
    asked = CHAT.ask_behind(request, prefix, question, "WRITE", is_apart=is_apart)
    return None if asked is None else orjson.loads(asked)


def test_a_model_that_thinks_has_another_name_for_its_limit() -> None:
    """It may also refuse a temperature."""
    asked = orjson.loads(CHAT.ask(Question("m", 400, None, is_reasoning=True), "WRITE"))
    assert asked["max_completion_tokens"] == 400
    assert not asked.keys() & {"max_tokens", "temperature"}


def test_a_question_behind_a_conversation_begins_with_its_bytes() -> None:
    """The client's model and tools are copied; its limits are not."""
    asked = _ask_behind(tools=[], max_tokens=7, top_p=0.5, stream=True)
    assert asked["messages"] == [*orjson.loads(MESSAGES), {"role": "user", "content": "WRITE"}]
    assert (asked["model"], asked["tools"], asked["max_tokens"], asked["stream"]) == ("client", [], 400, False)
    assert "top_p" not in asked


def test_a_request_that_thinks_gets_room_for_it() -> None:
    """In addition to the completion. Anthropic accepts no temperature with it."""
    asked = _ask_behind(thinking={"type": "enabled", "budget_tokens": 1000})
    assert asked["max_tokens"] == 1400
    assert "temperature" not in asked


def test_what_is_refused_is_not_sent() -> None:
    """The limit has a second name; a streamed question asks for its usage."""
    refused = frozenset({"temperature", "max_tokens", "stream"})
    asked = orjson.loads(CHAT.ask(Question("m", 400, 0.2, refused=refused), "WRITE"))
    assert asked.keys() == {"model", "messages", "max_completion_tokens", "stream", "stream_options"}
    assert asked["stream"] is True
    more = refused | {"max_completion_tokens", "stream=true"}
    assert orjson.loads(CHAT.ask(Question("m", 400, 0.2, refused=more), "WRITE")).keys() == {"model", "messages"}


def test_a_question_of_its_own_is_of_the_clients_session() -> None:
    """It has the client's system messages, account and session, but neither its tools nor how it wants its answer."""
    own = {"user": "u", "store": False, "metadata": {"a": 1}, "prompt_cache_key": "k", "service_tier": "flex"}
    asked = _ask_behind(
        Question("other", 400), is_apart=True, **own, tools=[], tool_choice="auto", parallel_tool_calls=True,
        response_format={"type": "json_object"}, temperature=1, max_tokens=7, stream=True, n=2, stop="x",
    )  # fmt: skip
    assert {name: asked.pop(name) for name in own} == own
    assert asked.pop("messages") == [*orjson.loads(MESSAGES), {"role": "user", "content": "WRITE"}]
    assert asked == {"model": "other", "max_tokens": 400, "stream": False}
