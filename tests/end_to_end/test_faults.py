"""Every fault of an upstream, and what the client sees: one table, with each row tested in all forms.

Law: a fault before the response is an error in OpenAI's form. A fault inside the response aborts the connection. An odd
but complete response passes byte for byte. Afterwards the proxy holds no more than before.
"""

import asyncio
import socket
from contextlib import suppress

import aiohttp
import pytest
from support.client import CHAT, SMALL, ask_raw
from support.leaks import Leaks, count_kept
from upstreams.faults import (
    CHUNKED,
    FAULTS,
    FULL,
    LONG,
    PATIENCE_SECONDS,
    UNREACHABLE,
    Passed,
    answer_early,
    ask,
    check_seen,
    endless,
)
from upstreams.faulty import GOOD, OK, TEXT, Connection, say

NO_MODEL = ("defaults.overflow_strategy=prune",)
"""A cut without a model."""
DIGEST = "this is a list made from them"


pytestmark = pytest.mark.usefixtures("quiet")
each_fault = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)


@each_fault
async def test_a_fault_of_the_upstream_is_told_or_passed_on(fault, raw, start_proxy):
    """With and without streaming, with and without an edit by a rule, and on a path that trimtab does not compact."""
    proxy = await start_proxy(
        *SMALL, *NO_MODEL, f"upstream.base_url={raw.url}", f"upstream.read_timeout_seconds={fault.read_seconds}"
    )
    leaks = Leaks(proxy, raw)
    assert (await ask(proxy.url, LONG))[0] == 200
    await leaks.mark()
    good, raw.act = raw.act, fault.act
    async with asyncio.TaskGroup() as forms:
        for body in (CHAT, LONG):
            for more in ({}, {"stream": True}):
                forms.create_task(check_seen(fault.seen, proxy, body | more))
        forms.create_task(check_seen(fault.seen, proxy, LONG, "/v1/other"))
    await leaks.check()
    raw.act = good
    await check_seen(FULL, proxy, CHAT)


@each_fault
async def test_where_a_summary_fails_the_digest_stands_in(fault, raw, upstream, start_proxy):
    """The request is served, whatever the fault of the summary's upstream. Only a readable answer becomes a summary."""
    proxy = await start_proxy(
        *SMALL,
        "defaults.overflow_strategy=summarize",
        "defaults.summary.upstream=notes",
        f"upstreams.notes.base_url={raw.url}",
        f"upstreams.notes.read_timeout_seconds={fault.read_seconds}",
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
    """The connection is refused, for each form of a request."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        proxy = await start_proxy(*SMALL, *NO_MODEL, f"upstream.base_url={nobody}")
        for body in (CHAT, LONG, LONG | {"stream": True}):
            await check_seen(UNREACHABLE, proxy, body)


async def test_no_client_gets_an_answer_that_nobody_asked_for(raw, start_proxy):
    """Bytes that the upstream sends on an idle connection are not taken for the response to the next request."""
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
    (kept,) = proxy.services.client._session.connector._conns.values()
    ((idle, _),) = kept
    said.set()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not idle.should_close:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0)
    await check_seen(FULL, proxy, CHAT)
    assert raw.accepted == 2


async def test_a_client_of_http_1_0_can_tell_a_broken_answer(raw, start_proxy):
    """HTTP/1.0 has no chunks, so only a reset shows that the response was not complete."""
    raw.act = say(CHUNKED, b"5\r\ndata:\r\n")
    proxy = await start_proxy(*SMALL, f"upstream.base_url={raw.url}")
    with pytest.raises(ConnectionResetError):
        await ask_raw(proxy.url, b"GET /v1/x HTTP/1.0\r\n\r\n")


async def test_an_answer_to_half_of_a_large_body_reaches_the_client(raw, start_proxy):
    """The upstream refuses a body before it has read it. The client reads the refusal while it is still sending."""
    raw.act = answer_early
    proxy = await start_proxy(*SMALL, "limits.max_body_bytes=100000", f"upstream.base_url={raw.url}")
    leaks = Leaks(proxy, raw)
    await leaks.mark()
    large = {"model": "m", "messages": [{"role": "user", "content": "x" * 4_000_000}]}
    for path in ("/v1/chat/completions", "/v1/files"):
        await check_seen(Passed(403, b"{}"), proxy, large, path)
    await leaks.check()


async def test_a_hundred_faults_leave_no_object_behind(raw, start_proxy):
    """All objects of a request are freed after it."""
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


@pytest.mark.parametrize(
    ("beginning", "words"),
    [(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), (CHUNKED, b"6\r\nabcdef\r\n"), (CHUNKED, b"9\r\ndata: {}\n\r\n")],
    ids=["endless 100", "endless text", "endless events"],
)
async def test_what_never_ends_ends_with_who_reads_it(beginning, words, raw, upstream, start_proxy):
    """The response ends when the client leaves. A summary is bounded in bytes and in time; then the digest is used."""
    proxy = await start_proxy(
        *SMALL,
        "defaults.overflow_strategy=summarize",
        "defaults.summary.upstream=notes",
        "defaults.summary.timeout_seconds=0.5",
        f"upstreams.notes.base_url={raw.url}",
        "upstreams.notes.api_key=sk-notes",
        "models=[{match: direct, upstream: notes, context_window: 8000}]",
    )
    leaks = Leaks(proxy, raw)
    assert (await ask(proxy.url, CHAT))[0] == 200
    await leaks.mark()
    raw.act = endless(beginning, words)
    with suppress(TimeoutError):
        async with asyncio.timeout(0.2):
            await ask(proxy.url, CHAT | {"model": "direct"})
    assert (await ask(proxy.url, LONG))[0] == 200
    assert DIGEST in str(upstream.chats[-1].json["messages"][1])
    await leaks.check()
