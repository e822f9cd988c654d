"""What is passed says so, in the answer, the metrics and the log."""

import aiohttp
import orjson
import pytest
from aiohttp import web
from support.client import post

PROMPT = {"model": "m", "prompt": "Once"}
OUTCOME = "x-trimtab-outcome"


@pytest.mark.parametrize(
    ("method", "path", "label"),
    [
        ("POST", "/v1/completions", "completions"),
        ("POST", "/v1/embeddings", "embeddings"),
        ("GET", "/v1/models", "models"),
        ("POST", "/v1/responses/compact", "responses"),
        ("GET", "/v1/responses/resp_1", "responses"),
        ("POST", "/v1/messages/batches", "messages"),
        ("POST", "/v1beta/models/gemini:generateContent", "other"),
        ("POST", "/v1/audio/speech", "other"),
    ],
)
async def test_an_answer_of_a_known_api_says_that_it_was_passed(method, path, label, client, start_proxy, log):
    """The log line and the metrics have the API's name."""
    proxy = await start_proxy()
    async with client.request(method, proxy.url + path, json=PROMPT if method == "POST" else None) as answer:
        assert (answer.status, answer.headers[OUTCOME]) == (200, "passed")
    line = next(line for line in log.lines if line["event"] == "request")
    assert (line["endpoint"], line["outcome"]) == (label, "passed")
    assert f'endpoint="{label}"' in proxy.services.recorder.metrics.render().decode()


async def test_any_other_answer_says_nothing(client, start_proxy):
    """There was no prompt that somebody could miss to be compacted."""
    proxy = await start_proxy()
    for path in ("/v1/files", "/", "/v1/threads/t/messages"):
        async with client.post(proxy.url + path, json=PROMPT) as answer:
            assert OUTCOME not in answer.headers


async def test_a_websocket_of_a_known_api_says_it_too(upstream, start_proxy, log):
    """Whether the upstream opens it or refuses it."""

    async def refuse(_recorded, _request):
        return web.Response(status=403)

    upstream.answer = refuse
    proxy = await start_proxy()
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(proxy.url + "/v1/responses")
    assert refused.value.headers is not None
    assert refused.value.headers[OUTCOME] == "passed"
    assert [line["path"] for line in log.lines if line["event"] == "not_compacted"] == ["/v1/responses"]


async def test_prompts_that_pass_are_warned_of_once_a_path(client, upstream, start_proxy, log):
    """Identifiers in the path do not count, and neither does the upstream's answer."""

    async def refuse(_recorded, _request):
        return web.Response(status=400)

    upstream.answer = refuse
    proxy = await start_proxy()
    for path in ("/v1/completions", "/v1beta/models/a-1:generateContent", "/v1beta/models/b-2:generateContent"):
        for _ in range(2):
            await post(client, proxy.url + path, PROMPT)
    await post(client, proxy.url + "/v1/embeddings", PROMPT)

    told = [line for line in log.lines if line["event"] == "not_compacted"]
    assert [(line["path"], line["endpoint"]) for line in told] == [
        ("/v1/completions", "completions"),
        ("/v1beta/models/*", "other"),
    ]


async def test_our_own_error_has_the_form_of_the_paths_dialect(client, start_proxy):
    """Also at a path of the dialect that is not compacted. Everywhere else it is that of chat completions."""
    proxy = await start_proxy("client_keys=[a-key-of-our-own]")
    for path in ("/v1/messages", "/v1/messages/count_tokens", "/v1/messages/batches", "/anthropic/v1/messages"):
        answer, text = await post(client, proxy.url + path, PROMPT)
        assert (answer.status, orjson.loads(text)["type"]) == (401, "error")
        assert answer.headers[OUTCOME] == "refused"
    for path in ("/v1/chat/completions", "/v1/embeddings", "/v1/files", "/v1/threads/t/messages"):
        _, text = await post(client, proxy.url + path, PROMPT)
        assert orjson.loads(text).keys() == {"error"}
