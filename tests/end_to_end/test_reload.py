"""SIGHUP: the configuration is read again while requests are in progress."""

import signal
from pathlib import Path

import aiohttp
import pytest
from programs.serving import read_log, serving
from support.client import post
from upstreams.recording import FakeUpstream

CHAT = {"model": "m-1", "messages": [{"role": "user", "content": "hi"}]}
OUTCOMES = ("reloaded", "configuration_invalid", "nothing_to_reload")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "trimtab.yaml"


def _write(file: Path, upstream: FakeUpstream, text: str = "") -> None:
    """Replace the file in one step, so that no reader sees a part of it."""
    new = file.with_suffix(".new")
    new.write_text(f"store: memory\nupstream: {{base_url: {upstream.url}}}\n{text}", encoding="utf-8")
    new.replace(file)


async def _find_limit(client: aiohttp.ClientSession, url: str) -> str:
    """The limit under which a request is compacted."""
    response, _ = await post(client, url + "/chat/completions", CHAT)
    return response.headers["x-trimtab-tokens"].partition("limit=")[2]


async def test_what_changed_holds_for_new_requests(client, upstream, file) -> None:
    """The window of a model changes twice. `--set` still applies."""
    _write(file, upstream, "models: [{match: 'm-*', context_window: 40000}]")
    async with serving("--config", str(file), "--set", "defaults.completion_reserve=0") as (process, url):
        assert await _find_limit(client, url) == "40000"
        for window_tokens in (20_000, 30_000):
            models = f"models: [{{match: 'm-*', context_window: {window_tokens}}}]"
            _write(file, upstream, models)
            process.send_signal(signal.SIGHUP)
            line = (await read_log(process, *OUTCOMES))[-1]
            assert (line["event"], line["models"]) == ("reloaded", 1)
            assert await _find_limit(client, url) == str(window_tokens)  # --set still applies


async def test_an_invalid_file_changes_nothing_and_is_said(client, upstream, file) -> None:
    """The log has one line for each error, without the key next to it. A valid file is accepted afterwards."""
    _write(file, upstream, "models: [{match: 'm-*', context_window: 40000}]")
    async with serving("--config", str(file), "--set", "defaults.completion_reserve=0") as (process, url):
        _write(file, upstream, "nope: 1\nmode: maybe\nupstreams: {x: {api_key: sk PLANTED}}")
        process.send_signal(signal.SIGHUP)
        lines = [(await read_log(process, *OUTCOMES))[-1] for _ in range(3)]
        assert {line["event"] for line in lines} == {"configuration_invalid"}
        for key in ("nope (line 3)", "mode (line 4)", "upstreams.x.api_key (line 5)"):
            assert any(line["problem"].startswith(key) for line in lines)
        assert "PLANTED" not in str(lines)
        for unreadable in (b"\xff", b"{"):
            file.write_bytes(unreadable)
            process.send_signal(signal.SIGHUP)
            assert (await read_log(process, *OUTCOMES))[-1]["event"] == "configuration_invalid"
        for nothing in ("", "\n  # only this\n"):
            file.write_text(nothing, encoding="utf-8")
            process.send_signal(signal.SIGHUP)
            line = (await read_log(process, *OUTCOMES))[-1]
            assert (line["event"], "is empty" in line["problem"]) == ("configuration_invalid", True)
        file.unlink()
        process.send_signal(signal.SIGHUP)
        assert "cannot be read" in (await read_log(process, *OUTCOMES))[-1]["problem"]
        assert await _find_limit(client, url) == "40000"
        _write(file, upstream, "mode: off")
        process.send_signal(signal.SIGHUP)
        assert (await read_log(process, "reloaded"))[-1]["mode"] == "off"
