"""SIGHUP: the configuration is read again while requests are in progress."""

import asyncio
import signal
from pathlib import Path

import aiohttp
import pytest
from programs.serving import read_log, serving
from support.client import post
from upstreams.recording import FakeUpstream, completion, event

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


async def test_a_key_file_is_read_again(client, upstream, file) -> None:
    """The client's new key is admitted, its old one is not. An empty file changes nothing and is told without keys."""
    key_file = file.with_name("key")
    key_file.write_text("key-one\n", encoding="utf-8")
    _write(file, upstream, f"client_keys: {{alice: {{key_file: {key_file}}}}}")

    async def try_keys(url: str) -> list[int]:
        shown = [{"Authorization": f"Bearer {key}"} for key in ("key-one", "key-two")]
        return [(await post(client, url + "/chat/completions", CHAT, **headers))[0].status for headers in shown]

    async with serving("--config", str(file)) as (process, url):
        assert await try_keys(url) == [200, 401]
        for text, event_name, admitted in (
            ("key-two", "reloaded", [401, 200]),
            ("", "configuration_invalid", [401, 200]),
            ("key-one", "reloaded", [200, 401]),
        ):
            key_file.write_text(text, encoding="utf-8")
            process.send_signal(signal.SIGHUP)
            line = (await read_log(process, *OUTCOMES))[-1]
            assert (line["event"], "key-" in str(line)) == (event_name, False)
            assert await try_keys(url) == admitted


async def test_a_stream_in_flight_goes_on(client, upstream, file) -> None:
    """It continues with the configuration of its start, while new requests use the new one."""
    release = asyncio.Event()

    async def hold(recorded, request):
        if not recorded.json.get("stream"):
            return completion("from here")
        response = aiohttp.web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(event("one"))
        await release.wait()
        await response.write(event("two"))
        await response.write_eof()
        return response

    upstream.answer = hold
    _write(file, upstream)
    async with serving("--config", str(file)) as (process, url):
        async with client.post(url + "/chat/completions", json=CHAT | {"stream": True}) as response:
            assert await response.content.readany() == event("one")
            _write(file, upstream, "mode: off\nlimits: {max_body_bytes: 2000}")
            process.send_signal(signal.SIGHUP)
            assert (await read_log(process, *OUTCOMES))[-1]["mode"] == "off"
            after, _ = await post(client, url + "/chat/completions", CHAT)
            assert (after.status, "x-trimtab-tokens" in after.headers) == (200, False)
            release.set()
            assert await response.content.read() == event("two")
        lines = await read_log(process, "request")
        lines += await read_log(process, "request")
        assert sorted(line["outcome"] for line in lines) == ["off", "unchanged"]


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


async def test_a_new_upstream_is_asked_for_its_windows(upstream, file) -> None:
    """The question runs in the background, as at the start."""
    asked = asyncio.Event()

    async def answer(recorded, _request):
        if recorded.path == "/v1/other/v1/models":
            asked.set()
        return completion()

    _write(file, upstream)
    async with serving("--config", str(file)) as (process, _):
        upstream.answers_questions, upstream.answer = True, answer
        file.write_text(f"store: memory\nupstream: {{base_url: {upstream.url}/other/v1}}", encoding="utf-8")
        process.send_signal(signal.SIGHUP)
        await read_log(process, "reloaded")
        await asyncio.wait_for(asked.wait(), 30)


async def test_many_signals_do_no_harm(client, upstream, file) -> None:
    """The signals may come in any rhythm. The last content of the file applies."""
    _write(file, upstream)
    async with serving("--config", str(file)) as (process, url):
        for mode in ("off", "observe", "off", "enforce", "off"):
            _write(file, upstream, f"mode: {mode}")
            for _ in range(20):
                process.send_signal(signal.SIGHUP)
        async with asyncio.timeout(30):
            while "x-trimtab-tokens" in (await post(client, url + "/chat/completions", CHAT))[0].headers:
                pass
