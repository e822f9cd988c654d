"""A server on plain sockets: the base of the upstreams and proxies that control every byte."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

GONE = (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)
"""Errors of reading or writing after the other side has disconnected."""

TURNS_TO_BEGIN = 3
"""Turns of the event loop from accepting a connection to serving it, without TLS."""

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Serves one connection, which is closed when the function returns."""


@asynccontextmanager
async def listen(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Serve on a free port while the block runs; then abort every open connection. Yields HOST:PORT."""
    talks: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(*GONE, asyncio.CancelledError):
                await serve(reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Not left to asyncio: a connection whose task has not started when the server ends would stay open.
        task = asyncio.ensure_future(talk(reader, writer))
        talks[task] = writer
        task.add_done_callback(talks.pop)

    server = await asyncio.start_server(begin, "127.0.0.1", 0, ssl=tls, limit=1 << 20)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for _ in range(TURNS_TO_BEGIN):
            await asyncio.sleep(0)
        for task, writer in talks.items():
            with suppress(AttributeError):  # before Python 3.11.5, aborting TLS that has ended
                writer.transport.abort()
            task.cancel()
        if talks:
            await asyncio.wait(list(talks))
