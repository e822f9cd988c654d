"""A request far below its limit is sent first and counted then."""

import hashlib
import threading
from uuid import uuid4

import orjson
import pytest
from aiohttp import web
from asking import post
from fake_upstream import completion
from sessions import make_session

from proxy.compaction import Compactor
from proxy.threads import INLINE_BYTES

CHAT = "/v1/chat/completions"


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
    proxy = await start_proxy()
    again = await start_proxy()
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


@pytest.mark.parametrize("settings", [("defaults.context_window=32000",), ("defaults.max_tool_result_tokens=500",)])
async def test_what_a_rule_might_touch_is_counted_first(settings, client, upstream, start_proxy):
    """Near the window, or with a result over its budget, nothing is left to luck."""
    proxy = await start_proxy(*settings)
    await post(client, proxy.url + CHAT, large_body())

    assert await metric(client, proxy, 'trimtab_overhead_seconds_count{phase="plan"}') == 1


async def test_a_fault_while_counting_costs_the_figures_only(client, upstream, start_proxy, monkeypatch):
    """The answer comes through, without tokens; the fault is counted."""

    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(Compactor, "plan", fail)
    proxy = await start_proxy()
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
