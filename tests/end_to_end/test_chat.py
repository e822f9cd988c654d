"""Chat completions through a running proxy: what the upstream gets, what the client gets."""

import asyncio
import hashlib
from typing import Any

import aiohttp
import orjson
import pytest
from fake_upstream import FakeUpstream, completion, run_upstream, stream
from sessions import make_session, needs_data, read_rows, recorded_files

SMALL = ("defaults.context_window=8000", "defaults.completion_reserve=1000", "defaults.max_tool_result_tokens=2000")


async def post(client: aiohttp.ClientSession, url: str, body: Any, **headers: str) -> tuple[Any, bytes]:
    data = body if isinstance(body, bytes) else orjson.dumps(body)
    headers = {"Content-Type": "application/json", "Authorization": "Bearer sk-test"} | headers
    async with client.post(url, data=data, headers=headers) as response:
        return response, await response.read()


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


@needs_data
@pytest.mark.parametrize("file", recorded_files("wire"), ids=lambda file: file.stem)
async def test_recorded_requests_pass_unchanged(file, client, upstream, start_proxy):
    """Every recorded client's request within the window reaches the upstream with the same hash."""
    proxy = await start_proxy()
    for row in read_rows(file):
        body = b"" if row["body"] is None else orjson.dumps(row["body"])
        url = proxy.url + row["path"] + ("?" + row["query"] if row["query"] else "")
        headers = [(name, value) for name, value in row["headers"] if name.lower() not in {"host", "content-length"}]
        async with client.request(row["method"], url, data=body or None, headers=headers) as response:
            await response.read()
        received = upstream.requests[-1]
        if "x-trimtab-decisions" in response.headers:  # an assistant's words between its call and the result
            assert file.stem == "codexold"
            assert response.headers["x-trimtab-decisions"] == "pairing;saved=0"
            continue
        assert (received.sha256, received.method) == (hashlib.sha256(body).hexdigest(), row["method"])
        sent = [value for name, value in headers if name.lower() == "user-agent"]
        assert received.header("user-agent") == sent


async def test_only_the_truncated_result_differs(client, upstream, start_proxy):
    """A long tool result keeps head and tail around a marker; every other byte of the body stays."""
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
    assert "omitted here]" in content
    assert response.headers["x-trimtab-decisions"].startswith("truncate;saved=")
    whole["messages"][-1]["content"] = content
    assert upstream.requests[0].body == orjson.dumps(whole)


async def test_long_session_is_summarised_with_the_clients_own_credential(client, upstream, start_proxy):
    """Past high water the upstream is asked once, and its text stands behind the task statement."""
    proxy = await start_proxy(*SMALL, "defaults.overflow_strategy=summarize")
    session = make_session(60, result_words=200)
    body = {"model": "m", "messages": session["messages"][:-1], "tools": session["tools"]}
    for _ in range(2):
        response, _ = await post(client, proxy.url + "/v1/chat/completions", body)
        assert response.status == 200
    assert len(upstream.summaries) == 1
    asked = upstream.summaries[0]
    assert asked.header("authorization") == ["Bearer sk-test"]
    assert [message["role"] for message in asked.json["messages"]] == ["user"]
    first, second = upstream.chats
    assert first.body == second.body
    system, memo, *tail = first.json["messages"]
    assert system == session["messages"][0]
    assert memo["content"].startswith(session["messages"][1]["content"] + "\n\n")
    assert "SUMMARY of the work so far." in memo["content"]
    assert tail == session["messages"][-1 - len(tail) : -1]
    tokens = dict(item.split("=") for item in response.headers["x-trimtab-tokens"].split(", "))
    assert int(tokens["sent"]) <= int(tokens["limit"]) == 7000
    assert int(tokens["original"]) > 2 * int(tokens["limit"])


async def test_prefix_stays_the_same_from_request_to_request(client, upstream, start_proxy):
    """Between two cuts every request's forwarded messages begin with those of the one before."""
    proxy = await start_proxy(*SMALL)
    session = make_session(60, result_words=200)
    for stop in range(2, len(session["messages"]), 2):
        await post(client, proxy.url + "/v1/chat/completions", {"model": "m", "messages": session["messages"][:stop]})
    kept = moved = 0
    for before, after in zip(upstream.chats, upstream.chats[1:], strict=False):
        earlier, later = before.json["messages"], after.json["messages"]
        if later[: len(earlier)] == earlier:
            kept += 1
        else:
            moved += 1
    assert moved <= 8
    assert kept >= 30


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(lambda: completion(""), id="empty"),
        pytest.param(lambda: completion("far too long " * 20_000), id="does not shrink"),
        pytest.param(lambda: aiohttp.web.Response(body=b"{", content_type="application/json"), id="unreadable"),
        pytest.param(lambda: aiohttp.web.Response(status=401), id="refused"),
        pytest.param(lambda: aiohttp.web.Response(status=500), id="broken"),
    ],
)
async def test_digest_stands_in_for_a_summary_that_fails(answer, client, upstream, start_proxy):
    """The request goes out within its limit, with the digest, which is kept for that cut."""
    plain = upstream.answer

    async def fail(recorded, request):
        return answer() if recorded.asks_for_summary else await plain(recorded, request)

    upstream.answer = fail
    proxy = await start_proxy(*SMALL, "defaults.overflow_strategy=summarize")
    session = make_session(60, result_words=200)
    body = {"model": "m", "messages": session["messages"][:-1]}
    for _ in range(2):
        response, _ = await post(client, proxy.url + "/v1/chat/completions", body)
        assert response.status == 200
    assert 1 <= len(upstream.summaries) <= 3
    assert upstream.chats[0].body == upstream.chats[1].body
    assert "earlier messages were removed" in upstream.chats[0].json["messages"][1]["content"]
    assert "src/harbour/part_46.py" in upstream.chats[0].json["messages"][1]["content"]


async def test_summary_request_is_halved_when_the_upstream_refuses_its_length(client, upstream, start_proxy):
    """A refusal of the summary's own input halves it; the third call may still succeed."""
    plain = upstream.answer

    async def refuse_long(recorded, request):
        if recorded.asks_for_summary and len(upstream.summaries) < 3:
            return aiohttp.web.Response(status=400)
        return await plain(recorded, request)

    upstream.answer = refuse_long
    proxy = await start_proxy(*SMALL, "defaults.overflow_strategy=summarize")
    await post(
        client,
        proxy.url + "/v1/chat/completions",
        {"model": "m", "messages": make_session(60, result_words=200)["messages"][:-1]},
    )
    sizes = [len(recorded.body) for recorded in upstream.summaries]
    assert len(sizes) == 3
    assert sizes[0] > sizes[1] > sizes[2]
    assert "SUMMARY of the work so far." in upstream.chats[0].json["messages"][1]["content"]


async def test_refused_parameters_are_changed(client, upstream, start_proxy):
    """A model that knows neither max_tokens nor temperature is asked without them."""
    plain = upstream.answer
    asked: list[dict[str, Any]] = []

    async def picky(recorded, request):
        body = recorded.json
        if not body["messages"][0]["content"].startswith("You write the handoff note"):
            return await plain(recorded, request)
        asked.append(body)
        for key in ("max_tokens", "temperature"):
            if key in body:
                return aiohttp.web.json_response({"error": {"message": "no", "param": key}}, status=400)
        return completion("SUMMARY at last.")

    upstream.answer = picky
    proxy = await start_proxy(*SMALL, "defaults.overflow_strategy=summarize")
    await post(
        client,
        proxy.url + "/v1/chat/completions",
        {"model": "o9", "messages": make_session(60, result_words=200)["messages"][:-1]},
    )
    assert [("max_tokens" in body, "temperature" in body) for body in asked] == [
        (True, True),
        (False, True),
        (False, False),
    ]
    assert "SUMMARY at last." in upstream.requests[-1].json["messages"][1]["content"]


async def test_two_credentials_never_share_a_summary(client, upstream, start_proxy):
    """The same transcript under another key is summarised again."""
    proxy = await start_proxy(*SMALL, "defaults.overflow_strategy=summarize")
    body = {"model": "m", "messages": make_session(60, result_words=200)["messages"][:-1]}
    for key in ("Bearer one", "Bearer two", "Bearer one"):
        await post(client, proxy.url + "/v1/chat/completions", body, Authorization=key)
    assert [recorded.header("authorization") for recorded in upstream.summaries] == [["Bearer one"], ["Bearer two"]]


async def test_streamed_answer_is_relayed_and_counted(client, upstream, start_proxy, log):
    """The client gets the upstream's bytes; without usage the proxy counts what was written."""
    proxy = await start_proxy()
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    response, answer = await post(client, proxy.url + "/v1/chat/completions", body)
    assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    assert answer.count(b"data: ") == 3
    assert answer.endswith(b"data: [DONE]\n\n")
    assert log.lines[-1]["completion_tokens"] == 3
    metrics = (await (await client.get(proxy.url + "/metrics")).read()).decode()
    assert 'trimtab_completion_tokens_total{model="m",source="estimated"} 3.0' in metrics


async def test_reported_usage_wins_over_our_count(client, upstream, start_proxy):
    """Where the upstream reports tokens, those are counted, as the upstream's."""
    proxy = await start_proxy()
    await post(
        client, proxy.url + "/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    )
    metrics = (await (await client.get(proxy.url + "/metrics")).read()).decode()
    assert 'trimtab_completion_tokens_total{model="m",source="upstream"} 3.0' in metrics
    assert 'trimtab_estimate_error_ratio_count{model="m"} 1.0' in metrics


@pytest.mark.parametrize("configured", ["enforce", "observe", "off"])
@pytest.mark.parametrize("wanted", ["", "enforce", "observe", "off", "nonsense"])
async def test_header_makes_the_proxy_do_less_never_more(configured, wanted, client, upstream, start_proxy):
    """Only with the configuration and the header both at enforce is anything changed."""
    proxy = await start_proxy(*SMALL, f"mode={configured}", "defaults.overflow_strategy=prune")
    body = orjson.dumps({"model": "m", "messages": make_session(60, result_words=200)["messages"][:-1]})
    headers = {"x-trimtab-mode": wanted} if wanted else {}
    await post(client, proxy.url + "/v1/chat/completions", body, **headers)
    changed = upstream.requests[-1].body != body
    assert changed == (configured == "enforce" and wanted in {"", "enforce", "nonsense"})
    assert upstream.requests[-1].header("x-trimtab-mode") == []


async def test_profile_is_picked_by_header(client, upstream, start_proxy):
    """A named policy governs the request that asks for it; an unknown name is refused with the known ones."""
    proxy = await start_proxy("profiles={tiny: {max_tool_result_tokens: 100}}")
    body = orjson.dumps({"model": "m", "messages": make_session(2, result_words=2000)["messages"][:-1]})
    url = proxy.url + "/v1/chat/completions"
    await post(client, url, body)
    assert upstream.requests[-1].body == body
    await post(client, url, body, **{"x-trimtab-profile": "tiny"})
    assert len(upstream.requests[-1].body) < len(body) / 2
    response, answer = await post(client, url, body, **{"x-trimtab-profile": "nope"})
    assert response.status == 400
    assert orjson.loads(answer)["error"]["code"] == "unknown_profile"
    assert "tiny" in orjson.loads(answer)["error"]["message"]


async def test_what_cannot_fit_is_refused_in_the_form_that_clients_know(client, upstream, start_proxy):
    """on_exceeded: error gives 400 context_length_exceeded with the decisions, and the upstream is not asked."""
    proxy = await start_proxy(*SMALL)
    body = {"model": "m", "messages": [{"role": "user", "content": "word " * 9000}]}
    response, answer = await post(client, proxy.url + "/v1/chat/completions", body)
    assert response.status == 400
    failure = orjson.loads(answer)["error"]
    assert (failure["type"], failure["param"], failure["code"]) == (
        "invalid_request_error",
        "messages",
        "context_length_exceeded",
    )
    assert "7000 tokens" in failure["message"]
    assert upstream.requests == []


@pytest.mark.parametrize(("policy", "fits"), [("forward", False), ("truncate", True)])
async def test_what_cannot_fit_is_forwarded_or_truncated_on_request(policy, fits, client, upstream, start_proxy):
    """on_exceeded: forward sends what there is; truncate cuts the largest text of the last message."""
    proxy = await start_proxy(*SMALL, f"defaults.on_exceeded={policy}")
    body = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "word " * 9000 + "THE END"}]})
    response, _ = await post(client, proxy.url + "/v1/chat/completions", body)
    tokens = dict(item.split("=") for item in response.headers["x-trimtab-tokens"].split(", "))
    assert (int(tokens["sent"]) <= 7000) is fits
    assert upstream.requests[0].json["messages"][0]["content"].endswith("THE END")
    assert (upstream.requests[0].body == body) is not fits


async def test_orphans_are_mended(client, upstream, start_proxy):
    """A result without its call goes, a call without its result is answered."""
    proxy = await start_proxy()
    messages = [
        {"role": "tool", "tool_call_id": "gone", "content": "orphan"},
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "user", "content": "and?"},
    ]
    await post(client, proxy.url + "/v1/chat/completions", {"model": "m", "messages": messages})
    sent = upstream.requests[0].json["messages"]
    assert sent == [messages[1], messages[2], {"role": "tool", "content": "aborted", "tool_call_id": "a"}, messages[3]]


async def test_concurrent_requests_share_one_summary_call(client, upstream, start_proxy):
    """However many ask for the same cut at once, the upstream is asked once."""
    plain = upstream.answer
    release = asyncio.Event()

    async def hold(recorded, request):
        if recorded.asks_for_summary:
            await release.wait()
        return await plain(recorded, request)

    upstream.answer = hold
    proxy = await start_proxy(*SMALL, "defaults.overflow_strategy=summarize")
    body = {"model": "m", "messages": make_session(60, result_words=200)["messages"][:-1]}
    joined = 'trimtab_summaries_total{model="other",result="joined"} 4.0'
    async with asyncio.TaskGroup() as tasks:
        for _ in range(5):
            tasks.create_task(post(client, proxy.url + "/v1/chat/completions", body))
        async with asyncio.timeout(20):
            while joined not in (await (await client.get(proxy.url + "/metrics")).read()).decode():  # noqa: ASYNC110 - a counter has no event
                await asyncio.sleep(0)
        release.set()
    assert len(upstream.summaries) == 1
    assert len({recorded.sha256 for recorded in upstream.chats}) == 1


async def test_client_that_leaves_does_not_stop_its_summary(client, upstream, start_proxy):
    """The call goes on, and the next request finds its text."""
    plain = upstream.answer
    asked, release = asyncio.Event(), asyncio.Event()

    async def hold(recorded, request):
        if recorded.asks_for_summary:
            asked.set()
            await release.wait()
        return await plain(recorded, request)

    upstream.answer = hold
    proxy = await start_proxy(*SMALL, "defaults.overflow_strategy=summarize")
    body = {"model": "m", "messages": make_session(60, result_words=200)["messages"][:-1]}
    async with asyncio.TaskGroup() as tasks:
        leaving = tasks.create_task(post(client, proxy.url + "/v1/chat/completions", body))
        await asyncio.wait_for(asked.wait(), 10)
        leaving.cancel()
    release.set()
    await post(client, proxy.url + "/v1/chat/completions", body)
    assert len(upstream.summaries) == 1
    assert "SUMMARY of the work so far." in upstream.chats[0].json["messages"][1]["content"]


async def test_summary_goes_to_its_own_upstream_with_that_ones_key(client, upstream, start_proxy):
    """The client's credential reaches no other host; another model may write the summary."""
    async with run_upstream() as other:
        proxy = await start_proxy(
            *SMALL,
            "defaults.overflow_strategy=summarize",
            f"upstreams={{cheap: {{base_url: '{other.url}', api_key: other-key}}}}",
            "defaults.summary.upstream=cheap",
            "defaults.summary.model=small",
        )
        body = {"model": "m", "messages": make_session(60, result_words=200)["messages"][:-1]}
        await post(client, proxy.url + "/v1/chat/completions", body)
        assert upstream.summaries == []
        assert other.summaries[0].header("authorization") == ["Bearer other-key"]
        assert other.summaries[0].json["model"] == "small"
        assert b"sk-test" not in other.summaries[0].body
    assert "SUMMARY of the work so far." in upstream.chats[0].json["messages"][1]["content"]


async def test_stream_answer_is_the_upstreams_own(client, upstream: FakeUpstream, start_proxy):
    """A stream through the proxy has the same bytes as one asked of the upstream directly."""

    async def answer(_, request):
        return await stream(request, "a", "b", "ü")

    upstream.answer = answer
    proxy = await start_proxy()
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    _, through = await post(client, proxy.url + "/v1/chat/completions", body)
    _, direct = await post(client, upstream.url + "/chat/completions", body)
    assert through == direct
