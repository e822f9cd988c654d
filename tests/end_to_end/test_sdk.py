"""The OpenAI Python SDK, in what `tests/clients` does not ask of every client: other endpoints, and our own refusal."""

from collections.abc import AsyncIterator

import openai
import orjson
import pytest
from aiohttp import web
from openai import AsyncOpenAI
from upstreams.recording import FakeUpstream


@pytest.fixture
async def sdk(start_proxy) -> AsyncIterator[AsyncOpenAI]:
    """An SDK client whose base URL is the proxy's."""
    proxy = await start_proxy()
    async with AsyncOpenAI(base_url=f"{proxy.url}/v1", api_key="sk-sdk", max_retries=0) as client:
        yield client


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


async def test_overflow_that_we_refuse_is_one_that_the_sdk_knows(start_proxy):
    """Trimtab's context_length_exceeded has the code that clients look for."""
    proxy = await start_proxy("defaults.context_window=1024", "defaults.on_exceeded=error")
    async with AsyncOpenAI(base_url=f"{proxy.url}/v1", api_key="k", max_retries=0) as client:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "word " * 2000}])
    assert caught.value.code == "context_length_exceeded"
