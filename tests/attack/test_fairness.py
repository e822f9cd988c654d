"""The work of one tenant does not delay another tenant, whether the work is small or large."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO
from itertools import count

import orjson
import pytest

from trimtab.proxy.compaction.offload import TIERS, Lane
from trimtab.proxy.server.app import Proxy

HONEST = {"Authorization": "Bearer honest"}
LARGE_BYTES = TIERS[0].most_bytes or 0
CALL = {"id": "c", "type": "function", "function": {"name": "run", "arguments": "{}"}}
HOLD_SECONDS = 60.0


_numbers = count()


def _body(size_bytes: int) -> bytes:
    """A new session with one tool result of this size."""
    name = next(_numbers)
    lines = "\n".join(f"{name} line {number}: nothing of note" for number in range(size_bytes // 30 + 1))
    messages = [
        {"role": "user", "content": "Mend it."},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c", "content": lines[:size_bytes]},
    ]
    return orjson.dumps({"model": "m", "messages": messages})


@asynccontextmanager
async def _busy(proxy: Proxy, *tenants: str, pools: slice = slice(None)) -> AsyncIterator[None]:
    """Hostile tenants hold every thread of these pools that they can get, and queue for the rest."""
    over, tasks = threading.Event(), []
    for _, pool in proxy.services.workers.pools[pools]:
        for tenant in tenants:
            tasks += [
                asyncio.ensure_future(pool.run(Lane(tenant, HOLD_SECONDS), lambda: over.wait(HOLD_SECONDS)))
                for _ in range(20)
            ]
    await asyncio.sleep(0)
    try:
        yield
    finally:
        over.set()
        await asyncio.gather(*tasks)


async def _post(client, proxy: Proxy, body: bytes, **headers: str):
    """Send the honest client's request and wait until it is recorded. Returns the response and its body."""
    headers = HONEST | headers | {"Content-Type": "application/json"}
    async with client.post(proxy.url + "/v1/chat/completions", data=BytesIO(body), headers=headers) as answer:
        text = await answer.read()
    await asyncio.wait_for(proxy.services.lifecycle.idle.wait(), HOLD_SECONDS)
    return answer, text


def _count(proxy: Proxy, outcome: str) -> float:
    """The number of requests with this outcome."""
    families = proxy.services.recorder.metrics.registry.collect()
    samples = [sample for family in families for sample in family.samples]
    counted = [sample for sample in samples if sample.name == "trimtab_requests_total"]
    return sum(sample.value for sample in counted if sample.labels["outcome"] == outcome)


@pytest.mark.parametrize("size_bytes", [2_000, 60_000, 200_000])
@pytest.mark.parametrize("tenants", [("one",), ("one", "two", "three")])
async def test_small_requests_are_compacted_beside_any_large_work(
    client, start_proxy, upstream, size_bytes: int, tenants: tuple[str, ...]
) -> None:
    """One tenant or several hold the threads for large work."""
    proxy = await start_proxy("defaults.max_tool_result_tokens=64")
    async with _busy(proxy, *tenants, pools=slice(1, None)):
        answer, _ = await _post(client, proxy, _body(size_bytes))
    assert (answer.status, _count(proxy, "compacted")) == (200, 1)
    assert len(upstream.requests[-1].body) < size_bytes


@pytest.mark.parametrize("size_bytes", [2_000, 60_000, 500_000, 3_000_000])
async def test_one_tenant_never_holds_all_threads(client, start_proxy, upstream, size_bytes: int) -> None:
    """Some threads stay free for each size of work: another tenant's request of any size is compacted at once."""
    proxy = await start_proxy("defaults.max_tool_result_tokens=64")
    async with _busy(proxy, "greedy"):
        answer, _ = await _post(client, proxy, _body(size_bytes))
    assert (answer.status, _count(proxy, "compacted")) == (200, 1)
    assert len(upstream.requests[-1].body) < size_bytes


@pytest.mark.parametrize(
    ("settings", "status"),
    [
        (["defaults.context_window=128000"], 503),
        (["defaults.context_window=2000000"], 200),
        (["defaults.context_window=128000", "mode=observe"], 200),
        (["defaults.context_window=128000", "mode=off"], 200),
    ],
)
async def test_who_has_waited_too_long_goes_out_as_it_came_or_is_told(
    client, start_proxy, upstream, settings: list[str], status: int
) -> None:
    """It is sent unchanged if it surely fits without a cut, or if the mode changes nothing. Else the answer is 503."""
    proxy = await start_proxy(*settings, "defaults.high_water=0.8", "limits.max_plan_seconds=0.05")
    body = _body(LARGE_BYTES * 2)
    async with _busy(proxy, "one", "two", pools=slice(1, None)):
        answer, text = await _post(client, proxy, body)
        assert answer.status == status
        assert all(pool.waiting == 38 for _, pool in proxy.services.workers.pools[1:])
    if status == 503:
        assert answer.headers["Retry-After"] == "1"
        assert orjson.loads(text)["error"]["code"] == "overloaded"
        assert upstream.requests == []
    else:
        assert upstream.requests[-1].body == body
        assert _count(proxy, "busy") == ("mode=off" not in settings)
    answer, _ = await _post(client, proxy, body)
    assert answer.status == 200


async def test_invented_credentials_behind_one_client_key_are_one_tenant(client, start_proxy) -> None:
    """A client with one client key and a new credential in each request gets a single share of the threads."""
    proxy = await start_proxy(
        "client_keys=[good,bad]", "limits.max_plan_seconds=0.05", "defaults.context_window=128000"
    )
    services = proxy.services
    lanes = {
        services.lane(services.tenancy.identify([("x-trimtab-key", "bad"), ("Authorization", f"Bearer {number}")])).name
        for number in range(20)
    }
    assert len(lanes) == 1
    body = _body(LARGE_BYTES * 2)
    async with _busy(proxy, *lanes):
        answers = [(await _post(client, proxy, body, **{"x-trimtab-key": key}))[0] for key in ("bad", "good")]
    assert [answer.status for answer in answers] == [503, 200]


async def test_a_client_that_leaves_takes_its_work_along(client, start_proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its work is dropped, and nobody waits for it."""
    proxy = await start_proxy()
    pool = proxy.services.workers.pools[1][1]
    came, left = asyncio.Event(), asyncio.Event()
    async with _busy(proxy, "one", "two", pools=slice(1, 2)):
        waiting, add, remove = pool.waiting, pool._queue.add, pool._queue.remove
        monkeypatch.setattr(pool._queue, "add", lambda *item: (add(*item), came.set()))
        monkeypatch.setattr(pool._queue, "remove", lambda *item: (remove(*item), left.set())[0])
        body = _body(LARGE_BYTES * 2)
        sent = asyncio.ensure_future(_post(client, proxy, body))
        await asyncio.wait_for(came.wait(), HOLD_SECONDS)
        assert pool.waiting == waiting + 1
        sent.cancel()
        await asyncio.wait_for(left.wait(), HOLD_SECONDS)
        assert pool.waiting == waiting
        await asyncio.wait_for(proxy.services.lifecycle.idle.wait(), HOLD_SECONDS)
