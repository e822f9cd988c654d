"""A short fuzz of a proxy between a client and an upstream. `bench.fuzz.run --target live` runs it longer."""

import random

import orjson
import pytest
from fuzzing.http_bytes import RawRequest
from fuzzing.live import run_live

from trimtab.proxy.compaction.pool import Compactors

INPUTS = 100
SIZES = (60, 400, 900, 1600)
CHAT = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"


async def test_no_exchange_has_a_500_a_fail_open_or_a_fault_that_nobody_caught(compactors: Compactors) -> None:
    """The bytes of both sides are arbitrary. Many exchanges get a response, and some are compacted."""
    generator = random.Random(7)  # noqa: S311 - the same at every run
    async with run_live(compactors) as live:
        for _ in range(INPUTS):
            await live.exchange(generator.randbytes(generator.choice(SIZES)))
        metrics = live.proxy.services.recorder.metrics.render().decode().splitlines()
    assert live.answered > INPUTS / 2
    assert not [line for line in metrics if line.startswith("trimtab_fail_open_total")]
    assert [line for line in metrics if line.startswith("trimtab_tokens_saved_total")]


async def test_no_trailer_and_no_strange_host_goes_upstream(compactors: Compactors) -> None:
    """Two requests on one connection may be split anywhere. Many requests get a response."""
    generator = random.Random(7)  # noqa: S311 - the same at every run
    async with run_live(compactors) as live:
        for _ in range(INPUTS):
            await live.exchange_pair(generator.randbytes(generator.choice(SIZES)))
    assert live.answered > INPUTS / 2


async def test_faults_are_seen(compactors: Compactors, monkeypatch: pytest.MonkeyPatch) -> None:
    """The laws can fail: for a fault inside compaction, and for one outside."""
    body = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]})
    request = RawRequest(CHAT % (len(body), body), is_whole=True)

    def fail(*_: object) -> None:
        raise RuntimeError

    async with run_live(compactors) as live:
        monkeypatch.setattr("trimtab.proxy.exchange.compact.prepare_call", fail)
        with pytest.raises(AssertionError, match="failed open"):
            await live.judge(request)
        live.log.lines.clear()
        monkeypatch.setattr("trimtab.proxy.exchange.serve._read", fail)
        with pytest.raises(AssertionError, match="500"):
            await live.judge(request)
        with pytest.raises(AssertionError, match="RuntimeError"):
            live.check()
