"""A server on plain sockets: the base of the upstreams and proxies that control every byte."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

GONE = (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)
"""Errors of reading or writing after the other side has disconnected."""

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Serves one connection, which is closed when the function returns."""


@asynccontextmanager
async def listen(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Serve on a free port while the block runs; then abort every open connection. Yields HOST:PORT."""
    talks: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        talks[task] = writer  # type: ignore[index]
        try:
            with suppress(*GONE, asyncio.CancelledError):  # asyncio's stream callback complains about a cancelled task
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
