"""Any number of bodies stays within the memory limit: each is served, or refused with 503.

The program runs as a separate process. The system refuses it memory above `limits.max_memory_bytes` and an allowance
for connections.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO

import aiohttp
import aiohttp.web
import orjson
from programs.serving import serving

MAX_MEMORY_BYTES = 512 * 1024 * 1024
BODY_BYTES = 3_000_000
REQUESTS, TENANTS = 200, 8
"""With so many requests the bodies would exceed the memory if it were not bound: with 100 they would not."""
CONNECTION_BYTES = 1024 * 1024
"""Memory of the libraries for a body that is not read yet, per connection. The documentation names it."""
SECONDS = 300.0
REFUSED = "503 overloaded"
CHAT = "/chat/completions"
ANSWER = orjson.dumps({"choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}}]})
SMALL = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]})


def _say(*texts: str) -> bytes:
    return orjson.dumps({"model": "m", "messages": [{"role": "user", "content": text} for text in texts]})


ONE_TEXT = _say("the quick brown fox " * (BODY_BYTES // 20))
MANY_MESSAGES = _say(*(f"message {number}: " + "x" * 300 for number in range(BODY_BYTES // 350)))
"""Of the kinds of bodies, the one that becomes the most objects; tests/attack/test_memory.py measures the others."""


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
async def _bounded_proxy() -> AsyncIterator[str]:
    """A process with a memory bound. At the end it must still run, and have logged no error except fail_open."""
    settings = [f"limits.max_memory_bytes={MAX_MEMORY_BYTES}", "limits.max_plan_seconds=0.5", "store=memory"]
    bound = f"ulimit -d {(MAX_MEMORY_BYTES + REQUESTS * CONNECTION_BYTES) // 1024}"
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


async def _post(session: aiohttp.ClientSession, url: str, body: bytes, tenant: str) -> str:
    """The outcome of a request: the response's status, or REFUSED."""
    headers = {"Authorization": f"Bearer {tenant}", "Content-Type": "application/json"}
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


async def _flood(url: str) -> set[str]:
    """Send requests of several tenants at once, then check that the process still serves requests."""
    timeout = aiohttp.ClientTimeout(SECONDS)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        posted = (_post(session, url, MANY_MESSAGES, f"tenant {number % TENANTS}") for number in range(REQUESTS))
        told = set(await asyncio.gather(*posted))
        assert await _post(session, url, SMALL, "somebody") == "200"
        assert await _post(session, url, ONE_TEXT, "somebody") == "200"  # all memory is free again
    return told


async def test_many_bodies_at_once_do_not_exceed_the_memory() -> None:
    """Each gets a response, perhaps 503, and the process keeps serving. Small requests are always served."""
    async with _bounded_proxy() as url, aiohttp.ClientSession() as session:
        flood = asyncio.ensure_future(_flood(url))
        honest = set()
        while not flood.done():
            honest.add(await _post(session, url, SMALL, "honest"))
            await asyncio.wait({flood}, timeout=0.2)
        assert {"200"} <= await flood <= {"200", REFUSED}
    assert honest == {"200"}
