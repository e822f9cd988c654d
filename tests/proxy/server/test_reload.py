"""Another configuration for a proxy that runs."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from math import inf
from unittest.mock import Mock

import pytest
from support.client import CHAT, post
from support.model_learning import ListLog
from upstreams.recording import run_upstream

from trimtab.proxy.compaction.caches import KEPT_BODIES_BYTES, RESULTS_BYTES
from trimtab.proxy.compaction.pool import CACHES_BYTES
from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.schema import Config
from trimtab.proxy.memory import CACHES_SHARE
from trimtab.proxy.server.app import Proxy
from trimtab.proxy.server.reload import (
    adopt,
    reload_when_told,
    tell_upstreams,
    warn_of_readers,
    warn_of_recording,
    warn_of_unknown_variables,
)
from trimtab.rules.results.work import Shortened


def _change(proxy: Proxy, **changes: object) -> Config:
    """The proxy's configuration with some keys changed, validated again."""
    return Config.model_validate(proxy.services.config.model_dump() | changes)


async def test_what_is_fixed_keeps_its_value_and_is_named(start_proxy) -> None:
    proxy = await start_proxy()
    old = proxy.services
    new = _change(proxy, listen="127.0.0.1:1", store="sqlite", mode="off", tenant="header:x-team")

    assert adopt(proxy.current, new) == ["listen", "store"]
    now = proxy.services
    assert (now.config.listen, now.config.store, now.config.mode) == (old.config.listen, "memory", "off")
    assert (now.tenancy.tenant, now.tenancy.key) == ("header:x-team", old.tenancy.key)
    assert (old.config.mode, old.tenancy.tenant) == ("enforce", "authorization")
    assert adopt(proxy.current, proxy.services.config) == []


async def test_bounds_that_all_requests_share_change_at_once(client, start_proxy) -> None:
    proxy = await start_proxy()
    url = proxy.url + "/v1/chat/completions"
    uploads = proxy.services.uploads
    limits = proxy.services.config.limits
    uploads.hold(Mock(), 1000)  # a request in flight
    for max_held_bytes, status in ((1024, 503), (2048, 200), (None, 200)):
        new = {"limits": limits.model_dump() | {"max_held_bytes": max_held_bytes, "client_silence_seconds": 7}}
        adopt(proxy.current, _change(proxy, **new))
        assert (uploads.left_bytes, uploads.silence_seconds) == ((max_held_bytes or inf) - 1000, 7)
        assert (await post(client, url, CHAT))[0].status == status


async def test_a_new_upstream_is_asked_for_its_windows(start_proxy) -> None:
    proxy = await start_proxy()
    async with run_upstream() as other:
        adopt(
            proxy.current,
            _change(proxy, upstreams={"a": {"base_url": other.url}}, models=[{"match": "a*", "upstream": "a"}]),
        )
        await proxy.services.models.settle()
        assert other.questions[0].path == "/v1/models"


async def test_memory_is_bounded_as_after_a_start(start_proxy) -> None:
    """Caches, the dashboard's data and requests share what is configured; a smaller bound drops what is beyond it."""
    proxy = await start_proxy("dashboard.keep_text=true")
    services, limits = proxy.services, proxy.services.config.limits
    results = services.compactors._hold("a tenant").caches.results
    for number in range(26):
        key = (number, "", "", b"", False, "", "")
        results[key] = Shortened(("x" * 1_000_000,), 0)
        assert results.get(key)
    assert results.total_bytes > 20_000_000
    for max_memory_bytes in (2**29, 2**34, limits.max_memory_bytes):
        adopt(proxy.current, _change(proxy, limits=limits.model_dump() | {"max_memory_bytes": max_memory_bytes}))
        new = await start_proxy("dashboard.keep_text=true", f"limits.max_memory_bytes={max_memory_bytes}")
        assert services.memory.left_bytes == new.services.memory.left_bytes
        assert services.past.bounds == new.services.past.bounds
        share = min(max_memory_bytes / CACHES_SHARE / CACHES_BYTES, 1)
        assert results.total_bytes <= RESULTS_BYTES * share
        assert services.compactors.find_kept_bodies("a tenant").most_bytes == int(KEPT_BODIES_BYTES * share) // 2


def test_a_folder_of_recordings_that_cannot_be_written_is_told_at_the_start(tmp_path) -> None:
    (tmp_path / "file").touch()
    told = ListLog()
    for folder in ("file/here", "new"):
        warn_of_recording(load_config(f"record: {{dir: {tmp_path}/{folder}}}", environment={}), told)
    assert [line["event"] for line in told.lines] == ["recordings_fail", "recording"]
    assert told.lines[0]["reason"] == "Not a directory"


class _WaitedLog:
    def __init__(self) -> None:
        self._lines: asyncio.Queue[dict[str, object]] = asyncio.Queue()

    def _add(self, event: str, **fields: object) -> None:
        self._lines.put_nowait({"event": event, **fields})

    info = warning = error = _add

    async def next(self) -> dict[str, object]:
        return await asyncio.wait_for(self._lines.get(), 30)


@asynccontextmanager
async def _reloading(proxy: Proxy, load: Callable[[], Config]) -> AsyncIterator[tuple[asyncio.Event, _WaitedLog]]:
    told, log = asyncio.Event(), _WaitedLog()
    task = asyncio.get_running_loop().create_task(reload_when_told(told, proxy.current, load, log))
    yield told, log
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("fault", [MemoryError("sk-PLANTED"), ConfigError("no")])
async def test_whatever_breaks_while_it_is_read_the_next_time_is_another_attempt(start_proxy, fault) -> None:
    """The fault is logged by its type only, and the previous configuration stays in force."""
    proxy = await start_proxy()
    before = proxy.services
    answers = [fault, _change(proxy, mode="off")]

    def load() -> Config:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with _reloading(proxy, load) as (told, log):
        told.set()
        line = await log.next()
        if isinstance(fault, ConfigError):
            assert line["event"] == "configuration_invalid"
        else:
            assert (line["event"], line["error"]) == ("reload_failed", type(fault).__name__)
        assert "PLANTED" not in str(line)
        assert proxy.services is before
        read = proxy.services.recorder.metrics.registry.get_sample_value
        assert read("trimtab_config_last_reload_successful") == 0
        told.set()
        assert (await log.next())["event"] == "reloaded"
        assert proxy.services.config.mode == "off"
        assert read("trimtab_config_last_reload_successful") == 1


async def test_a_door_that_a_reload_opens_is_said(start_proxy) -> None:
    """The log says so at each reload, with the listen address, which a reload does not change."""
    proxy = await start_proxy("listen=0.0.0.0:0", "client_keys=[k]")
    new = _change(proxy, client_keys=None, listen="127.0.0.1:0")
    async with _reloading(proxy, lambda: new) as (told, log):
        for _ in range(2):
            told.set()
            lines = [await log.next() for _ in range(3)]
            assert [line["event"] for line in lines] == ["reload_incomplete", "listening_wide", "reloaded"]
            assert lines[1]["listen"] == "0.0.0.0:0"


def test_credentials_without_tls_are_told() -> None:
    """The log names the upstream, and shows no part of the credential."""
    log = ListLog()
    text = "upstream: {base_url: 'http://main/v1'}\nupstreams: {a: {base_url: 'http://a', api_key: sk-PLANTED}}"
    tell_upstreams(load_config(text, environment={}), log)
    tell_upstreams(load_config("upstreams: {a: {base_url: 'http://a'}}", environment={}), log)

    assert [(line["event"], line["upstream"], str(line["meaning"])[:14]) for line in log.lines] == [
        ("credential_without_tls", "http://main/v1", "each client's "),
        ("credential_without_tls", "http://a", "the operator's"),
    ]
    assert "PLANTED" not in str(log.lines)


def test_the_log_says_which_proxy_is_used() -> None:
    log = ListLog()
    tell_upstreams(load_config(environment={"HTTPS_PROXY": "http://u:PLANTED@proxy.test:1"}), log)
    (line,) = log.lines
    assert (line["event"], line["proxy"], line["named_by"]) == ("upstream_proxy", "http://proxy.test:1", "HTTPS_PROXY")
    assert "PLANTED" not in str(line)


def test_unknown_variables_are_one_warning(log, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names those that are nearly right. Without any, nothing is logged."""
    warn_of_unknown_variables(log)
    assert log.lines == []
    monkeypatch.setenv("TRIMTAB_WORKER", "2")
    monkeypatch.setenv("TRIMTAB_SERVICE_HOST", "10.0.0.1")
    warn_of_unknown_variables(log)

    (line,) = log.lines
    assert (line["event"], line["names"]) == ("unknown_variables", ["TRIMTAB_SERVICE_HOST", "TRIMTAB_WORKER"])
    assert line["similar"] == {"TRIMTAB_WORKER": "TRIMTAB_WORKERS"}


def test_kept_text_is_said(log):
    """Who reads the log knows that text of conversations is shown."""
    for text in ("dashboard: {keep_text: true}", ""):
        warn_of_readers(load_config(text, environment={}), log)
    assert [line["event"] for line in log.lines] == ["text_kept"]
