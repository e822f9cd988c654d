"""The answer says what was done to its request."""

import asyncio

import pytest
from support.client import CHAT, SMALL, post
from support.sessions import make_session

OUTCOME = "x-trimtab-outcome"
ASKED = {"model": "m", "input": "hi"}
LARGE = {"model": "m", "messages": [{"role": "user", "content": "word " * 20_000}]}


async def test_the_outcome_is_that_of_the_metrics(client, start_proxy, log):
    proxy = await start_proxy(*SMALL, "limits.max_body_bytes=80000")
    for body, headers, outcome in (
        (CHAT, {}, "unchanged"),
        ({"model": "m", **make_session(40)}, {}, "compacted"),
        (CHAT, {"x-trimtab-mode": "observe"}, "observe"),
        (CHAT, {"x-trimtab-mode": "off"}, "off"),
        ({"model": "m"}, {}, "undecodable"),
        (LARGE, {}, "too_large"),
        (CHAT, {"x-trimtab-mode": "on"}, "refused"),
    ):
        answer, _ = await post(client, f"{proxy.url}/v1/chat/completions", body, **headers)
        assert answer.headers[OUTCOME] == outcome
        assert log.lines[-1]["outcome"] == outcome


@pytest.mark.parametrize("mode", ["enforce", "observe"])
async def test_a_history_that_the_upstream_holds_is_a_parameter(mode, client, start_proxy):
    proxy = await start_proxy(f"mode={mode}")
    outcome = {"enforce": "unchanged", "observe": "observe"}[mode]
    for more, parameter in (({}, ""), ({"previous_response_id": "resp_1"}, ";history=upstream")):
        answer, _ = await post(client, f"{proxy.url}/v1/responses", ASKED | more)
        assert answer.headers[OUTCOME] == outcome + parameter


async def test_a_request_that_was_refused_once_counts_as_sent(client, start_proxy):
    """Also if there is no connection for its second attempt."""
    told = b'{"error":{"message":"maximum context length is 2000 tokens","code":"context_length_exceeded"}}'

    async def refuse_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        is_prompt = head.startswith(b"POST")
        if is_prompt:
            server.close()
            await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split()[0]))
        answer = (b"400 Bad Request", told) if is_prompt else (b"404 Not Found", b"{}")
        head = b"HTTP/1.1 %b\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
        writer.write(head % (answer[0], len(answer[1]), answer[1]))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(refuse_once, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    settings = ("defaults.context_window=8000", "defaults.summary.when=never")
    proxy = await start_proxy(f"upstream.base_url=http://127.0.0.1:{port}/v1", *settings)
    answer, _ = await post(client, f"{proxy.url}/v1/chat/completions", {"model": "m", **make_session(40)})
    assert answer.status == 502
    assert "sent=0" not in answer.headers["x-trimtab-tokens"]
