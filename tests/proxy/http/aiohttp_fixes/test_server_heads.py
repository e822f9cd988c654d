"""The bytes of a head pass unchanged."""

from aiohttp import http_writer
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from trimtab.proxy.http.aiohttp_fixes.server import keep_header_bytes

BYTES = st.binary(max_size=30).map(lambda value: bytes(byte for byte in value if byte >= 0x20 and byte != 0x7F))


@given(value=BYTES)
def test_a_value_is_written_byte_for_byte(value: bytes) -> None:
    """UTF-8, Latin-1 or neither."""
    keep_header_bytes()
    headers = CIMultiDict({"X-A": value.decode("utf-8", "surrogateescape")})
    assert http_writer._serialize_headers("HTTP/1.1 200 OK", headers) == b"HTTP/1.1 200 OK\r\nX-A: %b\r\n\r\n" % value
