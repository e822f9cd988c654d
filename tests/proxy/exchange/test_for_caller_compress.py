"""POST /v1/compress and GET /v1/retrieve/HASH, as LiteLLM's guardrail calls them. Over real HTTP."""

import re
from typing import Any

import orjson
import pytest
from support.client import SMALL, post
from support.sessions import make_session

ON = (*SMALL, "compaction.compress=true", "defaults.max_tool_result_tokens=200")
KEY = {"Authorization": "Bearer sk-one"}


def _make_messages(steps: int = 30) -> list[dict[str, Any]]:
    return make_session(steps, result_words=400)["messages"]


async def _compress(client: Any, proxy: Any, messages: list[Any], **headers: str) -> dict[str, Any]:
    body = {"messages": messages, "model": "m"}
    response, answer = await post(client, f"{proxy.url}/v1/compress", body, **(KEY | headers))
    assert response.status == 200, answer
    return orjson.loads(answer)


async def _retrieve(client: Any, proxy: Any, name: str, **headers: str) -> tuple[int, Any]:
    async with client.get(f"{proxy.url}/v1/retrieve/{name}?query=word", headers=KEY | headers) as response:
        return response.status, orjson.loads(await response.read())


async def test_each_marker_fetches_the_whole_text(client, upstream, start_proxy) -> None:
    proxy, messages = await start_proxy(*ON), _make_messages()
    told = await _compress(client, proxy, messages)
    found = [re.findall(r"hash=([0-9a-f]{24})", str(message["content"])) for message in told["messages"]]

    assert len(told["messages"]) == len(messages)
    assert [message["role"] for message in told["messages"]] == [message["role"] for message in messages]
    assert told["tokens_after"] < told["tokens_before"] / 2
    assert told["compression_ratio"] == pytest.approx(told["tokens_after"] / told["tokens_before"])
    assert {name for names in found for name in names} == set(told["ccr_hashes"])
    assert len(told["ccr_hashes"]) > 20
    for names, message in zip(found, messages, strict=True):
        for name in names:
            assert await _retrieve(client, proxy, name) == (200, {"hash": name, "original_content": message["content"]})
    assert upstream.requests == []


async def test_the_same_messages_get_the_same_answer_and_longer_ones_begin_so(client, start_proxy) -> None:
    """Except where the cut moves, which is rare."""
    proxy, messages = await start_proxy(*ON), _make_messages()
    before, breaks = list[Any](), 0
    for number in range(4, len(messages), 2):
        told = await _compress(client, proxy, messages[:number])
        assert await _compress(client, proxy, messages[:number]) == told
        breaks += told["messages"][: len(before)] != before
        before = told["messages"]
    assert breaks < 6


async def test_results_without_their_calls_are_shortened_too(client, start_proxy) -> None:
    """LiteLLM sends no message of the assistant."""
    proxy = await start_proxy(*ON)
    messages = [message for message in _make_messages() if message["role"] != "assistant"]
    told = await _compress(client, proxy, messages)

    assert [message["role"] for message in told["messages"]] == [message["role"] for message in messages]
    assert len(told["ccr_hashes"]) > 20


async def test_no_client_finds_the_text_of_another(client, start_proxy) -> None:
    proxy, messages = await start_proxy(*ON), _make_messages(6)
    one = await _compress(client, proxy, messages)
    other = await _compress(client, proxy, messages, Authorization="Bearer sk-other")

    assert not set(one["ccr_hashes"]) & set(other["ccr_hashes"])
    status, answer = await _retrieve(client, proxy, one["ccr_hashes"][0], Authorization="Bearer sk-other")
    assert (status, answer["error"]["code"]) == (404, "not_found")
    for name in ("0" * 24, "x" * 24, one["ccr_hashes"][0][:12]):
        assert (await _retrieve(client, proxy, name))[0] == 404


async def test_parts_of_a_message_stay_parts(client, start_proxy) -> None:
    proxy, messages = await start_proxy(*ON), _make_messages(4)
    at = max(number for number, message in enumerate(messages) if message["role"] == "tool")
    whole = messages[at]["content"]
    messages[at] = {**messages[at], "content": [{"type": "text", "text": whole}]}
    told = await _compress(client, proxy, messages)
    parts = told["messages"][at]["content"]

    assert [part["type"] for part in parts] == ["text", "text"]
    name = re.findall(r"hash=([0-9a-f]{24})", parts[-1]["text"])[0]
    assert (await _retrieve(client, proxy, name))[1]["original_content"] == whole


async def test_it_is_off_unless_configured_and_needs_a_key_of_clients(client, upstream, start_proxy) -> None:
    off = await start_proxy(*SMALL)
    await post(client, f"{off.url}/v1/compress", {"messages": []})
    await _retrieve_raw(client, off)
    assert [sent.path for sent in upstream.requests if not sent.asks_for_windows] == [
        "/v1/compress",
        "/v1/retrieve/" + "0" * 24,
    ]

    locked = await start_proxy(*ON, 'client_keys={"alice": "alice-key"}')
    response, _ = await post(client, f"{locked.url}/v1/compress", {"messages": _make_messages(2)})
    opened, _ = await post(
        client, f"{locked.url}/v1/compress", {"messages": _make_messages(2)}, Authorization="Bearer alice-key"
    )
    assert (response.status, opened.status) == (401, 200)
    assert (await _retrieve(client, locked, "0" * 24))[0] == 401


async def _retrieve_raw(client: Any, proxy: Any) -> None:
    async with client.get(f"{proxy.url}/v1/retrieve/{'0' * 24}") as response:
        await response.read()


async def test_a_body_that_cannot_be_read_is_an_error(client, start_proxy) -> None:
    proxy = await start_proxy(*ON)
    response, answer = await post(client, f"{proxy.url}/v1/compress", b'{"prompt": 7}')

    assert (response.status, orjson.loads(answer)["error"]["code"]) == (400, "undecodable_body")
