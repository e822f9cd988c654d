"""Everything that an upstream can do wrong, and what the client sees of it: one table, each row in all forms.

Law: a fault before the answer is an error in OpenAI's form; one within it ends the connection, never cleanly; what is
odd but whole goes through byte for byte. Behind each of them the proxy holds nothing more than before.
"""

import asyncio
import io
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import aiohttp
import orjson
import pytest
from asking import CHAT, SMALL, ask_raw
from faults import CHUNKED, FAULTS, FULL, UNREACHABLE, Passed, Refused, Seen, answer_early
from leaks import Leaks, count_kept
from raw_upstream import COMPLETION, EVENTS, GOOD, OK, TEXT, Connection, RawUpstream, run_raw_upstream, say
from sessions import make_session

from proxy.app import Proxy

READ_SECONDS = 0.2
PATIENCE_SECONDS = 5.0
"""The client's: who waits longer waits in vain."""
LONG = {"model": "m", "messages": make_session(70, result_words=120)["messages"][:-1]}
"""A request of several windows."""
NO_MODEL = ("defaults.overflow_strategy=prune",)
"""It is cut, and no model is asked."""
DIGEST = "this is a list made from them"


each_fault = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)


@pytest.fixture
async def raw() -> AsyncIterator[RawUpstream]:
    """The upstream that misbehaves."""
    async with run_raw_upstream() as upstream:
        yield upstream


@pytest.fixture(autouse=True)
def _nothing_is_said_of_it(caplog) -> Any:
    """No fault surprises a library, and no task's error goes unseen."""
    yield
    assert not [record.message for record in caplog.records if record.levelname in {"WARNING", "ERROR", "CRITICAL"}]


async def ask(url: str, body: dict[str, Any], path: str = "/v1/chat/completions") -> tuple[int, bytes, bool]:
    """Status, what came of the body, and whether that was all of it; each time on a connection of its own."""
    connector, timeout = aiohttp.TCPConnector(force_close=True), aiohttp.ClientTimeout(PATIENCE_SECONDS)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as session:
        received = bytearray()
        headers = {"Content-Type": "application/json", "Authorization": "Bearer sk-test"}
        async with session.post(url + path, data=io.BytesIO(orjson.dumps(body)), headers=headers) as response:
            try:
                async for chunk in response.content.iter_any():
                    received += chunk
            except aiohttp.ClientError:
                return response.status, bytes(received), False
            return response.status, bytes(received), True


async def check_seen(seen: Seen, proxy: Proxy, body: dict[str, Any], path: str = "/v1/chat/completions") -> None:
    """The client asks, and sees what it should."""
    status, received, whole = await ask(proxy.url, body, path)
    if isinstance(seen, Refused):
        error = orjson.loads(received)["error"]
        assert (status, error["code"], whole) == (seen.status, seen.code, True)
        assert (error["type"], error["param"]) == ("trimtab_error", None)
    elif isinstance(seen, Passed):
        expected = seen.body.replace(b"BODY", EVENTS if body.get("stream") else COMPLETION)
        assert (status, received, whole) == (seen.status, expected, True)
    else:
        assert (status, whole) == (200, False)


@each_fault
async def test_a_fault_of_the_upstream_is_told_or_passed_on(fault, raw, start_proxy):
    """Streaming or not, touched by a rule, untouched, or on a path that is none of ours."""
    proxy = await start_proxy(
        *SMALL, *NO_MODEL, f"upstream.base_url={raw.url}", f"upstream.read_timeout_seconds={READ_SECONDS}"
    )
    leaks = Leaks(proxy, raw)
    assert (await ask(proxy.url, LONG))[0] == 200
    await leaks.mark()
    good, raw.act = raw.act, fault.act
    for body in (CHAT, LONG):
        for stream in (False, True):
            await check_seen(fault.seen, proxy, body | ({"stream": True} if stream else {}))
    await check_seen(fault.seen, proxy, LONG, "/v1/other")
    await leaks.check()
    raw.act = good
    await check_seen(FULL, proxy, CHAT)


@each_fault
async def test_where_a_summary_fails_the_digest_stands_in(fault, raw, upstream, start_proxy):
    """However the summary's own upstream fails, the request goes on; only what can be read is a summary."""
    proxy = await start_proxy(
        *SMALL,
        "defaults.overflow_strategy=summarize",
        "defaults.summary.upstream=notes",
        f"upstreams.notes.base_url={raw.url}",
        f"upstreams.notes.read_timeout_seconds={READ_SECONDS}",
        "upstreams.notes.api_key=sk-notes",
    )
    leaks = Leaks(proxy, raw)
    assert (await ask(proxy.url, CHAT))[0] == 200
    await leaks.mark()
    raw.act = fault.act
    status, _, whole = await ask(proxy.url, LONG)
    assert (status, whole) == (200, True)
    stands = str(upstream.chats[-1].json["messages"][1])
    assert (DIGEST in stands, TEXT in stands) == (not fault.summary, fault.summary)
    await leaks.check()


async def test_an_upstream_that_does_not_listen_is_told_of(raw, start_proxy):
    """The connection is refused; as soon as it listens again it is asked again."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        proxy = await start_proxy(*SMALL, *NO_MODEL, f"upstream.base_url={nobody}")
        for body in (CHAT, LONG, LONG | {"stream": True}):
            await check_seen(UNREACHABLE, proxy, body)


async def test_no_client_gets_an_answer_that_nobody_asked_for(raw, start_proxy):
    """What the upstream says on an idle connection is not taken for the answer to the next request."""
    said = asyncio.Event()

    async def answer_twice(connection: Connection) -> None:
        await connection.read_request()
        await connection.say(GOOD)
        await said.wait()
        await connection.say(OK + b"Content-Length: 5\r\n\r\nSTALE")
        await connection.stall()

    raw.act = answer_twice
    proxy = await start_proxy(*SMALL, f"upstream.base_url={raw.url}")
    await check_seen(FULL, proxy, CHAT)
    (kept,) = proxy.services.client.session.connector._conns.values()
    ((idle, _),) = kept
    said.set()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not idle.should_close:  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0)
    await check_seen(FULL, proxy, CHAT)
    assert raw.accepted == 2


async def test_a_client_of_http_1_0_can_tell_a_broken_answer(raw, start_proxy):
    """It knows no chunks: only a reset says that this was not the end."""
    raw.act = say(CHUNKED, b"5\r\ndata:\r\n")
    proxy = await start_proxy(*SMALL, f"upstream.base_url={raw.url}")
    with pytest.raises(ConnectionResetError):
        await ask_raw(proxy.url, b"GET /v1/x HTTP/1.0\r\n\r\n")


async def test_an_answer_to_half_of_a_large_body_reaches_the_client(raw, start_proxy):
    """The upstream refuses what it has not read; a client that goes on sending reads the refusal, or sees a reset."""
    raw.act = answer_early
    proxy = await start_proxy(*SMALL, "limits.max_body_bytes=100000", f"upstream.base_url={raw.url}")
    leaks = Leaks(proxy, raw)
    await leaks.mark()
    large = {"model": "m", "messages": [{"role": "user", "content": "x" * 4_000_000}]}
    for path in ("/v1/chat/completions", "/v1/files"):
        await check_seen(Passed(413, b"{}"), proxy, large, path)
    await leaks.check()


async def test_a_hundred_faults_leave_no_object_behind(raw, start_proxy):
    """Whatever a request held is gone with it."""
    proxy = await start_proxy(*SMALL, *NO_MODEL, f"upstream.base_url={raw.url}")
    leaks = Leaks(proxy, raw)
    await leaks.mark()
    before = count_kept()
    quick = [fault for fault in FAULTS if "silent" not in fault.name]
    for fault in quick * 3:
        raw.act = fault.act
        with suppress(aiohttp.ClientError):
            await ask(proxy.url, CHAT | {"stream": True})
    await leaks.check()
    assert count_kept() <= before
