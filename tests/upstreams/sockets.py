"""A server of bare sockets: what stands behind the upstreams and proxies that mind every byte."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

GONE = (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)
"""What reading or writing raises once the other side has hung up."""

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Talks on one connection, which is closed when it returns."""


@asynccontextmanager
async def listen(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """HOST:PORT, on a free port, for as long as the block runs; then every connection that stands is aborted."""
    talks: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        talks[task] = writer  # type: ignore[index]
        try:
            with suppress(*GONE, asyncio.CancelledError):  # the stream's own callback minds a task that is cancelled
                await serve(reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            del talks[task]  # type: ignore[arg-type]

    server = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=tls, limit=1 << 20)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task, writer in talks.items():
            writer.transport.abort()
            task.cancel()
        if talks:
            await asyncio.wait(list(talks))
        await server.wait_closed()
