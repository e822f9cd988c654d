"""The heads of requests and answers as bytes.

Law: the bytes of a head cross as they are.
"""

from aiohttp import http_writer
from multidict import CIMultiDict

_write_plainly = http_writer._serialize_headers  # noqa: SLF001 - the one place where requests and responses are written


def keep_header_bytes() -> None:
    """From now on, in this process, header bytes beyond UTF-8 cross unchanged; some clients send Latin-1 (Node does).

    aiohttp reads them as surrogate escapes and drops those when it writes.
    """
    http_writer._serialize_headers = _serialize  # noqa: SLF001 - see above


def _serialize(status_line: str, headers: CIMultiDict[str]) -> bytes:
    """The head of a request or response. Raises ValueError for control characters."""
    written = _write_plainly(status_line, headers)
    if status_line.isascii() and all(value.isascii() for value in headers.values()):
        return written
    lines = [status_line, *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode("utf-8", "surrogateescape")
