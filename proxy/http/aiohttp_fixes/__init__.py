"""Every workaround for aiohttp, for its client and its server.

Law: nobody gets a response to another request, and nobody waits for a response that can no longer come. Only this
package and server/connections.py use private parts of aiohttp.
"""

from trimtab.proxy.http.aiohttp_fixes.client import (
    Connector,
    Request,
    SendSettings,
    TunnelError,
    TunnelTimeoutError,
    follow,
    send_plainly,
)
from trimtab.proxy.http.aiohttp_fixes.server import (
    ChunkReader,
    Keeper,
    OwnRequest,
    PlainResponse,
    keep_header_bytes,
    loses_what_follows,
    reset_transport,
)

__all__ = [
    "ChunkReader",
    "Connector",
    "Keeper",
    "OwnRequest",
    "PlainResponse",
    "Request",
    "SendSettings",
    "TunnelError",
    "TunnelTimeoutError",
    "follow",
    "keep_header_bytes",
    "loses_what_follows",
    "reset_transport",
    "send_plainly",
]
