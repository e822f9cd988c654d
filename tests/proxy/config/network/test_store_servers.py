"""Which servers a store's URL names."""

import pytest

from trimtab.proxy.config.network.store_servers import StoreServers, read_servers


@pytest.mark.parametrize(
    ("store", "servers"),
    [
        ("valkeys://u:p@h:1/2?ssl_cert_reqs=none", StoreServers("server", "rediss://u:p@h:1/2?ssl_cert_reqs=none")),
        (
            "redis+sentinel://u:p@a:1,b/main/3?socket_timeout=2&sentinel_username=x&sentinel_password=y%2F",
            StoreServers(
                "sentinel",
                "redis://u:p@a:1/3?socket_timeout=2",
                (("a", 1), ("b", 26379)),
                "main",
                (("username", "x"), ("password", "y/")),
            ),
        ),
        ("valkey+sentinel://[::1]:1/a%20b", StoreServers("sentinel", "redis://[::1]:1/0", (("::1", 1),), "a b")),
        (
            "valkeys+cluster://:p%40@a,[::2]:2/",
            StoreServers("cluster", "rediss://:p%40@a:6379/0", (("a", 6379), ("::2", 2))),
        ),
    ],
)
def test_a_url_says_who_is_asked_and_how(store: str, servers: StoreServers) -> None:
    """Sentinels have a port and credentials of their own."""
    assert read_servers(store) == servers


def test_the_servers_are_not_shown_with_their_password() -> None:
    """If the value is printed by mistake, it shows no password."""
    servers = read_servers("redis+sentinel://:planted@h/main?sentinel_password=planted")
    assert "planted" not in repr(servers)
