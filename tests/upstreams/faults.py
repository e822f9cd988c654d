"""The faults of an upstream, and what a client sees of each: the matrix of test_faults.py."""

import io
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import aiohttp
import orjson
import pytest
from support.dialects.spoken.all_dialects import DIALECTS
from support.dialects.spoken.chat import CHAT
from support.dialects.spoken.dialect import Dialect
from support.sessions import make_session
from upstreams.faulty import GOOD, OK, Act, Connection, good_answer, reset, say, stall, zip_answer

from trimtab.proxy.server.app import Proxy

PATIENCE_SECONDS = 30.0
"""The client's timeout. A test fails if a response takes longer."""
_SESSION = make_session(70, result_words=120)["messages"][:-1]
_HELLO = [{"role": "user", "content": "hi"}]


@dataclass(frozen=True, slots=True)
class Refused:
    """An error response of trimtab itself."""

    status: int
    code: str


@dataclass(frozen=True, slots=True)
class Passed:
    """The upstream's response, byte for byte and complete."""

    status: int = 200
    body: bytes = b"BODY"


INVALID = Refused(502, "upstream_invalid")
UNREACHABLE = Refused(502, "upstream_unreachable")
TIMED_OUT = Refused(504, "upstream_timeout")
CUT = "the connection is aborted"
Seen = Refused | Passed | str


@dataclass(frozen=True, slots=True)
class Fault:
    """What the upstream does, and what the client sees.

    summary: whether a summary can be read from the response.
    """

    name: str
    act: Act
    seen: Seen
    summary: bool = False

    @property
    def read_seconds(self) -> float:
        """The proxy's read timeout: short if the upstream stays silent, practically unlimited otherwise."""
        return 0.25 if "silent" in self.name else 600.0


async def reset_in_the_body(connection: Connection) -> None:
    await connection.read_head()
    await connection.reader.readexactly(10)
    connection.reset()


async def close_at_once(connection: Connection) -> None:
    """Do nothing: the connection is closed when this function returns."""


async def answer_early(connection: Connection) -> None:
    """Answer after the headers, and never read the body."""
    await connection.read_head()
    await connection.say(b"HTTP/1.1 403 No\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}")
    await connection.stall()


async def drip(connection: Connection) -> None:
    """Send one byte at a time."""
    await connection.read_request()
    for byte in connection.spell(GOOD):
        await connection.say(bytes([byte]))


LAST = GOOD.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
"""A good response that announces the end of the connection. Without it, the proxy might send the next request on it."""


def endless(beginning: bytes, words: bytes) -> Act:
    """Send the same bytes until the other side disconnects."""

    async def act(connection: Connection) -> None:
        await connection.read_request()
        await connection.say(beginning)
        while True:
            await connection.say(words * 100)

    return act


CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
FULL = Passed()
GARBLED = b'data: {nonsense\n\nevent\r\ndata\n: \xff\xfe\x00\n\ndata: [1,2]\n\ndata: {"choices":7}\n\n'
NO_JSON = b"<html>It works!</html>"
ABSURD = b'{"choices":[],"usage":{"prompt_tokens":-1e400,"completion_tokens":99999999999999999999}}'

FAULTS = (
    # before the response
    Fault("closes at once", close_at_once, UNREACHABLE),
    Fault("resets in the body", reset_in_the_body, UNREACHABLE),
    Fault("resets after the body", say(then=reset), UNREACHABLE),
    Fault("silent", stall, TIMED_OUT),
    Fault("silent after the request", say(then=stall), TIMED_OUT),
    # not HTTP
    Fault("garbage", say(b"\x00\xff not HTTP at all\r\n\r\n"), UNREACHABLE),
    Fault("status of letters", say(b"HTTP/1.1 abc OK\r\n\r\n"), UNREACHABLE),
    Fault("endless header", endless(b"HTTP/1.1 200 OK\r\nX-Long: ", b"x" * 100), INVALID),
    Fault("100000 headers", say(b"HTTP/1.1 200 OK\r\n" + b"X-A: 1\r\n" * 100_000 + b"\r\n"), INVALID),
    Fault("two lengths", say(OK + b"Content-Length: 2\r\nContent-Length: 7\r\n\r\nhi"), UNREACHABLE),
    Fault("switches protocols", say(b"HTTP/1.1 101 X\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nhi"), UNREACHABLE),
    # within the response
    Fault("silent after the answer's headers", say(CHUNKED, then=stall), CUT),
    Fault("resets in the answer", say(CHUNKED, b"5\r\ndata:\r\n", then=reset), CUT),
    Fault("closes before the last chunk", say(CHUNKED, b"5\r\ndata:\r\n"), CUT),
    Fault("broken chunks", say(CHUNKED, b"5\r\ndata:\r\n", b"zz\r\nwhat\r\n"), CUT),
    Fault("length too long", say(OK + b"Content-Length: 99999\r\n\r\n", b"BODY"), CUT),
    # unusual, but complete
    Fault("more than its length", say(OK + b"Content-Length: 2\r\n\r\n{}BODY"), Passed(body=b"{}")),
    Fault("more than its length, later", say(GOOD, GOOD), FULL, summary=True),
    Fault("bytes beyond ASCII", say(LAST.replace(b"OK\r\n", b"\xff\xfe\r\nX-A: \xff\xfc\r\n", 1)), FULL, summary=True),
    Fault("a lone CR", say(GOOD.replace(b"OK\r\n", b"OK\r\nX-A: a\rb\r\n", 1)), UNREACHABLE),
    Fault("a folded header", say(LAST.replace(b"OK\r\n", b"OK\r\nX-A: a\r\n b\r\n", 1)), FULL, summary=True),
    Fault("status 999", say(b"HTTP/1.1 999 Odd\r\nContent-Length: 2\r\n\r\nhi"), Passed(999, b"hi")),
    Fault("no length", say(OK + b"Connection: close\r\n\r\nBODY"), FULL, summary=True),
    Fault("100 unasked", say(b"HTTP/1.1 100 Continue\r\n\r\n", LAST), FULL, summary=True),
    Fault("drips", drip, FULL, summary=True),
    Fault("answers early", answer_early, Passed(403, b"{}")),
    Fault("gzip unasked", say(OK + b"Content-Encoding: gzip\r\n\r\nZIPPED"), Passed(body=b"ZIPPED"), summary=True),
    Fault("garbled events", say(OK + b"\r\n" + GARBLED), Passed(body=GARBLED)),
    Fault("no JSON", say(OK + b"\r\n" + NO_JSON), Passed(body=NO_JSON)),
    Fault("absurd usage", say(OK + b"\r\n" + ABSURD), Passed(body=ABSURD)),
    Fault("nothing", say(OK + b"Content-Length: 0\r\n\r\n"), Passed(body=b"")),
    Fault("500", say(b"HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\nno"), Passed(500, b"no")),
    Fault("429", say(b"HTTP/1.1 429 Slow\r\nRetry-After: 1\r\nContent-Length: 2\r\n\r\nno"), Passed(429, b"no")),
)  # fmt: skip


def write_short(dialect: Dialect, **members: Any) -> dict[str, Any]:
    """A request that no rule touches."""
    return dialect.write(_HELLO, **members)


def write_long(dialect: Dialect, **members: Any) -> dict[str, Any]:
    """A request several times larger than the window."""
    return dialect.write(_SESSION, **members)


def choose_faults() -> list[Fault]:
    """The faults that may differ between dialects.

    The first of each error of trimtab's own, because a codec writes it. Each unusual but complete response, because a
    codec reads it.
    """
    first = {fault.seen: fault for fault in reversed(FAULTS)}
    return [fault for fault in FAULTS if isinstance(fault.seen, Passed) or first[fault.seen] is fault]


each_fault = pytest.mark.parametrize(
    ("dialect", "fault"), list(zip(cycle(DIALECTS), FAULTS, strict=False)), ids=lambda value: value.name
)
"""Each fault in one of the dialects."""


async def ask(url: str, body: dict[str, Any], path: str) -> tuple[int, bytes, bool]:
    """Send a request on a new connection. Returns the status, the received body, and whether the body was complete."""
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


async def check_seen(
    seen: Seen, proxy: Proxy, body: dict[str, Any], dialect: Dialect = CHAT, path: str | None = None
) -> None:
    """Send a request, and check that the client sees the expected result. `path`: instead of the dialect's own."""
    status, received, whole = await ask(proxy.url, body, path or dialect.path)
    if isinstance(seen, Refused):
        error = orjson.loads(received)["error"]
        assert (status, error["code"], whole) == (seen.status, seen.code, True)
        assert (error["type"], error.get("param")) == (dialect.own_type(seen.code), None)
    elif isinstance(seen, Passed):
        good = good_answer(dialect, is_stream="stream" in body)
        expected = seen.body.replace(b"BODY", good).replace(b"ZIPPED", zip_answer(good))
        assert (status, received, whole) == (seen.status, expected, True)
    else:
        assert (status, whole) == (200, False)
