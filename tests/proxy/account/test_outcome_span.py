"""What a request's last span tells of it."""

import pytest
from support.client import CHAT, SMALL, post
from support.collector import run_collector, sending_soon
from support.events import read_events
from support.sessions import make_session


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    with sending_soon(monkeypatch):
        yield


async def test_its_figures_are_those_of_the_event(client, start_proxy, log):
    """And so those of the log line, of the metrics and of the dashboard. Money is in dollars."""
    async with run_collector() as collector:
        prices = "prices={input: 1, cached_input: 0.1, output: 4, unit: usd}"
        proxy = await start_proxy(*SMALL, prices, f"tracing.otlp_endpoint={collector.url}", "client_keys={team: k}")
        for body in (CHAT, {"model": "m", **make_session(30)}):
            await post(client, f"{proxy.url}/v1/chat/completions", body, **{"x-trimtab-key": "k"})
        await proxy.services.lifecycle.idle.wait()
        await collector.wait_until(lambda: sum(not span.is_summary for span in collector.spans) == 2)
    told = {span.attributes["trimtab.request_id"]: span.attributes for span in collector.spans if not span.is_summary}
    for event in await read_events(proxy.services.past):
        attributes = told[event.request_id]
        assert attributes["trimtab.tokens.original"] == event.original_tokens
        assert attributes["trimtab.tokens.sent"] == event.sent_tokens
        assert attributes["trimtab.tokens.saved"] == event.original_tokens - event.sent_tokens
        assert attributes["trimtab.tokens.limit"] == event.limit_tokens
        assert attributes["trimtab.rules"] == list(dict.fromkeys(one.rule for one in event.decisions))
        assert attributes["trimtab.client"] == event.client == "team"
        assert attributes["trimtab.outcome"] == event.outcome
        assert attributes["gen_ai.usage.input_tokens"] == event.prompt_tokens
        assert attributes["trimtab.cost_usd"] * 1e9 == pytest.approx(event.cost)
        assert attributes["trimtab.cost_without_usd"] * 1e9 == pytest.approx(event.without_cost)
        assert ("gen_ai.conversation.compacted" in attributes) is (event.outcome == "compacted")
