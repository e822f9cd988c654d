"""A connection that is accepted while its server closes is closed. Without this, asyncio leaves it open.

asyncio accepts a connection in one turn of the event loop and attaches it to its server in the next. If the server
closes in between, attaching fails, and nobody closes the connection. Whichever test runs when it is collected then
fails on a ResourceWarning. Source: https://github.com/python/cpython/issues/109564, open in Python 3.11 to 3.14.
"""

import socket
from asyncio.selector_events import BaseSelectorEventLoop
from typing import Any

import pytest


def close_late_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let asyncio's own event loops close such connections. uvloop closes them already."""
    accept = BaseSelectorEventLoop._accept_connection2  # type: ignore[attr-defined]

    async def accept_if_open(
        loop: Any, make: Any, connection: socket.socket, extra: Any, tls: Any = None, server: Any = None, *rest: Any
    ) -> None:
        if server is not None and not server.sockets:
            connection.close()
        else:
            await accept(loop, make, connection, extra, tls, server, *rest)

    monkeypatch.setattr(BaseSelectorEventLoop, "_accept_connection2", accept_if_open)
