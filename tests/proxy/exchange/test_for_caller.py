"""POST /trimtab/api/compact: what would be sent is the answer. Over real HTTP."""

import re
from collections.abc import Mapping
from typing import Any

import orjson
import pytest
from support.client import SMALL, post, settle
from support.dialects.to_messages import to_messages
from support.dialects.to_responses import to_responses
from support.sessions import make_session, requests_of

PATH = "/trimtab/api/compact"
WIRE = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
WRITE = {"chat": dict, "responses": to_responses, "messages": to_messages}
NOTE = "1. Done: all files.\n2. Decided: none.\n3. Open: none.\n4. Next: go on."


def _make_bodies(dialect: str, steps: int = 90) -> list[dict[str, Any]]:
    """The requests of a session, each longer by a step."""
    session = make_session(steps, result_words=120)
    parts = ({"model": "m", "messages": messages, "tools": session["tools"]} for messages in requests_of(session))
    return [{**WRITE[dialect](part), "model": "m"} for part in parts]


def _elements(body: Mapping[str, Any]) -> list[Any]:
    return body.get("messages") or body["input"]


async def _compact(client: Any, proxy: Any, body: Any, query: str = "", **headers: str) -> dict[str, Any]:
    response, answer = await post(client, f"{proxy.url}{PATH}{query}", body, **headers)
    assert response.status == 200, answer
    return orjson.loads(answer)


@pytest.mark.parametrize("dialect", WIRE)
async def test_the_answer_is_what_would_be_sent(dialect: str, client, upstream, start_proxy) -> None:
    proxy = await start_proxy(*SMALL, "defaults.overflow_strategy=prune")
    before, breaks = list[Any](), 0
    for body in _make_bodies(dialect)[-10:]:
        told = await _compact(client, proxy, body)
        _, raw = await post(client, f"{proxy.url}{PATH}?only_body", body)
        await post(client, proxy.url + WIRE[dialect], body)
        sent = upstream.chats[-1]

        assert raw == sent.body
        assert told["body"] == sent.json
        assert told["tokens"]["sent"] <= told["tokens"]["limit"]
        breaks += _elements(told["body"])[: len(before)] != before
        before = _elements(told["body"])[:-1]  # in Messages, the last one may get a further block
    assert told["outcome"] == "compacted"
    assert {decision["rule"] for decision in told["decisions"]} >= {"digest"}
    assert told["tokens"]["original"] > told["tokens"]["limit"]
    assert told["summary"]["kind"] == "digest"
    assert breaks <= 3


async def test_nobody_would_answer_the_tool_of_recall(client, start_proxy) -> None:
    """So it is not declared; the caller sends the body on itself."""
    proxy = await start_proxy(*SMALL, "defaults.recall=tool")
    body = _make_bodies("chat", 3)[-1]
    told = await _compact(client, proxy, body)
    assert (told["outcome"], told["body"]) == ("unchanged", body)


async def test_a_request_that_needs_nothing_comes_back_byte_for_byte(client, upstream, start_proxy) -> None:
    proxy = await start_proxy(*SMALL)
    odd = b'{ "model":"m",  "messages": [{"role":"user","content":"hi","n":123456789012345678901234567890}]}'
    response, raw = await post(client, f"{proxy.url}{PATH}?only_body=1", odd)

    assert raw == odd
    assert response.headers["x-trimtab-outcome"] == "unchanged"
    assert (await _compact(client, proxy, odd))["decisions"] == []
    assert upstream.requests == []


async def test_a_summary_is_asked_of_the_upstream_once_and_shared_with_requests(client, upstream, start_proxy) -> None:
    proxy = await start_proxy(*SMALL, "defaults.cut=at_threshold")
    body = _make_bodies("chat")[-1]
    told = await _compact(client, proxy, body)
    await settle(proxy)
    asked = len(upstream.summaries)
    await post(client, proxy.url + WIRE["chat"], body)

    assert told["summary"]["kind"] == "summarise"
    assert len(upstream.summaries) == asked > 0
    assert upstream.chats[-1].json == told["body"]


async def test_a_caller_may_make_the_summary_itself(client, upstream, start_proxy) -> None:
    proxy = await start_proxy(*SMALL)
    body = _make_bodies("messages")[-1]
    told = await _compact(client, proxy, body, "?summary=return")
    asked = told["summary_request"]
    given = {"body": body, "summaries": {asked["id"]: NOTE, "another": "Never seen."}}
    answered = await _compact(client, proxy, given, "?summary=return")
    later = await _compact(client, proxy, body, "?summary=return")
    other = await _compact(client, proxy, given, "?summary=return", Authorization="Bearer sk-other")

    assert upstream.requests == []
    assert told["summary"] is None or told["summary"]["kind"] == "digest"
    assert asked["body"]["model"] == "m"
    assert "handoff note" in str(asked["body"]["messages"])
    assert "all files" in str(answered["body"])
    assert later["body"] == answered["body"]
    assert (later["summary_request"], later["summary"]["kind"]) == (None, "summarise")
    assert "Never seen." not in str(answered)
    assert other["summary_request"]["id"] != asked["id"]  # no client finds the text of another


async def test_nobody_is_asked_for_a_digest(client, upstream, start_proxy) -> None:
    proxy = await start_proxy(*SMALL)
    told = await _compact(client, proxy, _make_bodies("chat")[-1], "?summary=digest&explain")

    assert told["summary"]["kind"] == "digest"
    assert any("digest" in sentence for sentence in told["explain"])
    assert upstream.requests == []


@pytest.mark.parametrize("dialect", ["responses", "messages"])
async def test_with_results_only_every_message_stays(dialect: str, client, upstream, start_proxy) -> None:
    proxy = await start_proxy(*SMALL)
    bodies, before, breaks = _make_bodies(dialect)[-10:], list[Any](), 0
    for body in bodies:
        told = await _compact(client, proxy, body, "?results_only=true")
        after = _elements(told["body"])
        assert [_outline(one) for one in after] == [_outline(one) for one in _elements(body)]
        breaks += after[: len(before)] != before
        before = after[:-1]
    unpaired = {**bodies[-1], next(iter({"messages", "input"} & bodies[-1].keys())): _elements(bodies[-1])[:-1]}
    again = await _compact(client, proxy, unpaired, "?results_only=true")

    assert told["tokens"]["sent"] < 0.6 * told["tokens"]["original"]
    assert breaks <= 3
    assert len(_elements(again["body"])) == len(_elements(unpaired))
    assert upstream.requests == []


def _outline(element: Mapping[str, Any]) -> tuple[Any, ...]:
    content = element.get("content")
    parts = [part.get("type") for part in content] if isinstance(content, list) else type(content)
    return element.get("role"), element.get("type"), element.get("call_id"), element.get("tool_call_id"), str(parts)


async def test_nothing_counts_as_saved_and_no_model_becomes_a_label(client, start_proxy) -> None:
    proxy = await start_proxy(*SMALL)
    await _compact(client, proxy, {**_make_bodies("chat")[-1], "model": "invented"}, "?summary=digest")
    async with client.get(proxy.metrics_url) as response:
        metrics = await response.text()

    assert 'endpoint="compact"' in metrics
    assert "invented" not in metrics
    assert not [line for line in metrics.splitlines() if line.startswith("trimtab_prompt_tokens_total{")]


async def test_what_cannot_be_compacted_is_an_error(client, start_proxy) -> None:
    proxy = await start_proxy(*SMALL, "defaults.on_exceeded=error", "limits.max_body_bytes=65536")
    for query, body, status, code in (
        ("?dialect=french", b"{}", 400, "invalid_query"),
        ("?summary=maybe", b"{}", 400, "invalid_query"),
        ("", b'{"prompt": "x"}', 400, "undecodable_body"),
        ("", b'{"messages": ["' + b"x" * 70_000 + b'"]}', 413, "body_too_large"),
        ("", b'{"messages": [{"role": "user", "content": "%b"}]}' % (b"word " * 9000), 400, "context_length_exceeded"),
    ):
        response, answer = await post(client, f"{proxy.url}{PATH}{query}", body)
        assert (response.status, orjson.loads(answer)["error"]["code"]) == (status, code)


WRONG = (
    (b'{"messages": [{"role": "user", "content": "x"}, "y"]}', "messages[1] is no JSON object"),
    (b'{"messages": [{"role": 7, "content": "x"}]}', "messages[0]: a message has no role"),
    (b'{"messages": [{"role": "user", "content": "x", "n": NaN}]}', "NaN at byte 52 is no JSON"),
    (b'{"messages": [{"role": "user", "content": "x"}], "top_p": -Infinity}', "Infinity at byte 59 is no JSON"),
    (b'{"messages": [{"role": "user", "content": "x\xed\xa0\x80"}]}', "not UTF-8 at byte 44"),
    (b'{"messages": 7}', "a value has the wrong type"),
    (b'{"messages": [', "it is no valid JSON"),
    (b'{"messages": %b}' % (b"[" * 30_000 + b"]" * 30_000), "nested too deeply"),
    (b'{"input": [{"role": "user", "content": "x"}, 7]}', "input[1] is no JSON object"),
)


@pytest.mark.parametrize(("path", "bodies"), [(PATH, WRONG), ("/v1/compress", WRONG[:-1])])
async def test_what_is_wrong_with_a_body_is_told_with_its_place(path, bodies, client, start_proxy) -> None:
    """Else the answer would be no JSON, or say nothing of the fault."""
    proxy = await start_proxy("compaction.compress=true")
    for body, sentence in bodies:
        response, answer = await post(client, proxy.url + path, body)
        error = orjson.loads(answer)["error"]
        assert (response.status, error["code"]) == (400, "undecodable_body")
        assert sentence in error["message"]


async def test_summaries_of_another_form_are_refused_with_the_reason(client, start_proxy) -> None:
    """Else a caller would believe that its texts are used."""
    proxy = await start_proxy()
    for given in (b"7", b'{"id": 7}', b'["text"]', b"null"):
        response, answer = await post(client, proxy.url + PATH, b'{"body": {"messages": []}, "summaries": %b}' % given)
        assert response.status == 400
        assert "summaries must be an object" in orjson.loads(answer)["error"]["message"]


async def test_another_method_is_answered_with_the_right_one(client, upstream, start_proxy) -> None:
    proxy = await start_proxy("compaction.compress=true")
    for path, method, allowed in (
        (PATH, "PUT", "POST"),
        ("/v1/compress", "GET", "POST"),
        ("/v1/retrieve/x", "POST", "GET"),
    ):
        async with client.request(method, proxy.url + path) as response:
            error = (await response.json())["error"]
        assert (response.status, response.headers["Allow"], error["code"]) == (405, allowed, "method_not_allowed")
        assert f"takes {allowed}" in error["message"]
    assert upstream.requests == []


async def test_the_keys_of_clients_open_it_and_no_other(client, start_proxy) -> None:
    proxy = await start_proxy('client_keys={"alice": "alice-key"}', "admin_token=admin-token")
    chat = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    statuses = [
        (await post(client, f"{proxy.url}{PATH}", chat, Authorization=f"Bearer {key}"))[0].status
        for key in ("alice-key", "admin-token", "none")
    ]

    assert statuses == [200, 401, 401]


async def test_observed_and_switched_off_it_changes_nothing(client, start_proxy) -> None:
    body = _make_bodies("chat")[-1]
    proxy = await start_proxy(*SMALL)
    for mode in ("observe", "off"):
        told = await _compact(client, proxy, body, **{"x-trimtab-mode": mode})
        assert (told["body"], told["outcome"]) == (body, mode)


# POST /v1/compress and GET /v1/retrieve/HASH, as LiteLLM's guardrail calls them. Over real HTTP.

ON = (*SMALL, "compaction.compress=true", "defaults.max_tool_result_tokens=200")
KEY = {"Authorization": "Bearer sk-one"}


def _make_messages(steps: int = 30) -> list[dict[str, Any]]:
    return make_session(steps, result_words=400)["messages"]


async def _compress(client: Any, proxy: Any, messages: list[Any], **headers: str) -> dict[str, Any]:
    body = {"messages": messages, "model": "m"}
    response, answer = await post(client, f"{proxy.url}/v1/compress", body, **(KEY | headers))
    assert response.status == 200, answer
    return orjson.loads(answer)


async def _retrieve(client: Any, proxy: Any, name: str, **headers: str) -> tuple[int, Any]:
    async with client.get(f"{proxy.url}/v1/retrieve/{name}?query=word", headers=KEY | headers) as response:
        return response.status, orjson.loads(await response.read())


async def test_each_marker_fetches_the_whole_text(client, upstream, start_proxy) -> None:
    proxy, messages = await start_proxy(*ON), _make_messages()
    told = await _compress(client, proxy, messages)
    found = [re.findall(r"hash=([0-9a-f]{24})", str(message["content"])) for message in told["messages"]]

    assert len(told["messages"]) == len(messages)
    assert [message["role"] for message in told["messages"]] == [message["role"] for message in messages]
    assert told["tokens_after"] < told["tokens_before"] / 2
    assert told["compression_ratio"] == pytest.approx(told["tokens_after"] / told["tokens_before"])
    assert {name for names in found for name in names} == set(told["ccr_hashes"])
    assert len(told["ccr_hashes"]) > 20
    for names, message in zip(found, messages, strict=True):
        for name in names:
            assert await _retrieve(client, proxy, name) == (200, {"hash": name, "original_content": message["content"]})
    assert upstream.requests == []


async def test_no_client_finds_the_text_of_another(client, start_proxy) -> None:
    proxy, messages = await start_proxy(*ON), _make_messages(6)
    one = await _compress(client, proxy, messages)
    other = await _compress(client, proxy, messages, Authorization="Bearer sk-other")

    assert not set(one["ccr_hashes"]) & set(other["ccr_hashes"])
    status, answer = await _retrieve(client, proxy, one["ccr_hashes"][0], Authorization="Bearer sk-other")
    assert (status, answer["error"]["code"]) == (404, "not_found")
    for name in ("0" * 24, "x" * 24, one["ccr_hashes"][0][:12]):
        assert (await _retrieve(client, proxy, name))[0] == 404


async def test_it_is_off_unless_configured_and_needs_a_key_of_clients(client, upstream, start_proxy) -> None:
    off, name = await start_proxy(*SMALL), "0" * 24
    await post(client, f"{off.url}/v1/compress", {"messages": []})
    async with client.get(f"{off.url}/v1/retrieve/{name}") as response:
        await response.read()
    paths = [sent.path for sent in upstream.requests if not sent.asks_for_windows]
    assert paths == ["/v1/compress", f"/v1/retrieve/{name}"]

    locked, body = await start_proxy(*ON, 'client_keys={"alice": "alice-key"}'), {"messages": _make_messages(2)}
    for key, status in (("sk-one", 401), ("alice-key", 200)):
        response, _ = await post(client, f"{locked.url}/v1/compress", body, Authorization=f"Bearer {key}")
        assert response.status == status
    assert (await _retrieve(client, locked, name))[0] == 401


async def test_results_without_their_calls_are_shortened_too(client, start_proxy) -> None:
    """LiteLLM sends no message of the assistant."""
    proxy = await start_proxy(*ON)
    messages = [message for message in _make_messages() if message["role"] != "assistant"]
    told = await _compress(client, proxy, messages)

    assert [message["role"] for message in told["messages"]] == [message["role"] for message in messages]
    assert len(told["ccr_hashes"]) > 20


async def test_parts_of_a_message_stay_parts(client, start_proxy) -> None:
    proxy, messages = await start_proxy(*ON), _make_messages(4)
    at = max(number for number, message in enumerate(messages) if message["role"] == "tool")
    whole = messages[at]["content"]
    messages[at] = {**messages[at], "content": [{"type": "text", "text": whole}]}
    told = await _compress(client, proxy, messages)
    parts = told["messages"][at]["content"]

    assert [part["type"] for part in parts] == ["text", "text"]
    name = re.findall(r"hash=([0-9a-f]{24})", parts[-1]["text"])[0]
    assert (await _retrieve(client, proxy, name))[1]["original_content"] == whole


async def test_a_byte_order_mark_is_no_part_of_the_answer(client, start_proxy) -> None:
    proxy, body = (
        await start_proxy(),
        {"model": "m", "messages": [{"role": "user", "content": "NaN, Infinity \U0001f600"}]},
    )

    assert (await _compact(client, proxy, b"\xef\xbb\xbf" + orjson.dumps(body)))["body"] == body
