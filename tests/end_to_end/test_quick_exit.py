"""A request far below its limit is sent first and counted then."""

import hashlib
import threading
from uuid import uuid4

import orjson
import pytest
from aiohttp import web
from support.client import post
from support.sessions import make_session
from upstreams.recording import completion

from proxy.compaction.compactor import Compactor
from proxy.compaction.offload import INLINE_BYTES
from proxy.config.schema import PolicyConfig

CHAT = "/v1/chat/completions"


UNTIDIED = ("defaults.tidy=false", "defaults.dedupe=false")
"""What a tool said goes out as it came: by default no glance can tell whether that is so."""


def large_body(steps: int = 20) -> bytes:
    """More than is counted at once, none of it near the window or the budget of a result, and never seen before."""
    session = make_session(steps, result_words=1000)
    for message in session["messages"]:
        message["content"] = f"{uuid4()} {message['content']}"
    body = orjson.dumps({"model": "gpt-4o", "messages": session["messages"][:-1], "tools": session["tools"]})
    assert INLINE_BYTES < len(body) < 72_000  # so that bytes alone tell
    return body


async def metric(client, proxy, name: str) -> float:
    """One line of the metrics, without its labels; 0 where it is not there."""
    text = (await (await client.get(proxy.url + "/metrics")).read()).decode()
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))


async def test_it_is_sent_before_it_is_counted(client, upstream, start_proxy, monkeypatch):
    """The upstream has the request while the count still waits; the answer then tells the exact tokens."""
    sent = threading.Event()
    plan = Compactor.plan

    def wait_and_plan(self, request, policy):
        assert sent.wait(5)
        return plan(self, request, policy)

    async def answer(_recorded, _request):
        sent.set()
        return completion()

    body, upstream.answer = large_body(), answer
    proxy = await start_proxy(*UNTIDIED)
    again = await start_proxy(*UNTIDIED)
    monkeypatch.setattr(Compactor, "plan", wait_and_plan)
    response, _ = await post(client, proxy.url + CHAT, body)
    monkeypatch.undo()
    counted, _ = await post(client, again.url + CHAT, body)

    assert [item.sha256 for item in upstream.requests] == [hashlib.sha256(body).hexdigest()] * 2
    assert response.headers["x-trimtab-tokens"] == counted.headers["x-trimtab-tokens"]
    assert "x-trimtab-decisions" not in response.headers
    assert await metric(client, proxy, 'trimtab_overhead_seconds_count{phase="glance"}') == 1
    assert await metric(client, proxy, 'trimtab_overhead_seconds_count{phase="plan"}') == 0
    tokens = int(response.headers["x-trimtab-tokens"].split(",")[0].removeprefix("original="))
    assert await metric(client, proxy, "trimtab_prompt_tokens_total") == 2 * tokens


@pytest.mark.parametrize(
    "settings",
    [
        (*UNTIDIED, "defaults.context_window=32000"),
        (*UNTIDIED, "defaults.max_tool_result_tokens=500"),
        UNTIDIED[:1],
        UNTIDIED[1:],
    ],
)
async def test_what_a_rule_might_touch_is_counted_first(settings, client, upstream, start_proxy):
    """Near the window, or with a result over its budget, or to be tidied or compared, nothing is left to luck."""
    proxy = await start_proxy(*settings)
    await post(client, proxy.url + CHAT, large_body())

    assert await metric(client, proxy, 'trimtab_overhead_seconds_count{phase="plan"}') == 1


@pytest.mark.parametrize(("chars", "glances"), [(160, 1), (161, 0)])
async def test_small_results_are_no_reason_to_wait(chars, glances, client, upstream, start_proxy):
    """No rule touches a result of 160 characters or fewer: with such ones a long prompt is sent first by default."""
    call = {"id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": write_text(1200)},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "x", "content": [{"type": "text", "text": "y" * chars}]},
    ]
    proxy = await start_proxy()
    await post(client, proxy.url + CHAT, orjson.dumps({"model": "gpt-4o", "messages": messages}))

    assert await metric(client, proxy, 'trimtab_overhead_seconds_count{phase="plan"}') == 1 - glances


async def test_a_fault_while_counting_costs_the_figures_only(client, upstream, start_proxy, monkeypatch):
    """The answer comes through, without tokens; the fault is counted."""

    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(Compactor, "plan", fail)
    proxy = await start_proxy(*UNTIDIED)
    response, _ = await post(client, proxy.url + CHAT, large_body())

    assert response.status == 200
    assert "x-trimtab-tokens" not in response.headers
    assert await metric(client, proxy, 'trimtab_fail_open_total{phase="count"}') == 1


async def test_an_upstream_that_refuses_changes_no_figure(client, upstream, start_proxy):
    """Its answer passes through, and the tokens that were sent are told all the same."""

    async def refuse(_recorded, _request):
        return web.Response(status=429, body=b'{"error":{}}')

    upstream.answer = refuse
    proxy = await start_proxy()
    response, _ = await post(client, proxy.url + CHAT, large_body())

    assert (response.status, "x-trimtab-tokens" in response.headers) == (429, True)


async def test_an_upstream_that_is_gone_changes_no_figure(client, start_proxy, log):
    """The proxy's own error tells what was sent; nothing is left behind."""
    proxy = await start_proxy("upstream.base_url=http://127.0.0.1:9/v1")
    response, _ = await post(client, proxy.url + CHAT, large_body())

    assert (response.status, "x-trimtab-tokens" in response.headers) == (502, True)
    assert [line["outcome"] for line in log.lines if line["event"] == "request"] == ["refused"]


async def test_usage_is_learned_from_it(client, upstream, start_proxy):
    """What was counted late counts for calibration."""

    async def answer(_recorded, _request):
        return completion(prompt_tokens=40_000, completion_tokens=1)

    upstream.answer = answer
    proxy = await start_proxy()
    for steps in (18, 19, 20):
        await post(client, proxy.url + CHAT, large_body(steps))

    assert await metric(client, proxy, "trimtab_policy_changes_total") == 1


UNREADABLE = {
    "a number": b'{"role":"assistant","content":null,"tool_calls":[{"id":"x","type":"function","function":'
    b'{"name":"f","arguments":' + b"1" * 5000 + b'}}]},{"role":"tool","tool_call_id":"x","content":"ok"}',
    "no UTF-8": b'{"role":"user","name":"\xff","content":"x"}',
}


@pytest.mark.parametrize("message", UNREADABLE.values(), ids=UNREADABLE.keys())
@pytest.mark.parametrize("words", [300, 1800])
async def test_what_only_a_glance_can_read_is_forwarded(message, words, client, upstream, start_proxy, log):
    """Small or large, counted first or late: the upstream judges, and has the client's own bytes."""

    async def answer(_recorded, _request):
        return completion()

    upstream.answer = answer
    said = orjson.dumps({"role": "user", "content": write_text(words)})
    body = b'{"model":"gpt-4o","messages":[' + said + b"," + message + b"]}"
    assert (len(body) > INLINE_BYTES) == (words > 1000)
    proxy = await start_proxy()
    response, _ = await post(client, proxy.url + CHAT, body)
    await proxy.services.lifecycle.idle.wait()

    assert (response.status, [item.body for item in upstream.requests]) == (200, [body])
    assert [line["outcome"] for line in log.lines if line["event"] == "request"] == ["undecodable"]
    assert await metric(client, proxy, "trimtab_fail_open_total") == 0


def write_text(words: int) -> str:
    """Words that were never seen before, of 33 characters each."""
    return " ".join(uuid4().hex for _ in range(words))


async def ask_twice(client, upstream, proxy, body: bytes) -> list[tuple[object, ...]]:
    """What becomes of a body that was never seen, and of the same once it is known: status, tokens, what was sent."""
    seen = []
    for _ in range(2):
        before = len(upstream.chats)
        response, _ = await post(client, proxy.url + CHAT, body)
        sent = [item.sha256 for item in upstream.chats[before:]]
        seen.append((response.status, response.headers["x-trimtab-tokens"], sent))
    return seen


def refer(text: str) -> bytes:
    """One long description, read in four places."""
    places = {key: {"$ref": "#/$defs/d"} for key in "abcd"}
    return orjson.dumps({"properties": places, "$defs": {"d": {"type": "string", "description": text}}})


def refer_by_escapes(text: str) -> bytes:
    """The same, where no byte says so."""
    return refer(text).replace(b'"$ref"', rb'"\u0024ref"')


def list_types(text: str) -> bytes:
    """One long value, read once for each of four types."""
    types = ["string", "number", "integer", "later"]
    return orjson.dumps({"properties": {"a": {"type": types, "enum": [text]}}}).replace(b'"type":[', b'"type" : [')


@pytest.mark.parametrize("write", [refer, refer_by_escapes, list_types])
async def test_tools_that_multiply_are_counted_first(write, client, upstream, start_proxy, compactors):
    """What has three times the tokens of its bytes is refused the first time as the second, however it is hidden."""
    compactors.load_estimators()
    text = write_text(1500)
    tokens = compactors.choose(PolicyConfig(), "gpt-4o").count(text)
    tool = b'{"type":"function","function":{"name":"f","parameters":%s}}' % write(text)
    body = b'{"model":"gpt-4o","messages":[{"role":"user","content":"Hi."}],"tools":[%s]}' % tool
    proxy = await start_proxy(f"defaults.context_window={5 * tokens // 2 + 1000}", "defaults.completion_reserve=1000")
    first, second = await ask_twice(client, upstream, proxy, body)

    assert first == second
    assert first[0] == 400


@pytest.mark.parametrize("unit", ["{}", "lol", "__init__"])
async def test_a_result_is_truncated_the_first_time_as_the_second(unit, client, upstream, start_proxy, compactors):
    """One short thing over and over has more tokens than any estimate says; so bytes alone let a result pass."""
    compactors.load_estimators()
    call = {"id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": f"{uuid4()}" + " plain words of the task" * 1200},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "x", "content": f"{uuid4()}" + unit * 9000},
    ]
    body = orjson.dumps({"model": "gpt-4o", "messages": messages})
    tokens = compactors.choose(PolicyConfig(), "gpt-4o").count(messages[2]["content"])
    proxy = await start_proxy(f"defaults.max_tool_result_tokens={tokens * 9 // 10}")
    first, second = await ask_twice(client, upstream, proxy, body)

    assert first == second
    assert first[2] != [hashlib.sha256(body).hexdigest()]
