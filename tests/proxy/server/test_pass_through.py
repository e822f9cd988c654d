"""A request that no codec claims goes to the upstream of the model that it names."""

import gzip

import aiohttp
import orjson
import pytest
from aiohttp import web
from support.client import post
from upstreams.recording import run_upstream

EMBED = {"input": ["a"], "model": "local-embed"}
LOCAL = ("models=[{match: local-*, upstream: local}]",)


@pytest.fixture
async def local():
    """The upstream of the models `local-*`."""
    async with run_upstream() as running:
        yield running


@pytest.fixture
async def proxy(start_proxy, local):
    """A proxy that routes by model."""
    return await start_proxy(f"upstreams.local.base_url={local.url}", *LOCAL)


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/responses/compact", "/api/embed?x=1"])
async def test_a_json_body_goes_to_the_upstream_of_its_model(path, proxy, client, upstream, local, log):
    """Byte for byte, whatever the path. The log names model, match and upstream."""
    body = b' {"input" : ["a"],  "x": 1E5, "model":"local-embed"}'
    await post(client, proxy.url + path, body)
    await post(client, proxy.url + path, EMBED | {"model": "other"})

    assert [(request.path, request.body) for request in local.requests] == [(path, body)]
    assert [request.json["model"] for request in upstream.requests] == ["other"]
    lines = [line for line in log.lines if line["event"] == "request"]
    assert [(line.get("model"), line.get("match"), line["upstream"]) for line in lines] == [
        ("local-embed", "local-*", "local"),
        ("other", None, upstream.url.removeprefix("http://").removesuffix("/v1")),
    ]


async def test_a_model_at_the_end_of_a_body_is_found(proxy, client, upstream, local):
    """Also behind what is peeked at of a body that is too large to be read whole."""
    await post(client, proxy.url + "/v1/embeddings", {"input": "a" * 70_000, "model": "local-embed"})
    assert (len(local.requests), upstream.requests) == (1, [])


async def test_the_path_names_the_model_if_the_body_names_none(proxy, client, upstream, local):
    """At a deployment, and in the list of models."""
    await post(client, proxy.url + "/openai/deployments/local-embed/embeddings?api-version=1", {"input": "a"})
    for model in ("local-a/b", "other"):
        async with client.get(f"{proxy.url}/v1/models/{model}") as answer:
            assert answer.status == 200

    assert [request.path for request in local.requests] == [
        "/openai/deployments/local-embed/embeddings?api-version=1",
        "/v1/models/local-a/b",
    ]
    assert [request.path for request in upstream.requests] == ["/v1/models/other"]


async def test_what_names_no_model_goes_to_the_main_upstream(proxy, client, upstream, local):
    """So does a body that is no JSON by its type."""
    bodies = [b'{"input":"a"}', b"no JSON", b"", b'{"model":"local-embed"}']
    for body, kind in zip(bodies, [*["application/json"] * 3, "application/octet-stream"], strict=True):
        await post(client, proxy.url + "/v1/files", body, **{"Content-Type": kind})
    assert [request.body for request in upstream.requests] == bodies
    assert not local.requests


@pytest.mark.parametrize("name", ["local-embed", "other"])
async def test_a_body_that_is_too_large_goes_where_its_beginning_says(name, start_proxy, client, upstream, local):
    """The rest of it streams through."""
    proxy = await start_proxy(f"upstreams.local.base_url={local.url}", *LOCAL, "limits.max_body_bytes=1024")
    body = orjson.dumps({"model": name, "input": "x" * 300_000})
    await post(client, proxy.url + "/v1/embeddings", body)

    received = local if name == "local-embed" else upstream
    assert [request.body for request in received.requests] == [body]
    assert len(local.requests) + len(upstream.requests) == 1


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_form_goes_to_the_upstream_of_its_model(is_first, *, proxy, client, upstream, local):
    """If the field comes before a large file; else to the main upstream. The bytes are the same."""
    form = aiohttp.FormData()
    fields = [("file", b"\x00" * 200_000), ("model", "local-whisper")]
    for name, value in reversed(fields) if is_first else fields:
        form.add_field(name, value, **({"filename": "a.wav"} if name == "file" else {}))
    async with client.post(proxy.url + "/v1/audio/transcriptions", data=form) as answer:
        assert answer.status == 200

    received = local if is_first else upstream
    assert len(local.requests) + len(upstream.requests) == 1
    assert received.requests[0].body.count(b"\x00") == 200_000
    assert received.requests[0].header("Content-Type")[0].startswith("multipart/form-data; boundary=")


async def test_without_another_upstream_nothing_is_held(start_proxy, client, upstream):
    """The body streams through, as large as it is."""
    proxy = await start_proxy("models=[{match: local-*, context_window: 4096}]", "limits.max_held_bytes=1024")
    body = orjson.dumps(EMBED | {"input": "x" * 100_000})
    answer, _ = await post(client, proxy.url + "/v1/embeddings", body)

    assert (answer.status, upstream.requests[0].body) == (200, body)


async def test_what_is_held_is_bounded(start_proxy, client, local, upstream):
    """As for requests that are compacted."""
    proxy = await start_proxy(f"upstreams.local.base_url={local.url}", *LOCAL, "limits.max_held_bytes=1024")
    answer, text = await post(client, proxy.url + "/v1/embeddings", EMBED | {"input": "x" * 100_000})

    assert (answer.status, orjson.loads(text)["error"]["code"]) == (503, "overloaded")
    assert not [*local.requests, *upstream.requests]
    assert (await post(client, proxy.url + "/v1/embeddings", EMBED))[0].status == 200


async def test_a_compressed_body_goes_where_its_model_says(proxy, client, upstream, local):
    """It is sent unchanged."""
    body = gzip.compress(orjson.dumps(EMBED))
    await post(client, proxy.url + "/v1/embeddings", body, **{"Content-Encoding": "gzip"})

    assert [request.body for request in local.requests] == [body]
    assert local.requests[0].header("Content-Encoding") == ["gzip"]
    assert not upstream.requests


PROMPT = {"model": "m", "prompt": "Once"}
OUTCOME = "x-trimtab-outcome"


async def test_an_answer_of_a_known_api_says_that_it_was_passed(client, start_proxy, log):
    """The log line and the metrics have the API's name. Elsewhere there was no prompt that somebody could miss."""
    proxy = await start_proxy()
    for method, path, label, outcome in (
        ("POST", "/v1/completions", "completions", "passed"),
        ("POST", "/v1/embeddings", "embeddings", "passed"),
        ("GET", "/v1/models", "models", "passed"),
        ("GET", "/v1/responses/resp_1", "responses", "passed"),
        ("POST", "/v1/messages/batches", "messages", "passed"),
        ("POST", "/v1beta/models/gemini:generateContent", "other", "passed"),
        ("POST", "/v1/audio/speech", "other", "passed"),
        ("POST", "/v1/files", "other", None),
        ("POST", "/", "other", None),
        ("POST", "/v1/threads/t/messages", "other", None),
    ):
        async with client.request(method, proxy.url + path, json=PROMPT if method == "POST" else None) as answer:
            assert (answer.status, answer.headers.get(OUTCOME)) == (200, outcome)
        line = [line for line in log.lines if line["event"] == "request"][-1]
        assert (path, line["endpoint"], line["outcome"]) == (path, label, "passed")
        assert f'endpoint="{label}"' in proxy.services.recorder.metrics.render().decode()


async def test_a_websocket_of_a_known_api_says_it_too(upstream, start_proxy, log):
    """Whether the upstream opens it or refuses it."""

    async def refuse(_recorded, _request):
        return web.Response(status=403)

    upstream.answer = refuse
    proxy = await start_proxy()
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(proxy.url + "/v1/responses")
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
