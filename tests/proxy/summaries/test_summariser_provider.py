"""The provider is asked for its own note before a model is asked for one, over real HTTP."""

from typing import Any

import pytest
from aiohttp import web
from support.client import SMALL, post, settle
from support.dialects.to_responses import to_responses
from support.sessions import make_session, requests_of
from upstreams.recording import FakeUpstream

SETTINGS = (
    *SMALL,
    "defaults.overflow_strategy=summarize",
    "defaults.summary.by=provider",
    "defaults.summary.max_tokens=600",
)
USAGE = {"input_tokens": 500, "output_tokens": 40}
PACKED = {"type": "compaction", "id": "cmp_1", "encrypted_content": "c2VhbGVk"}
SESSION = make_session(30, result_words=150)


async def play(client: Any, proxy: Any, upstream: FakeUpstream, answer: Any) -> list[Any]:
    """The session, with an answer to each question for a note. Returns these questions."""
    plain, asked = upstream.answer, list[Any]()

    async def receive(recorded: Any, request: web.BaseRequest) -> web.StreamResponse:
        if recorded.asks_for_summary:
            return await plain(recorded, request)
        if "/responses/compact" not in recorded.path:
            return web.json_response({"object": "response", "status": "completed", "output": []})
        asked.append(recorded)
        told = answer()
        return told if isinstance(told, web.Response) else web.json_response(told)

    upstream.answer = receive
    for messages in requests_of(SESSION):
        body = to_responses({"model": "m", "messages": messages, "tools": SESSION["tools"]})
        response, _ = await post(client, proxy.url + "/v1/responses?api-version=1", body)
        assert response.status == 200
        await settle(proxy)
    assert asked
    return asked


def list_calls(log: Any) -> list[tuple[str, str]]:
    return [(line["form"], line["result"]) for line in log.lines if line["event"] == "summary"]


async def test_the_note_is_asked_for_beside_the_path_of_the_request(client, upstream, start_proxy, log) -> None:
    """With the client's credential and query; and nothing else is asked."""
    proxy = await start_proxy(*SETTINGS)
    note = {"object": "response.compaction", "output": [PACKED], "usage": USAGE}
    asked = await play(client, proxy, upstream, lambda: note)
    assert {one.path for one in asked} == {"/v1/responses/compact?api-version=1"}
    assert {one.header("authorization")[0] for one in asked} == {"Bearer sk-test"}
    assert upstream.summaries == []
    assert list_calls(log) == [("provider", "written")] * len(asked)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda: web.Response(status=404), ("refused", True)),
        (lambda: web.Response(status=401), ("refused", False)),
        (lambda: {"object": "response.compaction", "output": []}, ("empty", False)),
        (lambda: web.Response(text="<html>"), ("failed", False)),
    ],
)
async def test_else_a_model_is_asked_in_its_place(answer, told, client, upstream, start_proxy, log) -> None:
    """Each time, unless the upstream knows no such question: that is remembered."""
    result, is_remembered = told
    proxy = await start_proxy(*SETTINGS)
    asked = await play(client, proxy, upstream, answer)
    calls = list_calls(log)
    assert ("provider", result) in calls
    assert {form for form, _ in calls} > {"provider"}
    written = [form for form, how in calls if how == "written"]
    assert written
    assert "provider" not in written
    assert len(asked) == (1 if is_remembered else len(written))
    assert any(b"SUMMARY of the work so far" in recorded.body for recorded in upstream.chats)


async def test_a_change_of_the_setting_finds_no_summary_of_the_other(client, upstream, start_proxy, tmp_path) -> None:
    store = f"store=sqlite:///{tmp_path}/summaries.sqlite3"
    note = {"object": "response.compaction", "output": [PACKED], "usage": USAGE}
    asked = await play(client, await start_proxy(*SETTINGS, store), upstream, lambda: note)
    upstream.requests.clear()
    proxy = await start_proxy(*SETTINGS, store, "defaults.summary.by=model")
    body = to_responses({"model": "m", "messages": SESSION["messages"][:-1], "tools": SESSION["tools"]})
    await post(client, proxy.url + "/v1/responses?api-version=1", body)
    assert asked
    assert not any(b'"encrypted_content"' in recorded.body for recorded in upstream.requests)
