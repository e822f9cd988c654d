"""Chat completions at every path that clients use: each is compacted, and goes where the client sent it."""

import orjson
import pytest
from support.client import CHAT, SMALL, post, settle
from support.sessions import make_session
from upstreams.recording import run_upstream

AZURE = "/openai/deployments/my-gpt/chat/completions?api-version=2024-10-21"
NAMELESS = {"messages": CHAT["messages"]}


@pytest.mark.parametrize(
    ("path", "received"),
    [
        ("/v1/chat/completions/", "/v1/chat/completions/"),
        ("/chat/completions/?a=1&&b=", "/v1/chat/completions/?a=1&&b="),
        ("/api/v1/chat/completions", "/api/v1/chat/completions"),
        ("/v1/account/gateway/chat/completions", "/v1/account/gateway/chat/completions"),
        (AZURE, AZURE),
    ],
)
async def test_a_path_is_compacted_whatever_precedes_its_ending(path, received, client, upstream, start_proxy):
    """Only `/v1/X` and the ending alone go under base_url. Every other path goes out byte for byte."""
    proxy = await start_proxy()
    answer, _ = await post(client, proxy.url + path, CHAT)

    assert "original=" in answer.headers["x-trimtab-tokens"]
    assert upstream.requests[0].path == received


async def test_a_deployment_is_the_model_if_the_body_names_none(client, upstream, start_proxy, log):
    """It decides upstream and policy, and appears in the log. A model in the body wins. The body stays as it is."""
    async with run_upstream() as other:
        proxy = await start_proxy(f"upstreams.other.base_url={other.url}", "models=[{match: my-*, upstream: other}]")
        await post(client, proxy.url + AZURE, NAMELESS)
        assert (log.lines[-1]["model"], log.lines[-1]["match"], log.lines[-1]["upstream"]) == (
            "my-gpt",
            "my-*",
            "other",
        )
        await post(client, proxy.url + AZURE, {**NAMELESS, "model": "gpt-5"})
        assert (log.lines[-1]["model"], log.lines[-1].get("match")) == ("gpt-5", None)
        await post(client, proxy.url + AZURE, b"no JSON")
        assert (log.lines[-1]["outcome"], log.lines[-1]["upstream"]) == ("undecodable", "other")

    assert [request.body for request in other.requests] == [orjson.dumps(NAMELESS), b"no JSON"]
    assert [request.path for request in upstream.requests] == [AZURE]


@pytest.mark.parametrize(("model", "asked"), [(None, "my-gpt"), ("small/one", "small%2Fone")])
async def test_a_summary_is_asked_at_the_deployment_that_writes_it(model, asked, client, upstream, start_proxy):
    """There, the path decides which model answers."""
    settings = [] if model is None else [f"defaults.summary.model={model}"]
    proxy = await start_proxy(*SMALL, "defaults.summary.max_tokens=600", *settings)
    session = make_session(40)["messages"]
    for stop in range(10, len(session), 6):
        await post(client, proxy.url + AZURE, {"messages": session[:stop]})
        await settle(proxy)

    assert upstream.summaries
    assert {question.path for question in upstream.summaries} == {AZURE.replace("my-gpt", asked)}
    assert {question.json.get("model", "my-gpt") for question in upstream.summaries} == {model or "my-gpt"}


async def test_the_configuration_names_other_paths(client, upstream, start_proxy, log):
    """They are compacted as the dialect that it names, and go to the upstream's origin."""
    proxy = await start_proxy("compaction.paths={/llm/generate: chat}")
    answer, _ = await post(client, proxy.url + "/llm/generate?x=1", CHAT)

    assert "original=" in answer.headers["x-trimtab-tokens"]
    assert (log.lines[-1]["endpoint"], log.lines[-1]["path"]) == ("chat", "/llm/generate")
    assert upstream.requests[0].path == "/llm/generate?x=1"


async def test_the_operators_key_goes_only_to_allowed_paths(client, upstream, start_proxy):
    """A path outside base_url must be listed, also if it is compacted."""
    settings = ("upstream.api_key=sk-operator", 'upstream.allowed_paths=["/openai/*"]')
    proxy = await start_proxy(*settings)
    refused, text = await post(client, proxy.url + "/api/v1/chat/completions", CHAT)
    allowed, _ = await post(client, proxy.url + AZURE, CHAT)

    assert (refused.status, orjson.loads(text)["error"]["code"]) == (404, "path_not_allowed")
    assert allowed.status == 200
    assert [request.path for request in upstream.requests] == [AZURE]


async def test_our_own_pages_stay_ours(client, upstream, start_proxy):
    """A path below /trimtab never reaches an upstream, however it ends."""
    proxy = await start_proxy()
    answer, _ = await post(client, proxy.url + "/trimtab/chat/completions", CHAT)

    assert answer.status == 404
    assert not upstream.requests
