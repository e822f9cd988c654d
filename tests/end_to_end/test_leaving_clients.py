"""Clients that close their connection as soon as they have the answer, as a script's last request does, or before.

Law: what is booked and learned of an answered request does not depend on when its client leaves. What was read of an
answer until then has its price.
"""

import asyncio
from typing import Any

import aiohttp
import orjson
import pytest
from support.client import wait_until
from support.dialects.spoken.all_dialects import each_dialect
from support.dialects.spoken.dialect import Dialect
from support.leaks import read_sample
from support.model_learning import ListLog
from upstreams.recording import FakeUpstream, Recorded, completion

from trimtab.proxy.compaction.offload import MANY_MESSAGES

PRICES = "prices={unit: usd, input: 2, cached_input: 0.2, output: 8}"
PROMPT_TOKENS, COMPLETION_TOKENS = 20_000, 50
REQUESTS = 3


def make_long() -> list[dict[str, Any]]:
    """A conversation of so many messages that a thread compares them."""
    turns = [
        ({"role": "user", "content": f"Question {number}?"}, {"role": "assistant", "content": f"Answer {number}."})
        for number in range(MANY_MESSAGES)
    ]
    return [message for turn in turns for message in turn]


async def ask_and_leave(url: str, body: dict[str, Any], marker: bytes | None = None) -> None:
    """Send a request, read the whole answer or up to a marker in it, and close the connection at once."""
    headers = {"Content-Type": "application/json", "Authorization": "Bearer sk-test"}
    connector, seen = aiohttp.TCPConnector(force_close=True), b""
    async with aiohttp.ClientSession(connector=connector) as client:
        response = await client.post(url, data=orjson.dumps(body), headers=headers)
        assert response.status == 200
        while not response.content.at_eof() if marker is None else marker not in seen:
            seen += await response.content.readany()
        response.close()


async def find_lines(log: ListLog, number: int) -> list[dict[str, Any]]:
    """The log lines of so many requests."""
    await wait_until(lambda: sum(line["event"] == "request" for line in log.lines) == number)
    return [line for line in log.lines if line["event"] == "request"]


@each_dialect
async def test_the_cost_of_a_long_conversation_is_booked(
    dialect: Dialect, upstream: FakeUpstream, start_proxy, log
) -> None:
    """More than a thousand messages are compared in a thread, while the client leaves."""

    async def answer(recorded: Recorded, _: Any) -> aiohttp.web.Response:
        used = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": COMPLETION_TOKENS}
        return completion("All good.", recorded.dialect, **used)

    upstream.answer = answer
    proxy = await start_proxy("defaults.context_window=1000000", PRICES)
    messages = make_long()
    for number in range(1, REQUESTS + 1):
        messages.append({"role": "user", "content": "And now?"})
        await ask_and_leave(proxy.url + dialect.path, dialect.write(messages))
        line = (await find_lines(log, number))[-1]
        assert line["completion_tokens"] == COMPLETION_TOKENS
        assert ("prefix_kept" in line) == (number > 1)
        messages.append({"role": "assistant", "content": "All good."})

    dollars = REQUESTS * (2 * PROMPT_TOKENS + 8 * COMPLETION_TOKENS) / 1e6
    assert read_sample(proxy, "trimtab_cost_usd_total") == pytest.approx(dollars)
    assert read_sample(proxy, "trimtab_prefix_kept_ratio_count") == REQUESTS - 1
    assert read_sample(proxy, "trimtab_estimate_error_ratio_count") == REQUESTS


STREAM_PRICES = (PRICES, "defaults.count=heuristic")
WORDS = "The harbour is deep. " * 40


@pytest.mark.parametrize("leaves_at", ["", "harbour", "end"])
@each_dialect
async def test_a_stream_is_booked_wherever_its_client_leaves(
    leaves_at: str, dialect: Dialect, upstream: FakeUpstream, start_proxy, log
) -> None:
    """The upstream ends the stream only when the client is gone. One that has got the end of the answer has it all."""
    gone = asyncio.Event()

    async def answer(recorded: Recorded, request: Any) -> aiohttp.web.StreamResponse:
        *texts, end = recorded.dialect.write_events(*[WORDS] * 5)
        response = aiohttp.web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for sent in (texts if leaves_at else []) + ([end] if leaves_at == "end" else []):
            await response.write(sent)
        await gone.wait()
        return response

    upstream.answer = answer
    proxy = await start_proxy(*STREAM_PRICES)
    body = dialect.write([{"role": "user", "content": "How deep is it? " * 100}], stream=True)
    marker = list(dialect.write_events(WORDS))[-1].strip()[-12:] if leaves_at == "end" else leaves_at.encode()
    await ask_and_leave(proxy.url + dialect.path, body, marker)
    line = (await find_lines(log, 1))[-1]
    gone.set()

    assert (line["outcome"], line["status"]) == ("unchanged" if leaves_at == "end" else "aborted", 200)
    tokens = line["completion_tokens"]
    assert (tokens > 100) if leaves_at == "harbour" else (tokens > 0) is (leaves_at == "end")
    prompt_tokens = 11 if leaves_at and dialect.name != "chat" else 300  # as two of the dialects report it
    assert read_sample(proxy, "trimtab_cost_usd_total") >= (2 * prompt_tokens + 8 * tokens) / 1e6 - 1e-9


async def give_up(proxy: Any, dialect: Dialect, is_sent: asyncio.Event, **members: Any) -> None:
    """Send a request, and close the connection as soon as the upstream has got it, or after a while."""
    url, body = (
        proxy.url + dialect.path,
        dialect.write([{"role": "user", "content": "How deep is it? " * 100}], **members),
    )
    headers = {"Content-Type": "application/json", "Authorization": "Bearer sk-test"}
    async with aiohttp.ClientSession() as client:
        asking = asyncio.ensure_future(client.post(url, data=orjson.dumps(body), headers=headers))
        await is_sent.wait()
        asking.cancel()
        await asyncio.wait({asking})


@pytest.mark.parametrize("is_stream", [False, True])
@each_dialect
async def test_a_prompt_that_may_be_charged_is_booked(
    dialect: Dialect, upstream: FakeUpstream, start_proxy, log, *, is_stream: bool
) -> None:
    """By our own count, if its client leaves before the upstream has begun to answer. What was written is not known."""
    is_sent, gone = asyncio.Event(), asyncio.Event()

    async def answer(recorded: Recorded, _: Any) -> aiohttp.web.StreamResponse:
        is_sent.set()
        await gone.wait()
        return completion("Deep.", recorded.dialect)

    upstream.answer = answer
    proxy = await start_proxy(*STREAM_PRICES)
    await give_up(proxy, dialect, is_sent, stream=is_stream)
    line = (await find_lines(log, 1))[-1]
    gone.set()
    assert (line["outcome"], line["status"], line["completion_tokens"], line["is_estimated"]) == ("aborted", 0, 0, True)
    assert read_sample(proxy, "trimtab_cost_usd_total") == pytest.approx(2 * line["sent_tokens"] / 1e6)
    sums = await proxy.services.recorder.books.read(1)
    assert (sums.requests, sums.estimated_requests, sums.sent_tokens) == (1, 1, line["sent_tokens"])
