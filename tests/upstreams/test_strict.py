"""The strict upstream: real SDKs read its answers, and it refuses what the real providers refuse."""

from typing import Any

import aiohttp
import orjson
import pytest
from openai import APIError, AsyncOpenAI, BadRequestError
from support.dialects.seals import is_seal
from support.dialects.to_messages import to_messages
from support.dialects.to_responses import to_responses
from support.sessions import make_session
from upstreams.recording import FakeUpstream
from upstreams.scripted import SUMMARY, Call, Turn
from upstreams.strict import StrictModel

Wire = dict[str, Any]

TURNS = (
    Turn("I look.", (Call("read_file", {"path": "a.py"}), Call("read_file", {"path": "b.py"})), thought="Two files."),
    Turn("", (Call("read_file", {"path": "c.py"}),)),
    Turn("It is do", is_cut_off=True),
    Turn("It is done."),
)
TOOL = {"type": "function", "name": "read_file", "parameters": {"type": "object"}, "strict": False}
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


async def test_openais_sdk_reads_whole_and_streamed_responses(sdk, model):
    """The SDK rebuilds from the events what a whole response says: reasoning, text, calls and usage."""
    model.turns = (TURNS[0], TURNS[0])
    asked: Any = {"model": "m", "input": "go", "tools": [TOOL]}
    whole = await sdk.responses.create(**asked)
    async with sdk.responses.stream(**asked) as stream:
        events = [event async for event in stream]
        rebuilt = await stream.get_final_response()

    for answer in (whole, rebuilt):
        assert [item.type for item in answer.output] == ["reasoning", "message", "function_call", "function_call"]
        assert answer.output_text == "I look."
        assert orjson.loads(answer.output[3].arguments) == {"path": "b.py"}
        assert is_seal(answer.output[0].encrypted_content)
        assert (answer.status, answer.usage.output_tokens) == ("completed", 7)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [events[0].type, events[1].type, events[-1].type] == [
        "response.created",
        "response.in_progress",
        "response.completed",
    ]
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "I look."


async def test_openais_sdk_finishes_a_session_with_calls(sdk, model):
    """With the items sent back as they came, and with stored responses."""
    model.turns = TURNS[:2] * 2
    items: list[Any] = [{"role": "user", "content": "go"}]
    for _ in range(2):
        answer = await sdk.responses.create(model="m", input=items, tools=[TOOL], store=False)
        items += [item.to_dict() for item in answer.output]
        items += outputs_of(answer)
    answer = await sdk.responses.create(model="m", input="go", tools=[TOOL])
    answer = await sdk.responses.create(
        model="m", input=outputs_of(answer), tools=[TOOL], previous_response_id=answer.id
    )
    assert model.played == 4
    assert model.spent[-1].prompt > len(model.accepted[-1].body) // 8
    assert (await sdk.responses.retrieve(answer.id)).id == answer.id
    assert len(model.stored) == 2


def outputs_of(answer: Any) -> list[Wire]:
    """An output for each call of a response."""
    calls = [item.call_id for item in answer.output if item.type == "function_call"]
    return [{"type": "function_call_output", "call_id": key, "output": "text"} for key in calls]


async def test_a_response_that_is_cut_off_is_incomplete(client, upstream, model):
    """In every dialect, and at the end of a stream, too."""
    model.turns = [TURNS[2]] * 5
    said = (await send(client, upstream, "/chat/completions", body_for("/chat/completions")))[1]
    assert orjson.loads(said)["choices"][0]["finish_reason"] == "length"
    for stream in (False, True):
        said = (await send(client, upstream, "/responses", body_for("/responses", stream=stream)))[1]
        whole = read_events(said)[-1]["response"] if stream else orjson.loads(said)
        assert whole["incomplete_details"] == {"reason": "max_output_tokens"}
        said = (await send(client, upstream, "/messages", body_for("/messages", stream=stream)))[1]
        ended = read_events(said)[-2]["delta"] if stream else orjson.loads(said)
        assert ended["stop_reason"] == "max_tokens"


async def test_a_streamed_message_has_the_events_of_the_real_one(client, upstream, model):
    """Thinking with its signature, a text, calls in pieces, a ping, and usage at both ends."""
    _, said = await send(client, upstream, "/messages", body_for("/messages", stream=True))
    events = read_events(said)
    assert [event["type"] for event in events[:3]] == ["message_start", "content_block_start", "ping"]
    assert [event["type"] for event in events[-2:]] == ["message_delta", "message_stop"]
    kinds = [event["content_block"]["type"] for event in events if event["type"] == "content_block_start"]
    assert kinds == ["thinking", "text", "tool_use", "tool_use"]
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta" and event["index"] == 3]
    assert orjson.loads("".join(delta["partial_json"] for delta in deltas)) == {"path": "b.py"}
    signature = next(event["delta"] for event in events if event.get("delta", {}).get("type") == "signature_delta")
    assert is_seal(signature["signature"])
    assert events[-2]["delta"]["stop_reason"] == "tool_use"
    assert events[0]["message"]["usage"]["cache_creation_input_tokens"] > 1000


@pytest.mark.parametrize("path", PATHS)
async def test_what_an_earlier_prompt_began_with_is_read_from_the_cache(path, client, upstream, model):
    """The counts of tokens add up to the prompt."""
    usages = []
    for steps in (10, 11):
        session = {**LONG, "messages": LONG["messages"][: 2 * steps + 3]}
        usages.append(orjson.loads((await send(client, upstream, path, body_for(path, session)))[1])["usage"])
    assert model.spent[0].cached == 0
    assert 0.9 < model.spent[1].cached / model.spent[0].prompt <= 1
    spent = model.spent[1]
    if path == "/messages":
        counted = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        assert (sum(usages[1][name] for name in counted), usages[1][counted[1]]) == (spent.prompt, spent.cached)
    elif path == "/responses":
        assert usages[1]["input_tokens_details"]["cached_tokens"] == spent.cached
    else:
        assert usages[1]["prompt_tokens_details"]["cached_tokens"] == spent.cached


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/chat/completions", b"maximum context length is 1000 tokens"),
        ("/responses", b'"code":"context_length_exceeded"'),
        ("/messages", b"tokens > 1000 maximum"),
    ],
)
async def test_a_prompt_over_the_window_is_refused_in_the_providers_words(path, words, client, upstream, model):
    model.window_tokens = 1000
    status, said = await send(client, upstream, path, body_for(path, stream=True))
    assert (status, words in said, model.played) == (400, True, 0)
    assert len(model.refused) == 1


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


async def test_messages_need_the_version_of_the_api(client, upstream, model):
    async with client.post(upstream.url + "/messages", data=orjson.dumps(body_for("/messages"))) as answer:
        assert (answer.status, b"anthropic-version" in await answer.read()) == (400, True)


@pytest.mark.parametrize("path", PATHS)
async def test_a_summary_is_written_if_one_is_asked_for(path, client, upstream, model):
    """It plays no turn. A request without tools plays none, either."""
    plain = {**make_session(0), "tools": None}
    for words, said in (("Write the handoff note, in", SUMMARY), ("Hello.", "All good.")):
        body = body_for(path, {**plain, "messages": [{"role": "user", "content": words}, {}]})
        body.pop("tools", None)
        status, answer = await send(client, upstream, path, body)
        assert (status, orjson.dumps(said)[1:-1] in answer) == (200, True)
    assert model.played == 0


async def test_the_neighbours_of_the_paths_answer(client, upstream, model, sdk):
    """Counting, compaction, embeddings and models. Nothing else is there."""
    counted = orjson.loads((await send(client, upstream, "/messages/count_tokens", body_for("/messages")))[1])
    await send(client, upstream, "/messages", body_for("/messages"))
    assert counted == {"input_tokens": model.spent[-1].prompt}
    assert (await sdk.responses.input_tokens.count(model="m", input="go")).input_tokens > 0
    packed = (await sdk.responses.compact(model="m", input="go")).output
    assert [item.type for item in packed] == ["message", "compaction"]
    assert (await sdk.embeddings.create(model="e", input="go", encoding_format="float")).data[0].embedding == [
        0.5,
        0.25,
    ]
    with pytest.raises(BadRequestError):
        await sdk.responses.create(model="m", input="go", previous_response_id="resp_x")
    async with client.get(upstream.url + "/models", headers={"Accept": "*/*"}) as answer:
        assert (await answer.json())["data"][0]["id"] == "m"
    assert (await send(client, upstream, "/threads", {}))[0] == 404
