"""Fuzzes a proxy on real sockets, between a client and an upstream that both send arbitrary bytes.

Laws, whatever either side sends: no response is the proxy's own 500. The proxy's errors have the promised statuses.
Compaction never fails open. No exception is unhandled. No trailer goes upstream, and no request with a host name of
another machine does.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import cache

from fuzzing.choices import Choices
from fuzzing.http_bytes import PLANTED, RawRequest, write_pair, write_request, write_response
from fuzzing.targets import Target
from support.model_learning import ListLog
from yarl import URL

from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.config.load import load_config
from trimtab.proxy.server.app import Proxy, run_proxy

OWN_STATUSES = frozenset({400, 403, 404, 405, 431, 502, 503, 504})
ANSWER_SECONDS = 30.0
"""A test fails if a whole request has no response by then. On an idle machine a request takes less than a hundredth."""
PATIENCE_SECONDS = 0.1
"""After this time a client disconnects if its request may have no end, with or without a response."""
_LOGGERS = ("aiohttp.server", "aiohttp.internal", "aiohttp.client", "asyncio")
_SETTINGS = (
    "listen=127.0.0.1:0", "store=memory", "defaults.context_window=1600", "defaults.completion_reserve=200",
    "limits.drain_seconds=0", "defaults.max_tool_result_tokens=300", "defaults.summary.max_tokens=64",
    "defaults.summary.min_steps=2", "limits.max_body_bytes=60000", "defaults.on_exceeded=truncate",
    "defaults.summary.timeout_seconds=5", "prices={}",
)  # fmt: skip


class Live:
    """The proxy, the response of its upstream, and the faults found so far."""

    def __init__(self) -> None:
        self.proxy: Proxy
        self.log = ListLog()
        self.faults = _Faults()
        self.answer = b""
        self.answered = 0
        self.heads: list[bytes] = []

    async def exchange(self, data: bytes) -> None:
        """Send one request, and check its response."""
        half = len(data) // 3
        self.answer = write_response(Choices(data[:half]))
        request = write_request(Choices(data[half:]))
        await self.judge(request)

    async def exchange_pair(self, data: bytes) -> None:
        """Send two requests on one connection, and check what reaches the upstream."""
        pieces, is_strange = write_pair(Choices(data))
        self.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
        self.heads.clear()
        url = URL(self.proxy.url)
        reader, writer = await asyncio.open_connection(url.host, url.port)
        with suppress(ConnectionError, TimeoutError):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            async with asyncio.timeout(ANSWER_SECONDS):
                self.answered += (await reader.read()).count(b"HTTP/1.1 200")
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        assert not any(PLANTED in head for head in self.heads), "a trailer went upstream"
        followed = any(head.startswith(b"GET /v1/next") for head in self.heads)
        assert not (followed and is_strange), "a request with a foreign host was accepted"
        self.check()

    async def judge(self, request: RawRequest) -> None:
        """Send a request, and check the response and the logs."""
        received = await self._ask(request)
        if received:
            self.answered += 1
            _check_answer(received)
        self.check()

    def check(self) -> None:
        """Check for faults that only the logs show."""
        assert not self.faults.found, "; ".join(self.faults.found)
        events = {line["event"] for line in self.log.lines}
        assert "fail_open" not in events, "compaction failed open"
        self.log.lines.clear()

    async def _ask(self, request: RawRequest) -> bytes:
        """Everything received until the connection ends, or until the client disconnects."""
        url = URL(self.proxy.url)
        reader, writer = await asyncio.open_connection(url.host, url.port)
        received = b""
        with suppress(ConnectionError):
            writer.write(request.data)
            try:
                async with asyncio.timeout(ANSWER_SECONDS if request.is_whole else PATIENCE_SECONDS):
                    received = await reader.read()
            except TimeoutError:
                assert not request.is_whole, "no answer"
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        return received

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """The upstream: reads the head of a request, sends `answer`, and disconnects."""
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            self.heads.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(self.answer)
            await writer.drain()
        writer.close()


def _check_answer(received: bytes) -> None:
    """Check the status of the final response, after any informational (1xx) ones."""
    head, _, body = received.partition(b"\r\n\r\n")
    while head.split(b" ")[1].startswith(b"1") and body.startswith(b"HTTP/"):
        head, _, body = body.partition(b"\r\n\r\n")
    status = head.split(b" ")[1]
    assert status != b"500", "the proxy's own 500"
    if b'"type":"trimtab_error"' in body:
        assert int(status) in OWN_STATUSES, "a status that is not promised for the proxy's errors"


class _Faults(logging.Handler):
    """Exceptions that were not caught: the HTTP library and the event loop log them."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record, unless it reports a request that is not valid HTTP, which is answered with 400."""
        error = record.exc_info[1] if record.exc_info else None
        if getattr(error, "code", None) != 400:
            self.found.append(f"{record.getMessage()} ({type(error).__name__}: {error})")


@asynccontextmanager
async def run_live(compactors: Compactors | None = None) -> AsyncIterator[Live]:
    """Run the proxy and its upstream while the block runs."""
    live = Live()
    async with AsyncExitStack() as stack:
        for name in _LOGGERS:
            logging.getLogger(name).addHandler(live.faults)
            stack.callback(logging.getLogger(name).removeHandler, live.faults)
        server = await asyncio.start_server(live.serve, "127.0.0.1", 0)
        stack.callback(server.close)
        port = server.sockets[0].getsockname()[1]
        config = load_config(settings=(*_SETTINGS, f"upstream.base_url=http://127.0.0.1:{port}/v1"), environment={})
        live.proxy = await stack.enter_async_context(run_proxy(config, live.log, compactors or Compactors(live.log)))
        yield live


@cache
def _start() -> tuple[asyncio.Runner, AsyncExitStack, Live]:
    """A proxy that runs until the process ends."""
    runner, stack = asyncio.Runner(), AsyncExitStack()
    return runner, stack, runner.run(stack.enter_async_context(run_live()))


def fuzz_live(data: bytes) -> None:
    """Send one request."""
    runner, _, live = _start()
    runner.run(live.exchange(data))


def fuzz_pairs(data: bytes) -> None:
    """Send two requests on one connection."""
    runner, _, live = _start()
    runner.run(live.exchange_pair(data))


LIVE = {"live": Target(fuzz_live, 2), "pairs": Target(fuzz_pairs, 2)}
