"""The strict upstream refuses what the providers refuse. That its answers are theirs is shown by who reads them."""

from typing import Any

import aiohttp
import orjson
import pytest
from openai import APIError, AsyncOpenAI
from support.dialects.to_messages import to_messages
from support.dialects.to_responses import to_responses
from support.sessions import make_session
from upstreams.recording import FakeUpstream
from upstreams.scripted import Call, Turn
from upstreams.strict import StrictModel

Wire = dict[str, Any]

TURNS = (
    Turn("I look.", (Call("read_file", {"path": "a.py"}), Call("read_file", {"path": "b.py"})), thought="Two files."),
    Turn("", (Call("read_file", {"path": "c.py"}),)),
    Turn("It is do", is_cut_off=True),
    Turn("It is done."),
)
VERSION = {"anthropic-version": "2023-06-01"}
LONG = make_session(20)
PATHS = ("/chat/completions", "/responses", "/messages")


@pytest.fixture
def model(upstream: FakeUpstream) -> StrictModel:
    strict = StrictModel(TURNS)
    upstream.answer = strict.answer
    return strict


@pytest.fixture
async def sdk(upstream: FakeUpstream):
    async with AsyncOpenAI(api_key="k", base_url=upstream.url, max_retries=0) as running:
        yield running


async def send(client: aiohttp.ClientSession, upstream: FakeUpstream, path: str, body: Wire) -> tuple[int, bytes]:
    async with client.post(upstream.url + path, data=orjson.dumps(body), headers=VERSION) as answer:
        return answer.status, await answer.read()


def read_events(said: bytes) -> list[Wire]:
    """The events of a stream. Each is named by its type."""
    found = []
    for block in said.decode().strip().split("\n\n"):
        name, data = block.split("\n")
        event = orjson.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        found.append(event)
    return found


def body_for(path: str, session: Wire = LONG, **members: object) -> Wire:
    """A session as a request of the path's dialect, up to its last result."""
    cut = {**session, "messages": session["messages"][:-1]}
    if path == "/responses":
        return {**to_responses(cut, with_reasoning=True), **members}
    if path == "/messages":
        return {**to_messages(cut, with_markers=True), **members}
    return {"model": "m", "messages": cut["messages"], "tools": cut["tools"], **members}


async def test_a_late_refusal_is_an_event_of_the_stream(client, upstream, model, sdk):
    """In Responses as an error and a failed response; in Messages as the reason for the end."""
    model.window_tokens, model.is_late = 1000, True
    status, said = await send(client, upstream, "/responses", body_for("/responses", stream=True))
    kinds = [event["type"] for event in read_events(said)]
    assert (status, kinds[-2:]) == (200, ["error", "response.failed"])
    with pytest.raises(APIError, match="exceeds the context window"):
        [event async for event in await sdk.responses.create(**body_for("/responses", stream=True))]
    for stream in (False, True):
        status, said = await send(client, upstream, "/messages", body_for("/messages", stream=stream))
        ended = read_events(said)[-2]["delta"] if stream else orjson.loads(said)
        assert (status, ended["stop_reason"]) == (200, "model_context_window_exceeded")
    assert (await send(client, upstream, "/responses", body_for("/responses")))[0] == 400


@pytest.mark.parametrize("path", PATHS)
async def test_an_invalid_request_is_refused(path, client, upstream, model):
    """A call without its result, and what is not JSON; the upstream keeps what was wrong."""
    body = body_for(path)
    body["input" if path == "/responses" else "messages"].pop()
    status, said = await send(client, upstream, path, body)
    assert (status, orjson.loads(said)["error"]["type"]) == (400, "invalid_request_error")
    async with client.post(upstream.url + path, data=b"x", headers=VERSION) as answer:
        assert answer.status == 400
    assert [bool(problems) for _, problems in model.invalid] == [True, True]


async def test_changed_reasoning_and_thinking_are_refused(client, upstream, model):
    """As the providers do, which alone can read them."""
    items = body_for("/responses")
    items["input"][1]["encrypted_content"] = "AAAA" + items["input"][1]["encrypted_content"][4:]
    assert b"could not be verified" in (await send(client, upstream, "/responses", items))[1]
    cut = {**LONG, "messages": LONG["messages"][:-1]}
    body = to_messages(cut, with_thinking=True)
    body["messages"][-2]["content"][0]["thinking"] += "!"
    assert b"Invalid `signature`" in (await send(client, upstream, "/messages", body))[1]
    assert model.played == 0


async def test_a_thread_goes_on_with_the_results_alone(client, upstream, model):
    """The upstream holds what came before; a call without its result, and an unknown thread, are refused."""
    began = orjson.loads(
        (await send(client, upstream, "/messages", body_for("/messages", thread={"type": "create"})))[1]
    )
    calls = [block["id"] for block in began["content"] if block["type"] == "tool_use"]
    results = [{"type": "tool_result", "tool_use_id": call, "content": "a line"} for call in calls]

    async def go_on(identifier: str, sent: list[Wire]) -> int:
        thread = {"type": "continue", "previous_message_id": identifier}
        body = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": sent}], "thread": thread}
        return (await send(client, upstream, "/messages", body))[0]

    assert len(results) == 2
    assert [await go_on(began["id"], results[:1]), await go_on("msg_unknown", results)] == [400, 400]
    assert await go_on(began["id"], results) == 200
