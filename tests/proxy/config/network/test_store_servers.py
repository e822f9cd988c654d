"""Which servers a store's URL names."""

import pytest

from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.load import load_config
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


@pytest.mark.parametrize(
    ("store", "words"),
    [
        ("redis+sentinel://secret@h:1", "must end with the sentinels' service name"),
        ("redis+sentinel://secret@h:1/main/x", "must end with the sentinels' service name"),
        ("redis+sentinel://secret@h:x/main", "must name each server as HOST or HOST:PORT"),
        ("redis+cluster://secret@h:1,/0", "must name each server as HOST or HOST:PORT"),
        ("redis+cluster://secret@h:99999", "must name each server as HOST or HOST:PORT"),
        ("redis+cluster://secret@[::1", "must name each server as HOST or HOST:PORT"),
        ("redis+cluster://secret@h:1/1", "must name no database but 0"),
        ("redis+cluster://secret@h:1?sentinel_password=secret", "a cluster has no sentinels"),
        ("redis+cluster://secret:@h:1", "must not have an empty password"),
        ("redis+sentinel://h/secret?sentinel_password=", "must not have an empty sentinel_password"),
        ("redis+ring://secret@h:1", "must begin with redis+sentinel:// or redis+cluster://"),
        ("redis://secret@a:1,b:2/0", "must name one server; for several servers write redis+sentinel://"),
    ],
)
def test_a_wrong_url_is_refused_by_check_with_what_it_must_be(store: str, words: str) -> None:
    """The message does not contain its password."""
    with pytest.raises(ConfigError) as caught:
        load_config(settings=[f"store={store}"], environment={})
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)


def test_the_servers_are_not_shown_with_their_password() -> None:
    """If the value is printed by mistake, it shows no password."""
    servers = read_servers("redis+sentinel://:planted@h/main?sentinel_password=planted")
    assert "planted" not in repr(servers)
