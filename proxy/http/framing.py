"""Where a request ends, and what may stand in an answer's head.

Law: what another server might read as two requests, or as another one, goes no further. The parser refuses nearly all
of it; here is what it lets pass.
"""

from aiohttp import HttpVersion10, HttpVersion11, web

from proxy.http.errors import BadFramingError

MAX_CONTENT_LENGTH = 2**63 - 1
"""More is no number of bytes to most servers, and to some no number at all."""


def check_framing(request: web.BaseRequest) -> None:
    """Raises BadFramingError where it is not certain where a request ends."""
    codings = request.headers.getall("Transfer-Encoding", [])
    if request.version < HttpVersion10:
        message = "a request must say its version of HTTP"
    elif codings and request.version < HttpVersion11:
        message = "a request of HTTP/1.0 cannot be chunked"
    elif codings and [coding.strip().lower() for coding in codings] != ["chunked"]:
        message = "Transfer-Encoding must be chunked, or not be there"
    elif int(request.headers.get("Content-Length", "0")) > MAX_CONTENT_LENGTH:
        message = "Content-Length is too large"
    else:
        return
    raise BadFramingError(message)
