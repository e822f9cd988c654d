"""Any number of bodies stays within the memory limit: each is served, or refused with 503.

The program runs as a separate process. The system refuses it memory above `limits.max_memory_bytes` and an allowance
for connections.
"""

import asyncio
import gzip
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO

import aiohttp
import aiohttp.web
import orjson
from programs.serving import serving

MAX_MEMORY_BYTES = 512 * 1024 * 1024
BODY_BYTES = 3_000_000
REQUESTS, TENANTS = 50, 8
MANY = 200
"""Requests with which bodies of one kind would exceed the memory if it were not bound: with 100 they would not."""
CONNECTION_BYTES = 1024 * 1024
"""Memory of the libraries for a body that is not read yet, per connection. The documentation names it."""
SECONDS = 300.0
REFUSED = "503 overloaded"
CHAT = "/chat/completions"
ANSWER = orjson.dumps({"choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}}]})
SMALL = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]})


def _say(*texts: str) -> bytes:
    return orjson.dumps({"model": "m", "messages": [{"role": "user", "content": text} for text in texts]})


def _read_file(text: str) -> bytes:
    call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    steps = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    return orjson.dumps({"model": "m", "messages": [*steps, {"role": "tool", "tool_call_id": "c", "content": text}]})


KINDS = {
    "one long text": _say("the quick brown fox " * (BODY_BYTES // 20)),
    "one long text, and four bytes a character": _say(
        "\N{GRINNING FACE}" + "the quick brown fox " * (BODY_BYTES // 20)
    ),
    "many messages": _say(*(f"message {number}: " + "x" * 300 for number in range(BODY_BYTES // 350))),
    "a tool's result": _read_file("\n".join(f"line {number}: " + "nothing of note " * 20 for number in range(9000))),
    "no JSON": b'{"messages":[' + b" " * BODY_BYTES,
}
"""Bodies whose work takes less than eight times their length."""


@asynccontextmanager
async def _upstream() -> AsyncIterator[str]:
    """An upstream that reads each body, keeps nothing, and then answers."""

    async def serve(request: aiohttp.web.BaseRequest) -> aiohttp.web.Response:
        async for _ in request.content.iter_any():
            pass
        return aiohttp.web.Response(body=ANSWER, content_type="application/json")

    runner = aiohttp.web.ServerRunner(aiohttp.web.Server(serve))
    await runner.setup()
    try:
        await aiohttp.web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def _bounded_proxy(requests: int = REQUESTS) -> AsyncIterator[str]:
    """A process with a memory bound. At the end it must still run, and have logged no error except fail_open."""
    settings = [f"limits.max_memory_bytes={MAX_MEMORY_BYTES}", "limits.max_plan_seconds=0.5", "store=memory"]
    bound = f"ulimit -d {(MAX_MEMORY_BYTES + requests * CONNECTION_BYTES) // 1024}"
    async with _upstream() as base_url:
        arguments = [word for setting in (*settings, f"upstream.base_url={base_url}") for word in ("--set", setting)]
        async with serving(*arguments, shell=bound) as (process, url):
            reading = asyncio.ensure_future(process.stderr.read())  # the pipe must not fill up
            try:
                yield url
                assert process.returncode is None
                process.terminate()
                log = [orjson.loads(line) for line in (await asyncio.wait_for(reading, SECONDS)).splitlines()]
                assert await process.wait() == 0
                assert {line["event"] for line in log if line["level"] == "error"} <= {"fail_open"}
            finally:
                reading.cancel()
                await asyncio.wait({reading})


async def _post(session: aiohttp.ClientSession, url: str, body: bytes, tenant: str, **headers: str) -> str:
    """The outcome of a request: the response's status, or REFUSED."""
    headers |= {"Authorization": f"Bearer {tenant}", "Content-Type": "application/json"}
    try:
        async with session.post(url + CHAT, data=BytesIO(body), headers=headers) as answer:
            text = await answer.read()
    except aiohttp.ClientConnectionError:
        return REFUSED  # refused while the body was being sent: unread bytes make the system reset the connection
    if answer.status != 503:
        return str(answer.status)
    assert answer.headers["Retry-After"] == "1"
    assert orjson.loads(text)["error"]["code"] == "overloaded"
    return REFUSED


async def _flood(url: str, bodies: list[tuple[bytes, dict[str, str]]], requests: int = REQUESTS) -> Counter[str]:
    """Send requests of several tenants at once, then check that the process still serves requests."""
    timeout = aiohttp.ClientTimeout(SECONDS)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        async with asyncio.TaskGroup() as group:
            tasks = []
            for number in range(requests):
                body, headers = bodies[number % len(bodies)]
                posted = _post(session, url, body, f"tenant {number % TENANTS}", **headers)
                tasks.append(group.create_task(posted))
        told = Counter(task.result() for task in tasks)
        assert await _post(session, url, SMALL, "somebody") == "200"
        assert await _post(session, url, KINDS["one long text"], "somebody") == "200"  # all memory is free again
    return told


async def test_many_bodies_of_a_kind_at_once_do_not_exceed_the_memory() -> None:
    """Of the kind that becomes the most objects: each gets a response, perhaps 503, and the process keeps serving."""
    async with _bounded_proxy(MANY) as url:
        told = await _flood(url, [(KINDS["many messages"], {})], MANY)
    assert {"200"} <= set(told) <= {"200", REFUSED}


async def test_compressed_bodies_count_as_what_comes_out_of_them() -> None:
    """A body of a few kilobytes that decompresses to megabytes counts as large."""
    bombs = [(gzip.compress(body, 1), {"Content-Encoding": "gzip"}) for body in KINDS.values()]
    async with _bounded_proxy() as url:
        told = await _flood(url, bombs)
    assert set(told) == {"200", REFUSED}


async def test_bodies_of_all_kinds_mixed_with_small_ones() -> None:
    """Small requests are always served."""
    async with _bounded_proxy() as url, aiohttp.ClientSession() as session:
        flood = asyncio.ensure_future(_flood(url, [(body, {}) for body in KINDS.values()]))
        honest = []
        while not flood.done():
            honest.append(await _post(session, url, SMALL, "honest"))
        assert set(await flood) == {"200", REFUSED}
    assert set(honest) == {"200"}
