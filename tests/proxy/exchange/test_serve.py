"""Chat completions through a running proxy: what the upstream gets, and what the client gets."""

from dataclasses import dataclass

import orjson
import pytest
from aiohttp import web
from msgspec.structs import replace
from support.client import CHAT, SMALL, post, settle
from support.sessions import make_session, requests_of
from upstreams.recording import run_upstream


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/chat/completions"])
async def test_body_is_forwarded_byte_for_byte_when_no_rule_acts(path, client, upstream, start_proxy):
    """Odd white space, key order, big integers, duplicate keys and unknown fields survive."""
    body = b"""{ "model":"m", "x": 1E5 ,"model":"fake-model",
      "seed": 123456789012345678901234567890, "messages" : [ {"content":"h\\u00e9llo", "role":"user", "zz": null} ] }"""
    proxy = await start_proxy()
    response, answer = await post(client, proxy.url + path, body)
    assert response.status == 200
    assert orjson.loads(answer)["choices"][0]["message"]["content"] == "All good."
    assert upstream.requests[0].body == body
    assert upstream.requests[0].path == "/v1/chat/completions"


async def test_only_the_truncated_result_differs(client, upstream, start_proxy):
    """Parts of a long tool result stay around markers. Every other byte of the body stays."""
    proxy = await start_proxy("defaults.max_tool_result_tokens=200")
    session = make_session(2, result_words=4000)
    session["messages"][3]["content"] = "short"
    body = orjson.dumps({"model": "m", "messages": session["messages"][:-1], "tools": session["tools"], "n": 1})
    response, _ = await post(client, proxy.url + "/v1/chat/completions", body)
    sent = upstream.requests[0].json
    whole = orjson.loads(body)
    assert sent["messages"][:-1] == whole["messages"][:-1]
    content = sent["messages"][-1]["content"]
    assert content.startswith("part 1\n")
    assert content.endswith("end 1")
    assert "[trimtab: " in content
    assert response.headers["x-trimtab-decisions"].startswith("truncate;saved=")
    whole["messages"][-1]["content"] = content
    assert upstream.requests[0].body == orjson.dumps(whole)


@pytest.mark.parametrize("written", ["off", " Observe\t", "enforce"])
async def test_a_mode_is_read_from_the_header_and_goes_no_further(written, client, upstream, start_proxy):
    """Only `enforce` changes the request. The upstream does not get the header."""
    proxy = await start_proxy(*SMALL, "defaults.overflow_strategy=prune")
    body = orjson.dumps({"model": "m", "messages": make_session(60, result_words=200)["messages"][:-1]})
    await post(client, proxy.url + "/v1/chat/completions", body, **{"x-trimtab-mode": written})
    assert (upstream.requests[-1].body != body) == (written == "enforce")
    assert upstream.requests[-1].header("x-trimtab-mode") == []


@pytest.mark.parametrize("body", [orjson.dumps(CHAT), b"no JSON", orjson.dumps({**CHAT, "x": "y" * 3000})])
async def test_an_unknown_mode_is_refused(body, client, upstream, start_proxy):
    """The answer is 400 with the three values. This holds for every header of that name and for any body."""
    proxy = await start_proxy("limits.max_body_bytes=2000")
    headers = [("x-trimtab-mode", "off"), ("x-trimtab-mode", "bogus")]
    async with client.post(proxy.url + "/v1/chat/completions", data=body, headers=headers) as response:
        assert (response.status, (await response.json())["error"]) == (
            400,
            {
                "message": "x-trimtab-mode must be off, observe or enforce",
                "type": "trimtab_error",
                "param": "x-trimtab-mode",
                "code": "unknown_mode",
            },
        )
    assert upstream.requests == []


async def test_profile_is_picked_by_header(client, upstream, start_proxy):
    """The named policy applies to the request. An unknown name is refused."""
    proxy = await start_proxy("profiles={tiny: {max_tool_result_tokens: 100}}")
    body = orjson.dumps({"model": "m", "messages": make_session(2, result_words=2000)["messages"][:-1]})
    url = proxy.url + "/v1/chat/completions"
    await post(client, url, body)
    assert upstream.requests[-1].body == body
    await post(client, url, body, **{"x-trimtab-profile": "tiny"})
    assert len(upstream.requests[-1].body) < len(body) / 2
    response, answer = await post(client, url, body, **{"x-trimtab-profile": "nope"})
    assert (response.status, orjson.loads(answer)["error"]["code"]) == (400, "unknown_profile")


@pytest.mark.parametrize(("policy", "fits"), [("forward", False), ("truncate", True)])
async def test_what_cannot_fit_is_forwarded_or_truncated_on_request(policy, fits, client, upstream, start_proxy):
    """`forward` sends the request. `truncate` shortens the largest text of the last message."""
    proxy = await start_proxy(*SMALL, f"defaults.on_exceeded={policy}")
    body = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "word " * 9000 + "THE END"}]})
    response, _ = await post(client, proxy.url + "/v1/chat/completions", body)
    tokens = dict(item.split("=") for item in response.headers["x-trimtab-tokens"].split(", "))
    assert (int(tokens["sent"]) <= 7000) is fits
    assert upstream.requests[0].json["messages"][0]["content"].endswith("THE END")
    assert (upstream.requests[0].body == body) is not fits


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"model":"m"}',
        b'{"messages":5}',
        b'{"messages":[5]}',
        b'{"messages":[{}]}',
        b"\xff\x00",
    ],
)
async def test_what_is_no_chat_request_is_forwarded_for_the_upstream_to_judge(body, client, upstream, start_proxy):
    """The same bytes reach the upstream, and its answer reaches the client."""

    async def judge(_recorded, _request):
        return web.Response(status=400, body=b"no good")

    upstream.answer = judge
    proxy = await start_proxy()
    async with client.post(proxy.url + "/v1/chat/completions", data=body) as response:
        assert (response.status, await response.read()) == (400, b"no good")
    assert upstream.requests[0].body == body


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


@pytest.mark.parametrize("chunked", [False, True])
async def test_body_over_the_bound_streams_through(chunked, client, upstream, start_proxy):
    """It is counted, but neither decoded nor compacted."""
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
    free = (
        "prices.cached_input=0",
        "prices.cache_write=0",
        "prices.output=0",
    )  # so that any summary may be written ahead
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


@pytest.mark.parametrize(
    ("body", "settings"),
    [
        pytest.param(b'{"model": "local-1"}', (), id="no messages"),
        pytest.param(
            b'{"model":"local-1","messages":[' + b" " * 5000 + b"]}", ("limits.max_body_bytes=2000",), id="large"
        ),
    ],
)
async def test_what_is_not_decoded_goes_to_its_models_upstream_all_the_same(
    body, settings, client, upstream, start_proxy
):
    """The credential goes only to the upstream of the request's model, and only if that upstream is to get it."""
    async with run_upstream() as local:
        models = "models=[{match: 'local*', upstream: here}]"
        proxy = await start_proxy(
            f"upstreams={{here: {{base_url: '{local.url}', credential: client}}}}", models, *settings
        )
        response, _ = await post(client, proxy.url + "/v1/chat/completions", body)
        assert response.status == 200
        assert [recorded.body for recorded in local.requests] == [body]
        assert local.requests[0].header("authorization") == ["Bearer sk-test"]
    assert upstream.requests == []


async def test_long_model_names_are_no_labels(client, start_proxy):
    """If an upstream answers for any name, the metrics do not grow with the names."""
    proxy = await start_proxy()
    for number in range(3):
        await post(client, proxy.url + "/v1/chat/completions", CHAT | {"model": "m" * 100_000 + str(number)})
    async with client.get(proxy.url + "/metrics") as metrics:
        assert len(await metrics.read()) < 100_000


@pytest.mark.parametrize(("mode", "words"), [("observe", 900), ("enforce", 9000)])
async def test_what_was_not_sent_is_not_said_to_have_been(mode, words, client, upstream, start_proxy, log):
    """Observed requests go out whole, and refused ones not at all. Header, log and metrics agree on both."""
    settings = ("defaults.on_exceeded=error", "defaults.max_tool_result_tokens=100")
    proxy = await start_proxy(*SMALL, f"mode={mode}", *settings)
    messages = [*make_session(1, result_words=4000)["messages"][:-1], {"role": "user", "content": "word " * words}]
    response, _ = await post(client, proxy.url + "/v1/chat/completions", {"model": "m", "messages": messages})
    tokens = dict(item.split("=") for item in response.headers["x-trimtab-tokens"].split(", "))
    expected = tokens["original"] if mode == "observe" else "0"
    assert tokens["sent"] == expected
    assert log.lines[-1]["sent_tokens"] == int(expected)
    assert len(upstream.requests) == (1 if mode == "observe" else 0)


async def test_a_request_that_is_refused_for_its_headers_names_its_model(client, start_proxy, log):
    """The name is in the log, and in the metrics as far as the configuration knows the model."""
    proxy = await start_proxy('models=[{"match": "qwen*"}]')
    body = CHAT | {"model": "qwen3"}
    response, _ = await post(client, proxy.url + "/v1/chat/completions", body, **{"x-trimtab-mode": "bogus"})

    assert response.status == 400
    assert (log.lines[-1]["model"], log.lines[-1]["match"]) == ("qwen3", "qwen*")


async def test_a_tenant_with_changing_tokens_keeps_its_prefix(client, start_proxy, log):
    """The tenant decides whose cache it is."""
    proxy = await start_proxy("tenant=header:X-User")
    for number, messages in enumerate(requests_of(make_session(3))):
        headers = {"X-User": "u", "Authorization": f"Bearer sk-{number}-of-this-user"}
        await post(client, proxy.url + "/v1/chat/completions", {"model": "m", "messages": messages}, **headers)
    kept = [line.get("prefix_kept") for line in log.lines if line["event"] == "request"]

    assert kept[0] is None
    assert all(share is not None and share > 0 for share in kept[1:])


# Chat completions at every path that clients use: each is compacted, and goes where the client sent it.

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
