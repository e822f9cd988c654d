"""Wiring: addresses."""

import pytest

from proxy.app import site_url, split_address


@pytest.mark.parametrize(
    ("address", "parts", "url"),
    [
        ("127.0.0.1:8790", ("127.0.0.1", 8790), "http://127.0.0.1:8790"),
        ("[::1]:80", ("::1", 80), "http://[::1]:80"),
        ("localhost:0", ("localhost", 0), "http://localhost:0"),
    ],
)
def test_addresses_are_read_and_written(address: str, parts: tuple[str, int], url: str) -> None:
    """HOST:PORT, with an IPv6 host in brackets."""
    assert split_address(address) == parts
    assert site_url(*parts) == url
