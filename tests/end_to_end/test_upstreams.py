"""Three upstreams: each sees its own credential only, whatever a client sends and whatever trimtab asks by itself."""

from contextlib import AsyncExitStack
from itertools import cycle

import aiohttp
import orjson
import pytest
from aiohttp import web
from support.client import settle
from support.dialects.spoken.all_dialects import CHAT, MESSAGES, RESPONSES
from support.sessions import make_session
from upstreams.recording import completion, run_upstream, write_note

CLIENTS = "sk-of-the-client-alone"
NEARS = "sk-of-the-operator-for-near"
SHOWN = [
    {"Authorization": f"Bearer {CLIENTS}"},
    {"x-api-key": CLIENTS, "anthropic-version": "2023-06-01", "anthropic-beta": "b"},
    {"api-key": CLIENTS, "OpenAI-Organization": CLIENTS},
    {"Cookie": f"session={CLIENTS}", "X-Goog-Api-Key": CLIENTS, "x_auth_token": CLIENTS},
]
MODELS = ("main-m", "near-m", "far-m")
SETTINGS = (
    "models_list=merged",
    "models=[{match: near-*, upstream: near}, {match: far-*, upstream: far, summary: {upstream: near}}]",
    "defaults.completion_reserve=500",
    "defaults.summary.max_tokens=300",
    "defaults.anchors=0.1",
)
REFUSED_BYTES = 6500
"""Longer bodies are refused for their length, if they ask for it."""
PATHS = {
    CHAT.path: CHAT,
    "/openai/deployments/main-x/chat/completions": CHAT,
    RESPONSES.path: RESPONSES,
    MESSAGES.path: MESSAGES,
    f"{MESSAGES.path}/count_tokens": MESSAGES,
}
SESSION = make_session(30)


async def answer_all(recorded, _request):
    """An answer in the dialect of the path; or a refusal, or a list of models."""
    if recorded.method == "GET":
        return web.json_response({"object": "list", "data": [{"id": name, "context_length": 4000} for name in MODELS]})
    if b"REFUSE" in recorded.body and len(recorded.body) > REFUSED_BYTES:
        words = "This model's maximum context length is 2500 tokens. Please reduce the length of the messages."
        failure = {"message": words, "code": "context_length_exceeded", "type": "invalid_request_error"}
        return web.json_response({"error": failure}, status=400)
    dialect = next((one for path, one in PATHS.items() if recorded.path.startswith(path)), CHAT)
    return completion(write_note("SUMMARY."), dialect, prompt_tokens=9, completion_tokens=9)


@pytest.fixture
async def upstreams(upstream):
    """The main upstream, near, which has a key of the operator's, and far, which has none."""
    async with AsyncExitStack() as stack:
        running = [upstream, *[await stack.enter_async_context(run_upstream()) for _ in range(2)]]
        for one in running:
            one.answer, one.answers_questions = answer_all, True
        yield running


@pytest.fixture
async def proxy(start_proxy, upstreams):
    """A proxy in front of all three."""
    _, near, far = upstreams
    keyed = f"base_url: '{near.url}', api_key: {NEARS}, allowed_paths: [/openai/*]"
    return await start_proxy(f"upstreams={{near: {{{keyed}}}, far: {{base_url: '{far.url}'}}}}", *SETTINGS)


def check(upstreams) -> None:
    """No upstream was shown a credential of another one, in its request line, its headers or its body."""
    for number, one in enumerate(upstreams):
        for request in one.requests:
            text = repr((request.path, request.headers)).encode() + request.body
            assert (CLIENTS.encode() in text) <= (number == 0), (number, request.path, request.headers)
            assert (NEARS.encode() in text) is (number == 1), (number, request.path, request.headers)


@pytest.mark.parametrize(("path", "shown"), list(zip(PATHS, cycle(SHOWN), strict=False)), ids=range(len(PATHS)))
async def test_a_session_shows_each_upstream_its_own_credential(path, shown, proxy, client, upstreams):
    """Requests, second attempts, summaries, and the question for windows."""
    for model, one in zip(MODELS, upstreams, strict=True):
        for stop, more in ((8, {}), (32, {}), (44, {}), (14, {"metadata": {"user_id": "REFUSE"}})):
            body = PATHS[path].write(SESSION["messages"][:stop], SESSION["tools"], model=model, **more)
            url = f"{proxy.url}{path}?key={CLIENTS}&beta=true"
            async with client.post(url, data=orjson.dumps(body), headers=shown) as answer:
                assert answer.status == 200
            await settle(proxy)
            await proxy.services.models.settle()
        assert len([request for request in one.requests if b"REFUSE" in request.body]) == 2

    check(upstreams)
    assert any(request.method == "GET" for request in upstreams[1].requests)
    asked = [request for one in upstreams for request in one.requests if b"handoff note" in request.body]
    assert bool(asked) is not path.endswith("count_tokens")


async def test_what_passes_shows_each_upstream_its_own_credential(proxy, client, upstreams):
    """Bodies and forms that are routed by their model, and entries and lists of models."""
    shown = {name: value for each in SHOWN for name, value in each.items()}
    for model in MODELS:
        for path in ("/v1/embeddings", "/v1/completions", "/v1/messages/batches", "/v1/responses/compact"):
            body = {"model": model, "input": "x"}
            async with client.post(f"{proxy.url}{path}?api-key={CLIENTS}", json=body, headers=shown) as answer:
                assert answer.status == 200
        form = aiohttp.FormData({"model": model, "prompt": "x"})
        form.add_field("image", b"png", filename="a.png")
        async with client.post(f"{proxy.url}/v1/images/edits", data=form, headers=shown) as answer:
            assert answer.status == 200
        for path in (f"/v1/models/{model}", "/v1/models"):
            async with client.get(f"{proxy.url}{path}", headers=shown) as answer:
                assert answer.status == 200

    check(upstreams)
    for one in upstreams:
        asked = [request.path.split("?")[0] for request in one.requests if request.method == "GET"]
        assert len([request for request in one.requests if request.method == "POST"]) == 5
        assert asked.count("/v1/models") >= 3
        assert len([path for path in asked if path.startswith("/v1/models/")]) == 1
