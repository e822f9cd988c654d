"""`GET /v1/models` with the models of all upstreams."""

import asyncio
import gzip
from contextlib import AsyncExitStack

import orjson
import pytest
from aiohttp import web
from upstreams.recording import run_upstream

from proxy.server.passing import models_list

HEADERS = {"Authorization": "Bearer sk-client-of-the-main", "X-Client": "1"}


def _lists(*names, status=200, **form):
    async def answer(_recorded, _request):
        data = {"object": "list", "data": [{"id": name} for name in names], **form}
        return web.Response(body=orjson.dumps(data), status=status, content_type="application/json")

    return answer


async def _greet(_recorded, _request):
    return web.Response(body=b"hello")


async def _hang(_recorded, _request):
    await asyncio.Event().wait()


@pytest.fixture
async def others():
    """Two further upstreams, `near` and `far`."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(run_upstream()) for _ in range(2)]


@pytest.fixture
async def proxy(start_proxy, others):
    """A proxy that lists the models of all three. `far` has a key."""
    near, far = others
    for one in others:
        one.answers_questions = True
    return await start_proxy(
        "models_list=merged",
        f"upstreams={{near: {{base_url: '{near.url}'}}, far: {{base_url: '{far.url}', api_key: sk-operator-far}}}}",
        "models=[{match: near-*, upstream: near, context_window: 4096}]",
        "profiles={away: {upstream: far, context_window: 4096}}",
    )


async def _get(client, proxy, path="/v1/models"):
    async with client.get(proxy.url + path, headers=HEADERS) as answer:
        return answer, await answer.read()


async def test_every_upstream_that_requests_reach_is_asked(proxy, client, upstream, others, log):
    """Each with its own credential. Only the main one gets the client's headers."""
    for number, one in enumerate((upstream, *others)):
        one.answer = _lists("shared", f"model-{number}", "near-1")
    answer, body = await _get(client, proxy, "/v1/models?limit=5")

    assert (answer.status, answer.content_type, answer.headers["x-trimtab-outcome"]) == (
        200,
        "application/json",
        "passed",
    )
    main = upstream.url.removeprefix("http://").removesuffix("/v1")
    owners = {entry["id"]: entry["trimtab_upstream"] for entry in orjson.loads(body)["data"]}
    assert owners == {"shared": main, "model-0": main, "near-1": "near", "model-1": "near", "model-2": "far"}
    (own,), (near,), (far,) = (one.requests for one in (upstream, *others))
    assert (own.path, near.path, far.path) == ("/v1/models?limit=5", "/v1/models", "/v1/models")
    assert (own.header("authorization"), own.header("x-client")) == ([HEADERS["Authorization"]], ["1"])
    assert (near.header("authorization"), near.header("x-client")) == ([], [])
    assert far.header("authorization") == ["Bearer sk-operator-far"]
    assert (log.lines[-1]["endpoint"], log.lines[-1]["upstream"], log.lines[-1]["status"]) == ("models", main, 200)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (_lists(status=401), "status 401"),
        (_greet, "no list of models"),
        (_hang, "upstream_timeout"),
    ],
)
async def test_an_upstream_that_fails_is_left_out(answer, reason, *, proxy, client, upstream, others, log, monkeypatch):
    """The log says which one, and why. So it is if the main one fails."""
    monkeypatch.setattr(models_list, "TIMEOUT_SECONDS", 0.3)
    upstream.answer, others[0].answer, others[1].answer = answer, answer, _lists("far-1")
    response, body = await _get(client, proxy)

    assert response.status == 200
    assert [entry["id"] for entry in orjson.loads(body)["data"]] == ["far-1"]
    main = upstream.url.removeprefix("http://").removesuffix("/v1")
    told = [(line["upstream"], line["reason"]) for line in log.lines if line["event"] == "models_unlisted"]
    assert told == [(main, reason), ("near", reason)]


async def test_a_compressed_list_is_read(proxy, client, upstream, others):
    """Although it was asked for without."""

    async def compress(_recorded, _request):
        body = gzip.compress(orjson.dumps({"object": "list", "data": [{"id": "far-1"}]}))
        return web.Response(body=body, content_type="application/json", headers={"Content-Encoding": "gzip"})

    upstream.answer, others[0].answer, others[1].answer = _lists("a"), _lists("near-b"), compress
    answer, body = await _get(client, proxy)
    assert [entry["id"] for entry in orjson.loads(body)["data"]] == ["a", "near-b", "far-1"]
    assert "Content-Encoding" not in answer.headers


async def test_if_all_fail_the_client_gets_the_main_upstreams_answer(proxy, client, upstream, others):
    """With its status, its headers and its body."""

    async def refuse(_recorded, _request):
        return web.Response(body=b"go away", status=418, headers={"X-Why": "tea"})

    upstream.answer = refuse
    for one in others:
        one.answer = _lists(status=500)
    answer, body = await _get(client, proxy)

    assert (answer.status, answer.headers["X-Why"], body) == (418, "tea", b"go away")


async def test_an_endless_list_is_left_out(proxy, client, upstream, others, monkeypatch):
    """Its size is bounded."""
    monkeypatch.setattr(models_list, "MAX_ANSWER_BYTES", 1000)
    upstream.answer, others[0].answer, others[1].answer = _lists("a"), _lists(*map(str, range(1000))), _lists("b")
    _, body = await _get(client, proxy)
    assert [entry["id"] for entry in orjson.loads(body)["data"]] == ["a", "b"]

    upstream.answer, others[1].answer = others[0].answer, _lists(status=500)
    answer, body = await _get(client, proxy)
    assert (answer.status, orjson.loads(body)["error"]["code"]) == (502, "upstream_invalid")


@pytest.mark.parametrize("path", ["/v1/models?after_id=x", "/v1/models/a", "/models"])
async def test_other_questions_are_answered_by_one_upstream(path, proxy, client, upstream, others):
    """A further page belongs to the upstream of the first one."""
    await _get(client, proxy, path)
    assert [request.path for request in upstream.requests] == [path]
    assert not [request for one in others for request in one.requests]


async def test_by_default_the_list_is_that_of_the_main_upstream(start_proxy, client, upstream, others):
    """It passes as it is."""
    upstream.answer = _lists("a")
    near = others[0]
    proxy = await start_proxy(f"upstreams.near.base_url={near.url}", "models=[{match: n, upstream: near}]")
    answer, body = await _get(client, proxy)
    assert orjson.loads(body) == {"object": "list", "data": [{"id": "a"}]}
    assert answer.headers["x-trimtab-outcome"] == "passed"
