"""Hosts of providers."""

import pytest

from trimtab.proxy.config.network import (
    Provider,
    StoreServers,
    find_passwords,
    find_provider,
    list_passwords,
    read_host,
    read_servers,
)


@pytest.mark.parametrize(
    ("host", "provider"),
    [
        ("api.anthropic.com", "anthropic"),
        ("API.Anthropic.com.", "anthropic"),
        ("name.openai.azure.com", "azure"),
        ("name.cognitiveservices.azure.com", "azure"),
        ("name.services.ai.azure.com", "azure"),
        ("api.openai.com", None),
        ("api.anthropic.com.example.org", None),
        ("notanthropic.com", None),
        ("azure.com", None),
        ("127.0.0.1", None),
        ("", None),
    ],
)
def test_a_host_belongs_to_the_provider_that_owns_its_name(host: str, provider: Provider | None) -> None:
    """A name that only contains the provider's name belongs to somebody else."""
    assert find_provider(f"https://{host}/v1") == provider


@pytest.mark.parametrize(
    "url",
    [
        "https://h.example",
        "http://h.example/v1",
        "http://H.Example:8080",
        "https://h.example./v1",
        "https://u:p@h.example:1",
    ],
)
def test_a_host_has_one_name_whatever_is_around_it(url: str) -> None:
    """The scheme and the port do not count: plain HTTP is common behind a proxy that adds TLS."""
    assert read_host(url) == "h.example"
    assert read_host("/v1") == ""


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("http://user:pa%2Fss@proxy:3128", {"pa%2Fss", "pa/ss"}),
        ("http://token@proxy:3128", {"token"}),
        ("user:pass@proxy:3128", {"pass"}),
        ("http://proxy:3128", set()),
        ("direct", set()),
        ("", set()),
        ("redis://:s3cret@redis:6379/0", {"s3cret"}),
        ("redis://redis:6379/0?username=me&password=s3cret", {"s3cret"}),
        ("redis+sentinel://u:p1@a:1,b:2/svc/0?sentinel_password=p2", {"p1", "p2"}),
        ("sqlite:////var/lib/x.sqlite3", set()),
        ("http://[broken:1", set()),
    ],
)
def test_the_credentials_of_a_url_are_found(url, found):
    assert set(find_passwords(url)) == found


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "all_proxy"])
def test_the_password_of_a_proxy_in_the_environment_is_found(name):
    assert list_passwords({name: "http://u:s3cret@proxy:3128"}) == ("s3cret",)


def test_the_headers_for_the_collector_are_found():
    environment = {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20sk-1,x-key=sk-2"}
    assert set(list_passwords(environment)) == {"Bearer sk-1", "sk-1", "sk-2"}


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
