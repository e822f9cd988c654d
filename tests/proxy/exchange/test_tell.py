"""Every request that is over is told to the history."""

import pytest
from support.client import CHAT, SMALL, ask_raw, post
from support.events import read_events
from support.journeys import MakeStages, read_session
from support.sessions import make_session

from trimtab.proxy.exchange.tell import _price_cache


async def test_each_request_is_told_once(client, start_proxy, log):
    """Its figures are those of its log line."""
    proxy = await start_proxy(*SMALL)
    for body in (CHAT, {"model": "m", **make_session(40)}):
        await post(client, f"{proxy.url}/v1/chat/completions", body)
    await proxy.services.lifecycle.idle.wait()

    events = await read_events(proxy.services.past)
    lines = [line for line in log.lines if line["event"] == "request"]
    assert [event.request_id for event in events] == [line["request_id"] for line in lines]
    for event, line in zip(events, lines, strict=True):
        assert (event.original_tokens, event.sent_tokens) == (line["original_tokens"], line["sent_tokens"])
        assert [one.rule for one in event.decisions] == [one["rule"] for one in line["decisions"]]


@pytest.mark.parametrize("enabled", [True, False])
async def test_without_a_dashboard_nothing_is_told(enabled, client, start_proxy):
    proxy = await start_proxy(f"dashboard.enabled={str(enabled).lower()}")
    await post(client, f"{proxy.url}/v1/chat/completions", CHAT)
    assert (proxy.services.history is not None) is enabled


@pytest.mark.parametrize("target", [b"/v1/chat/completions?x=%ff", b"/v1/%ff%ed%a0%80/chat/completions"])
async def test_a_path_or_a_model_that_is_no_text_is_told_too(target, client, start_proxy, log):
    """JSON cannot hold its bytes, but the dashboard shows the request."""
    proxy = await start_proxy()
    body = b'{"model": "a\\ud800", "messages": [{"role": "user", "content": "\\ud800"}]}'
    head = b"POST %b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    assert await ask_raw(proxy.url, head % (target, len(body)) + body)
    await proxy.services.lifecycle.idle.wait()
    assert len(await read_events(proxy.services.past)) == 1
    assert not [line for line in log.lines if line["event"] == "fail_open"]
    async with client.get(f"{proxy.url}/trimtab/api/requests") as response:
        assert response.status == 200


@pytest.mark.parametrize(
    ("written", "unit", "price"), [(5, "usd", 1150), (0, "usd", 900), (None, "usd", 900), (5, "ratio", None)]
)
async def test_what_a_miss_costs_is_priced_as_the_upstream_charges_it(
    written: int | None, unit: str, price: float | None, make_stages: MakeStages
) -> None:
    """Where it charges for writing into its cache, by that price; in nanodollars. Relative prices are no dollars."""
    prices = f"prices={{unit: {unit}, input: 1, cached_input: 0.1, cache_write: 1.25, output: 4}}"
    stages = await make_stages(prices)
    attempt = await stages.attempt(read_session(2))
    assert _price_cache(attempt.call, 100, written) == (None if price is None else pytest.approx(price))
