"""A recording says what arrived and what was sent, and holds no credential."""

import gzip
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from support.client import CHAT, SMALL, post, settle
from support.leaks import read_sample
from support.sessions import make_session
from upstreams.recording import completion

from trimtab.proxy.account.recordings.folder import list_files, read_all
from trimtab.proxy.account.recordings.format import Recording
from trimtab.proxy.exchange import record as telling

KEY = "sk-planted-0123456789abcdef"
PATH = "/v1/chat/completions"


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "recordings"


@pytest.fixture
def start(start_proxy, folder) -> Any:
    return lambda *settings: start_proxy(f"record.dir={folder}", *settings)


async def read(proxy: Any, folder: Path) -> list[Recording]:
    """All recordings, once they are written."""
    await proxy.services.lifecycle.idle.wait()
    await proxy.services.recordings.settle()
    return list(read_all(folder, lambda path, reason: pytest.fail(f"{path}: {reason}")))


async def test_an_unchanged_request_is_recorded_with_its_figures(client, start, folder, upstream):
    upstream.answer = lambda *_: answer_with(prompt_tokens=20, completion_tokens=5)
    proxy = await start("dashboard.enabled=false")
    await post(client, proxy.url + PATH, CHAT)
    (recording,) = await read(proxy, folder)

    assert orjson.loads(recording.received_body) == CHAT
    assert recording.sent_body == recording.received_body == upstream.chats[0].body
    assert recording.sent.body is None
    assert (recording.request.dialect, recording.request.model) == ("chat", "m")
    assert recording.request.headers["content-type"] == "application/json"
    assert (recording.event.prompt_tokens, recording.event.completion_tokens) == (20, 5)
    assert (recording.bill.tokens.prompt, recording.bill.tokens.completion) == (20, 5)
    assert recording.counted.original
    assert recording.counted.sent
    assert recording.circumstances.upstream_url == upstream.url
    assert recording.circumstances.policy.context_window == recording.circumstances.believed_tokens
    assert read_sample(proxy, "trimtab_recordings_total", result="written") == 1


async def test_a_compacted_request_is_recorded_as_it_arrived_and_as_it_went(client, start, folder, upstream):
    proxy = await start(*SMALL)
    body = {"model": "m", **make_session(40)}
    await post(client, proxy.url + PATH, body)
    (recording,) = [one for one in await read(proxy, folder) if one.call is None]

    assert orjson.loads(recording.received_body) == body
    assert recording.sent_body == upstream.chats[0].body != recording.received_body
    assert {one.rule for one in recording.counted.decisions} == {one.rule for one in recording.event.decisions}
    assert recording.story
    assert not any("word1x1" in sentence for sentence in recording.story)
    assert recording.circumstances.config["high_water"] == 0.8
    assert recording.event.session


async def test_a_call_for_a_summary_is_recorded_with_its_cost(client, start, folder, upstream):
    proxy = await start(*SMALL, "prices={input: 1, cached_input: 0.1, output: 4, unit: usd}")
    await post(client, proxy.url + PATH, {"model": "m", **make_session(40)})
    await settle(proxy)
    calls = [one.call for one in await read(proxy, folder) if one.call is not None]

    assert len(calls) == len(upstream.summaries) > 0
    for kind, tokens in (("prompt", "prompt_tokens"), ("completion", "completion_tokens")):
        counted = read_sample(proxy, "trimtab_summary_tokens_total", kind=kind)
        assert counted == sum(getattr(call, tokens) for call in calls if call.charged is not None) > 0
    spent = sum(call.cost for call in calls) / 10**9
    assert read_sample(proxy, "trimtab_cost_usd_total", part="summary") == pytest.approx(spent)
    assert calls[0].result == "written"


@pytest.mark.parametrize(
    ("headers", "query", "more", "session"),
    [
        ({"cookie": f"session={KEY}"}, "", {}, False),
        ({}, f"?key={KEY}", {}, False),
        ({"x-acme-token": KEY}, "", {}, False),
        ({"authorization": f"Bearer {KEY}"}, f"?api-key={KEY}", {"model": f"m-{KEY}", "user": KEY}, True),
        ({"authorization": f"Bearer {KEY}"}, f"?api-key={KEY}", {"model": f"m-{KEY}"}, False),
        ({"authorization": f"Bearer {KEY}", "user-agent": f"agent {KEY}"}, "", {}, False),
        ({"authorization": f"Bearer {KEY}", "x-trimtab-profile": KEY}, "", {}, False),
    ],
)
async def test_no_recording_holds_a_planted_key(headers, query, more, session, client, start, folder):  # noqa: PLR0917 - fixtures
    proxy = await start(*SMALL, "upstream.api_key=sk-operators-own-0123456789")
    messages = make_session(40)["messages"] if session else CHAT["messages"]
    told = [*messages, {"role": "user", "content": f'my key is {KEY}, and "{KEY}" in JSON: {{\\"k\\":\\"{KEY}\\"}}'}]
    body = {"model": "m", **more, "messages": told}
    await post(client, f"{proxy.url}{PATH}{query}", body, **{"authorization": "Bearer sk-other-0123456789"} | headers)
    await client.get(f"{proxy.url}/v1/models{query}", headers=headers)
    await post(client, f"{proxy.url}{PATH}{query}", b"no JSON " + KEY.encode(), **headers)
    await settle(proxy)

    recordings = await read(proxy, folder)
    assert len([one for one in recordings if one.call is None]) >= 2  # an unknown profile is refused by the head alone
    for file in list_files(folder):
        content = gzip.decompress(file.path.read_bytes())
        for hidden in (KEY, "sk-operators-own", "sk-other"):
            assert hidden.encode() not in content, file.path.name
    planned = [one for one in recordings if one.request is not None and one.request.body is not None]
    assert all(one.request.is_redacted for one in planned)
    assert not planned or b"my key is ***" in planned[0].received_body


async def test_a_body_without_a_key_is_recorded_byte_for_byte(client, start, folder):
    proxy = await start()
    body = b'{ "model":"m",\n "messages" : [{"role":"user","content":"sk\\/planted \xe2\x9c\x93"}] }'
    await post(client, proxy.url + PATH, body)
    (recording,) = await read(proxy, folder)
    assert recording.received_body == body
    assert not recording.request.is_redacted


async def test_a_key_as_the_name_of_a_tool_is_in_no_sentence(client, start, folder):
    proxy = await start(*SMALL, "defaults.max_tool_result_tokens=100")
    body = orjson.dumps({"model": "m", **make_session(40)}).replace(b'"read_file"', f'"t_{KEY}"'.encode())
    await post(client, proxy.url + PATH, body, authorization=f"Bearer {KEY}")
    (recording,) = [one for one in await read(proxy, folder) if one.call is None]
    assert any("t_***" in sentence for sentence in recording.story), recording.story
    assert all(KEY.encode() not in gzip.decompress(file.path.read_bytes()) for file in list_files(folder))


@pytest.mark.parametrize(
    ("path", "body", "outcome"),
    [
        (PATH, b"no JSON", "undecodable"),
        (PATH, orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "long " * 900}]}), "too_large"),
        ("/v1/embeddings", b'{"model":"m","input":"text of the client"}', "passed"),
    ],
    ids=["no JSON", "too large", "passes"],
)
async def test_of_what_is_not_decoded_only_the_event_is_recorded(path, body, outcome, client, start, folder):
    proxy = await start("limits.max_body_bytes=1024")
    await post(client, proxy.url + path, body)
    (recording,) = await read(proxy, folder)
    assert recording.received_body is recording.sent_body is recording.circumstances is None
    assert recording.event.outcome == outcome
    assert (recording.request.dialect == "") is (outcome == "passed")
    assert body not in gzip.decompress(list_files(folder)[0].path.read_bytes())


async def test_a_request_that_was_refused_by_its_head_alone_is_not_recorded(client, start, folder):
    """Anybody can send many of these, and the oldest recordings would be deleted for them."""
    proxy = await start('client_keys=["sk-known-0123456789"]', 'listen="127.0.0.1:0"')
    refused, _ = await post(client, proxy.url + PATH, CHAT)
    served, _ = await post(client, proxy.url + PATH, CHAT, authorization="Bearer sk-known-0123456789")
    assert (refused.status, served.status) == (401, 200)
    (recording,) = await read(proxy, folder)
    assert recording.event.status == 200


async def test_a_refused_request_was_not_sent(client, start, folder):
    proxy = await start(*SMALL, "defaults.on_exceeded=error")
    body = {"model": "m", "messages": [{"role": "user", "content": "word " * 20_000}]}
    answer, _ = await post(client, proxy.url + PATH, body)
    assert answer.status == 400
    (recording,) = await read(proxy, folder)
    assert recording.sent is recording.sent_body is None
    assert recording.counted.original
    assert not recording.counted.sent
    assert recording.event.error == "context_length_exceeded"


async def test_a_fault_in_making_a_recording_is_counted_and_costs_nobody_an_answer(client, start, monkeypatch):
    proxy = await start()
    monkeypatch.setattr(telling, "_make_request", lambda _: 1 / 0)
    answer, _ = await post(client, proxy.url + PATH, CHAT)
    assert answer.status == 200
    await proxy.services.lifecycle.idle.wait()
    await proxy.services.recordings.settle()
    assert read_sample(proxy, "trimtab_recordings_total", result="failed") == 1
    assert read_sample(proxy, "trimtab_fail_open_total", phase="record") == 1


async def answer_with(**usage: int) -> web.Response:
    return completion(**usage)
