"""Every repair of aiohttp, of its client and of its server.

Law: nobody gets an answer that was not meant for them, and no answer is waited for that can no longer come. Nothing in
the program but this room and server/connections.py touches a private part of aiohttp.
"""

from proxy.http.aiohttp_fixes.client import (
    Connector,
    Request,
    TunnelError,
    TunnelTimeoutError,
    Way,
    send_plainly,
)
from proxy.http.aiohttp_fixes.following import follow
from proxy.http.aiohttp_fixes.server import (
    OwnRequest,
    PlainResponse,
    keep_header_bytes,
    loses_what_follows,
    reset_transport,
)

__all__ = [
    "Connector",
    "OwnRequest",
    "PlainResponse",
    "Request",
    "TunnelError",
    "TunnelTimeoutError",
    "Way",
    "follow",
    "keep_header_bytes",
    "loses_what_follows",
    "reset_transport",
    "send_plainly",
]
