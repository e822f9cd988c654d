"""Every fault of an upstream, and what the client sees: one table, with each row tested in all forms.

Law: a fault before the response is an error in OpenAI's form. A fault inside the response aborts the connection. An odd
but complete response passes byte for byte. Afterwards the proxy holds no more than before.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import cycle

import aiohttp
import orjson
import pytest
from support.client import SMALL
from support.dialects.spoken.all_dialects import DIALECTS
from support.dialects.spoken.chat import CHAT
from support.leaks import Leaks, count_kept
from upstreams.faults import (
    CHUNKED,
    FAULTS,
    FULL,
    ask,
    check_seen,
    choose_faults,
    each_fault,
    endless,
    write_long,
    write_short,
)
from upstreams.faulty import GOOD, TEXT, Act, Connection, FaultyUpstream, run_faulty_upstream, say

NO_MODEL = ("defaults.overflow_strategy=prune",)
"""A cut without a model."""
DIGEST = "## Files and what was done to them"
QUESTION = b"Write the note and nothing else."
"""Part of each question for a summary."""


pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture
async def raw() -> AsyncIterator[FaultyUpstream]:
    async with run_faulty_upstream() as upstream:
        yield upstream


each_chosen_fault = pytest.mark.parametrize(
    ("dialect", "fault"), list(zip(cycle(DIALECTS[::-1]), choose_faults(), strict=False)), ids=lambda value: value.name
)


@each_fault
async def test_a_fault_of_the_upstream_is_told_or_passed_on(dialect, fault, raw, start_proxy):
    """With and without streaming, with and without an edit by a rule, and on a path that trimtab does not compact."""
    proxy = await start_proxy(
        *SMALL, *NO_MODEL, f"upstream.base_url={raw.url}", f"upstream.read_timeout_seconds={fault.read_seconds}"
    )
    leaks = Leaks(proxy, raw)
    assert (await ask(proxy.url, write_long(dialect), dialect.path))[0] == 200
    await leaks.mark()
    good, raw.act = raw.act, fault.act
    async with asyncio.TaskGroup() as forms:
        for write in (write_short, write_long):
            for more in ({}, {"stream": True}):
                forms.create_task(check_seen(fault.seen, proxy, write(dialect, **more), dialect))
        if dialect is CHAT:
            forms.create_task(check_seen(fault.seen, proxy, write_long(CHAT), path="/v1/other"))
    await leaks.check()
    raw.act = good
    await check_seen(FULL, proxy, write_short(dialect), dialect)


def fail_summaries(act: Act, sent: list[bytes]) -> Act:
    """Do `act` for each question for a summary. Answer other requests well, and add their bodies to `sent`."""

    async def answer(connection: Connection) -> None:
        while True:
            await connection.read_request()
            if QUESTION in connection.body:
                connection.unread()
                await act(connection)
                return
            sent.append(connection.body)
            await connection.say(GOOD)

    return answer


@each_chosen_fault
async def test_where_a_summary_in_the_dialect_fails_the_digest_stands_in(dialect, fault, raw, start_proxy):
    """The upstream of the request is asked in the request's dialect. Only a readable answer becomes a summary."""
    proxy = await start_proxy(
        *SMALL,
        "defaults.overflow_strategy=summarize",
        f"upstream.base_url={raw.url}",
        f"upstream.read_timeout_seconds={fault.read_seconds}",
    )
    leaks, sent = Leaks(proxy, raw), []
    assert (await ask(proxy.url, write_short(dialect), dialect.path))[0] == 200
    await leaks.mark()
    raw.act = fail_summaries(fault.act, sent)
    status, _, whole = await ask(proxy.url, write_long(dialect), dialect.path)
    assert (status, whole) == (200, True)
    stands = str(dialect.read(orjson.loads(sent[-1]))[1])
    assert (DIGEST in stands, TEXT in stands) == (not fault.summary, fault.summary)
    await leaks.check()


async def test_a_hundred_faults_leave_no_object_behind(raw, start_proxy):
    """All objects of a request are freed after it."""
    proxy = await start_proxy(*SMALL, *NO_MODEL, f"upstream.base_url={raw.url}")
    leaks = Leaks(proxy, raw)
    await leaks.mark()
    before = count_kept()
    quick = [fault for fault in FAULTS if "silent" not in fault.name]
    for fault, dialect in zip(quick * 3, cycle(DIALECTS), strict=False):
        raw.act = fault.act
        with suppress(aiohttp.ClientError):
            await ask(proxy.url, write_short(dialect, stream=True), dialect.path)
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
    assert (await ask(proxy.url, write_short(CHAT), CHAT.path))[0] == 200
    await leaks.mark()
    raw.act = endless(beginning, words)
    with suppress(TimeoutError):
        async with asyncio.timeout(0.2):
            await ask(proxy.url, write_short(CHAT, model="direct"), CHAT.path)
    assert (await ask(proxy.url, write_long(CHAT), CHAT.path))[0] == 200
    assert DIGEST in str(upstream.chats[-1].json["messages"][1])
    await leaks.check()


@each_chosen_fault
async def test_a_fault_of_the_second_attempt_is_told_or_passed_on(dialect, fault, raw, start_proxy):
    """The client sees the same as for a fault of the first attempt, which was refused for its length."""
    settings = (f"upstream.base_url={raw.url}", f"upstream.read_timeout_seconds={fault.read_seconds}")
    proxy = await start_proxy(
        "defaults.completion_reserve=1000", *NO_MODEL, "defaults.context_window=128000", *settings
    )
    leaks = Leaks(proxy, raw)
    assert (await ask(proxy.url, write_short(dialect), dialect.path))[0] == 200
    await leaks.mark()
    refusal = dialect.refusals[0]
    body = refusal.write(15_000, 8000)
    head = f"HTTP/1.1 {refusal.status} No\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    for number, more in enumerate(({}, {"stream": True})):
        accepted, acts = raw.accepted, iter((say(head.encode() + body), fault.act))
        raw.act = lambda connection, acts=acts: next(acts)(connection)
        # Each model is new, so its window is not learned yet.
        await check_seen(fault.seen, proxy, write_long(dialect, model=f"m{number}", **more), dialect)
        assert raw.accepted - accepted == 2
    await leaks.check()
