"""Wiring: addresses, and what is missing at the start."""

from uuid import uuid4

import pytest
from asking import post

from proxy.app import run_proxy, site_url, split_address
from proxy.compactors import Compactors
from proxy.config_load import load_config
from proxy.threads import INLINE_BYTES


@pytest.mark.parametrize(
    ("address", "parts", "url"),
    [
        ("127.0.0.1:8790", ("127.0.0.1", 8790), "http://127.0.0.1:8790"),
        ("[::1]:80", ("::1", 80), "http://[::1]:80"),
        ("localhost:0", ("localhost", 0), "http://localhost:0"),
    ],
)
def test_addresses_are_read_and_written(address: str, parts: tuple[str, int], url: str) -> None:
    """HOST:PORT, with an IPv6 host in brackets."""
    assert split_address(address) == parts
    assert site_url(*parts) == url


@pytest.mark.parametrize("fault", [KeyError("o200k_base"), OSError(), ValueError(), ImportError()])
async def test_estimates_that_cannot_be_had_are_done_without(fault, client, upstream, log, monkeypatch) -> None:
    """That is said once; what is counted late goes by its bytes, and a shutdown lets go of everything."""

    def fail(_vocabulary: str) -> None:
        raise fault

    monkeypatch.setattr("proxy.compactors.Estimator", fail)
    settings = ("listen=127.0.0.1:0", f"upstream.base_url={upstream.url}", "store=memory")
    text = " ".join(uuid4().hex for _ in range(1200))
    assert len(text) > INLINE_BYTES
    async with run_proxy(load_config(settings=settings, environment={}), log, Compactors(log)) as proxy:
        body = {"model": "m", "messages": [{"role": "user", "content": text}]}
        response, _ = await post(client, proxy.url + "/v1/chat/completions", body)
        metrics = (await (await client.get(proxy.url + "/metrics")).text()).splitlines()

    assert (response.status, "x-trimtab-tokens" in response.headers) == (200, True)
    assert 'trimtab_overhead_seconds_count{phase="glance"} 1.0' in metrics
    missing = [line for line in log.lines if line["event"] == "estimates_missing"]
    assert missing == [{"event": "estimates_missing", "reason": type(fault).__name__, "instead": "bytes"}]
    assert proxy.services.client._session.closed
