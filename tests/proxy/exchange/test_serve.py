"""Chat completions through a running proxy: what the upstream gets, and what the client gets."""

from dataclasses import dataclass

import orjson
import pytest
from aiohttp import web
from msgspec.structs import replace
from support.client import CHAT, SMALL, post
from support.sessions import make_session
from upstreams.recording import run_upstream


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/chat/completions"])
async def test_body_is_forwarded_byte_for_byte_when_no_rule_acts(path, client, upstream, start_proxy):
    body = b"""{ "model":"m", "x": 1E5 ,"model":"fake-model",
      "seed": 123456789012345678901234567890, "messages" : [ {"content":"h\\u00e9llo", "role":"user", "zz": null} ] }"""
    proxy = await start_proxy()
    response, answer = await post(client, proxy.url + path, body)
    assert response.status == 200
    assert orjson.loads(answer)["choices"][0]["message"]["content"] == "All good."
    assert upstream.requests[0].body == body
    assert upstream.requests[0].path == "/v1/chat/completions"


async def test_an_unknown_mode_is_refused(client, upstream, start_proxy, log):
    proxy = await start_proxy("limits.max_body_bytes=2000", 'models=[{"match": "qwen*"}]')
    headers = [("x-trimtab-mode", "off"), ("x-trimtab-mode", "bogus")]
    for body in (b"no JSON", orjson.dumps({**CHAT, "x": "y" * 3000}), orjson.dumps(CHAT | {"model": "qwen3"})):
        async with client.post(proxy.url + "/v1/chat/completions", data=body, headers=headers) as response:
            error = (await response.json())["error"]
            assert (response.status, error["param"], error["code"]) == (400, "x-trimtab-mode", "unknown_mode")
    assert upstream.requests == []
    assert (log.lines[-1]["model"], log.lines[-1]["match"]) == ("qwen3", "qwen*")


async def test_what_is_no_chat_request_is_forwarded_for_the_upstream_to_judge(client, upstream, start_proxy):
    async def judge(_recorded, _request):
        return web.Response(status=400, body=b"no good")

    upstream.answer = judge
    proxy = await start_proxy()
    for body in (b"", b"{", b"[]", b"null", b'{"messages":5}', b'{"messages":[{}]}', b"\xff\x00"):
        async with client.post(proxy.url + "/v1/chat/completions", data=body) as response:
            assert (response.status, await response.read()) == (400, b"no good")
        assert upstream.requests[-1].body == body


@pytest.mark.parametrize("chunked", [False, True])
async def test_body_over_the_bound_streams_through(chunked, client, upstream, start_proxy):
    proxy = await start_proxy(*SMALL, "limits.max_body_bytes=20000")
    body = orjson.dumps({"model": "m", "messages": make_session(60)["messages"][:-1]})

    async def pieces():
        for start in range(0, len(body), 5000):
            yield body[start : start + 5000]

    async with client.post(proxy.url + "/v1/chat/completions", data=pieces() if chunked else body) as response:
        assert response.status == 200
    assert upstream.requests[0].body == body
    async with client.get(proxy.url + "/metrics") as metrics:
        assert 'outcome="too_large",status="200"} 1.0' in (await metrics.read()).decode()


@dataclass(frozen=True)
class _Broken:
    """Fails whatever is asked of it."""

    def __getattr__(self, name):
        message = "planted secret text"
        raise ZeroDivisionError(message)


@pytest.mark.parametrize(("phase", "broken"), [("write_ahead", "sliding"), ("observe", "previous")])
async def test_a_fault_after_the_upstream_has_answered_loses_no_answer(phase, broken, client, start_proxy):
    """Work beside an answer must not break the answer. The fault is counted."""
    # so that any summary may be written ahead
    free = ("prices.cached_input=0", "prices.cache_write=0", "prices.output=0")
    settings = ("defaults.overflow_strategy=summarize", "defaults.summary.max_tokens=300", "defaults.high_water=0.95")
    proxy = await start_proxy(*SMALL, *settings, *free)
    proxy.current.services = replace(proxy.services, **{broken: _Broken()})
    body = {"model": "m", "messages": make_session(38, result_words=120)["messages"][:-1]}  # its next cut is near
    response, answer = await post(client, proxy.url + "/v1/chat/completions", body)
    assert (response.status, b"All good." in answer) == (200, True)
    metrics = await (await client.get(proxy.url + "/metrics")).text()
    assert f'trimtab_fail_open_total{{phase="{phase}"}} 1.0' in metrics


async def test_neither_keys_nor_text_reach_log_metrics_or_errors(client, upstream, start_proxy, log):
    """A planted key and a planted sentence are only in what was forwarded.

    The client's name for its model is in the log. It is in the metrics only if an upstream has vouched for it.
    """
    proxy = await start_proxy(*SMALL, "defaults.on_exceeded=error")
    bodies = [
        CHAT | {"messages": [{"role": "user", "content": "PLANTED sentence"}]},
        {"model": "strange", "messages": [{"role": "user", "content": "PLANTED " * 9000}]},
        {"model": "m", "messages": [{"role": "user", "content": "PLANTED"}, *make_session(60)["messages"][1:-1]]},
    ]
    for body in bodies:
        headers = {"Authorization": "Bearer PLANTED-key", "api-key": "PLANTED-too"}
        async with client.post(proxy.url + "/v1/chat/completions?PLANTED=1", json=body, headers=headers) as response:
            answer = await response.read()
        assert b"PLANTED" not in answer
        assert "PLANTED" not in str(dict(response.headers))
    async with client.get(proxy.url + "/metrics") as metrics:
        shown = await metrics.read()
    assert b"PLANTED" not in shown
    assert b"strange" not in shown
    assert "PLANTED" not in str(log.lines)
    assert {line["event"] for line in log.lines[:2]} == {line["event"] for line in log.lines[-1:]} == {"request"}
    assert {line["event"] for line in log.lines[2:-1]} == {"summary"}
    asked = [line["model"] for line in log.lines if line["event"] == "request"]
    assert asked == [CHAT["model"], "strange", "m"]


async def test_what_is_not_decoded_goes_to_its_models_upstream_all_the_same(client, upstream, start_proxy):
    """The credential goes only to the upstream of the request's model, and only if that upstream is to get it."""
    bodies = [b'{"model": "local-1"}', b'{"model":"local-1","messages":[' + b" " * 5000 + b"]}"]
    async with run_upstream() as local:
        here = f"upstreams={{here: {{base_url: '{local.url}', credential: client}}}}"
        settings = ("models=[{match: 'local*', upstream: here}]", "limits.max_body_bytes=2000")
        proxy = await start_proxy(here, *settings)
        for body in bodies:
            response, _ = await post(client, proxy.url + "/v1/chat/completions", body)
            assert response.status == 200
        assert [recorded.body for recorded in local.requests] == bodies
        assert local.requests[0].header("authorization") == ["Bearer sk-test"]
    assert upstream.requests == []


# Chat completions at every path that clients use: each is compacted, and goes where the client sent it.

AZURE = "/openai/deployments/my-gpt/chat/completions?api-version=2024-10-21"
NAMELESS = {"messages": CHAT["messages"]}


async def test_a_path_is_compacted_whatever_precedes_its_ending(client, upstream, start_proxy):
    proxy = await start_proxy()
    for path, received in (
        ("/v1/chat/completions/", "/v1/chat/completions/"),
        ("/chat/completions/?a=1&&b=", "/v1/chat/completions/?a=1&&b="),
        ("/v1/account/gateway/chat/completions", "/v1/account/gateway/chat/completions"),
        (AZURE, AZURE),
    ):
        answer, _ = await post(client, proxy.url + path, CHAT)
        assert "original=" in answer.headers["x-trimtab-tokens"]
        assert upstream.requests[-1].path == received


async def test_a_deployment_is_the_model_if_the_body_names_none(client, upstream, start_proxy, log):
    async with run_upstream() as other:
        proxy = await start_proxy(f"upstreams.other.base_url={other.url}", "models=[{match: my-*, upstream: other}]")
        await post(client, proxy.url + AZURE, NAMELESS)
        assert [log.lines[-1][name] for name in ("model", "match", "upstream")] == ["my-gpt", "my-*", "other"]
        await post(client, proxy.url + AZURE, {**NAMELESS, "model": "gpt-5"})
        assert (log.lines[-1]["model"], log.lines[-1].get("match")) == ("gpt-5", None)
        await post(client, proxy.url + AZURE, b"no JSON")
        assert (log.lines[-1]["outcome"], log.lines[-1]["upstream"]) == ("undecodable", "other")

    assert [request.body for request in other.requests] == [orjson.dumps(NAMELESS), b"no JSON"]
    assert [request.path for request in upstream.requests] == [AZURE]


async def test_the_configuration_names_other_paths(client, upstream, start_proxy, log):
    proxy = await start_proxy("compaction.paths={/llm/generate: chat}")
    answer, _ = await post(client, proxy.url + "/llm/generate?x=1", CHAT)

    assert "original=" in answer.headers["x-trimtab-tokens"]
    assert (log.lines[-1]["endpoint"], log.lines[-1]["path"]) == ("chat", "/llm/generate")
    assert upstream.requests[0].path == "/llm/generate?x=1"


async def test_our_own_pages_stay_ours(client, upstream, start_proxy):
    proxy = await start_proxy()
    answer, _ = await post(client, proxy.url + "/trimtab/chat/completions", CHAT)

    assert answer.status == 404
    assert not upstream.requests


async def test_a_body_is_read_on_from_an_earlier_one_though_nothing_acts(client, upstream, start_proxy):
    """In mode off, too: there a request with a known beginning took twice the time of mode enforce."""
    proxy = await start_proxy("mode=off")
    messages = make_session(60)["messages"]
    first, second = (orjson.dumps({"model": "m", "messages": messages[:count]}) for count in (100, 120))
    await post(client, proxy.url + "/v1/chat/completions", first)
    tenant = proxy.services.tenancy.identify([("Authorization", "Bearer sk-test")]).id
    match = proxy.services.compactors.find_kept_bodies(tenant).find("chat", second)
    assert match is not None
    assert match.number == 100
    await post(client, proxy.url + "/v1/chat/completions", second)
    assert [one.body for one in upstream.requests] == [first, second]


async def test_the_operators_key_goes_only_to_allowed_paths(client, upstream, start_proxy):
    """A path outside base_url must be listed, also if it is compacted."""
    settings = ("upstream.api_key=sk-operator", 'upstream.allowed_paths=["/openai/*"]')
    proxy = await start_proxy(*settings)
    refused, text = await post(client, proxy.url + "/api/v1/chat/completions", CHAT)
    allowed, _ = await post(client, proxy.url + AZURE, CHAT)

    assert (refused.status, orjson.loads(text)["error"]["code"]) == (404, "path_not_allowed")
    assert allowed.status == 200
    assert [request.path for request in upstream.requests] == [AZURE]
