"""The OpenAI Python SDK works through the proxy unchanged."""

from collections.abc import AsyncIterator

import openai
import orjson
import pytest
from aiohttp import web
from openai import AsyncOpenAI
from upstreams.recording import FakeUpstream, break_off, error

MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.fixture
async def sdk(start_proxy) -> AsyncIterator[AsyncOpenAI]:
    """An SDK client whose base URL is the proxy's."""
    proxy = await start_proxy()
    async with AsyncOpenAI(base_url=f"{proxy.url}/v1", api_key="sk-sdk", max_retries=0) as client:
        yield client


async def test_chat(sdk: AsyncOpenAI, upstream: FakeUpstream):
    """A completion arrives whole, with its usage."""
    answer = await sdk.chat.completions.create(model="m", messages=MESSAGES)
    assert answer.choices[0].message.content == "All good."
    assert answer.usage.prompt_tokens == 11
    assert upstream.requests[0].header("authorization") == ["Bearer sk-sdk"]


async def test_streaming(sdk: AsyncOpenAI):
    """The stream's chunks arrive in order."""
    stream = await sdk.chat.completions.create(model="m", messages=MESSAGES, stream=True)
    assert [chunk.choices[0].delta.content async for chunk in stream] == ["All ", "good."]


async def test_tools(sdk: AsyncOpenAI, upstream: FakeUpstream):
    """Calls arrive at the client, and their results go out as the SDK wrote them."""
    call = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}

    async def call_tool(_recorded, _request):
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        body = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        return web.Response(body=orjson.dumps(body), content_type="application/json")

    plain, upstream.answer = upstream.answer, call_tool
    tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}]
    answer = await sdk.chat.completions.create(model="m", messages=MESSAGES, tools=tools)
    message = answer.choices[0].message
    assert message.tool_calls[0].function.name == "add"
    upstream.answer = plain
    result = {"role": "tool", "tool_call_id": "call_1", "content": "2"}
    answer = await sdk.chat.completions.create(model="m", messages=[*MESSAGES, message, result], tools=tools)
    assert answer.choices[0].message.content == "All good."
    assert upstream.requests[1].json["messages"][1]["tool_calls"] == [call]
    assert upstream.requests[1].json["messages"][2] == result


async def test_embeddings_and_models(sdk: AsyncOpenAI, upstream: FakeUpstream):
    """Endpoints that the proxy does not know pass through."""

    async def answer(recorded, _request):
        if recorded.path == "/v1/models":
            body = {"object": "list", "data": [{"id": "m", "object": "model", "created": 1, "owned_by": "us"}]}
        else:
            assert recorded.json["input"] == "hi"
            row = {"object": "embedding", "index": 0, "embedding": [0.5, 0.25]}
            body = {"object": "list", "data": [row], "model": "e", "usage": {"prompt_tokens": 1, "total_tokens": 1}}
        return web.Response(body=orjson.dumps(body), content_type="application/json")

    upstream.answer = answer
    assert [model.id async for model in sdk.models.list()] == ["m"]
    embeddings = await sdk.embeddings.create(model="e", input="hi", encoding_format="float")
    assert embeddings.data[0].embedding == [0.5, 0.25]


@pytest.mark.parametrize(
    ("status", "exception"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (429, openai.RateLimitError),
        (500, openai.InternalServerError),
    ],
)
async def test_errors(status, exception, sdk: AsyncOpenAI, upstream: FakeUpstream):
    """The upstream's errors raise the SDK's own exceptions, with their codes."""

    async def refuse(_recorded, _request):
        return error(status, message="no", type="t", code="some_code")

    upstream.answer = refuse
    with pytest.raises(exception) as caught:
        await sdk.chat.completions.create(model="m", messages=MESSAGES)
    assert caught.value.code == "some_code"


async def test_overflow_that_we_refuse_is_one_that_the_sdk_knows(start_proxy):
    """Trimtab's context_length_exceeded has the code that clients look for."""
    proxy = await start_proxy("defaults.context_window=1024", "defaults.on_exceeded=error")
    async with AsyncOpenAI(base_url=f"{proxy.url}/v1", api_key="k", max_retries=0) as client:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "word " * 2000}])
    assert caught.value.code == "context_length_exceeded"


async def test_broken_stream_is_an_error_and_no_short_answer(sdk: AsyncOpenAI, upstream: FakeUpstream):
    """A broken stream raises instead of ending as if it were complete."""
    upstream.answer = break_off
    stream = await sdk.chat.completions.create(model="m", messages=MESSAGES, stream=True)
    with pytest.raises(openai.APIConnectionError):
        _ = [chunk async for chunk in stream]
