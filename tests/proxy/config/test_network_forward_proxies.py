"""Which proxy is between trimtab and an upstream."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.network import UnusableProxyError, find_route, is_exempt, read_proxy

HTTPS, HTTP = "https://api.test/v1", "http://api.test:8000/v1"
A, B, C = "http://a:1", "http://b:2", "http://c:3"


def _find(base_url: str, environment: dict[str, str], setting: str | None = None) -> tuple[str | None, str | None]:
    """The proxy's address, and the setting that decided."""
    route = find_route(base_url, setting, environment)
    return (None, route.told_by) if route.proxy is None else (route.proxy.url, route.proxy.told_by)


@pytest.mark.parametrize(
    ("base_url", "environment", "found"),
    [
        (HTTPS, {}, (None, None)),
        (HTTPS, {"HTTPS_PROXY": A, "HTTP_PROXY": B}, (A, "HTTPS_PROXY")),
        (HTTP, {"HTTPS_PROXY": A, "HTTP_PROXY": B}, (B, "HTTP_PROXY")),
        (HTTP, {"HTTPS_PROXY": A}, (None, None)),
        (HTTP, {"HTTPS_PROXY": A, "ALL_PROXY": C}, (C, "ALL_PROXY")),
        (HTTPS, {"https_proxy": A, "HTTPS_PROXY": B}, (A, "https_proxy")),
        (HTTPS, {"https_proxy": "", "HTTPS_PROXY": B}, (None, None)),
        (HTTPS, {"HTTPS_PROXY": " ", "all_proxy": C}, (C, "all_proxy")),
        (HTTPS, {"HTTPS_PROXY": "a:1"}, (A, "HTTPS_PROXY")),
        (HTTPS, {"HTTPS_PROXY": "HTTPS://a:1/"}, ("https://a:1", "HTTPS_PROXY")),
        (HTTPS, {"HTTPS_PROXY": A, "NO_PROXY": "api.test"}, (None, "NO_PROXY")),
        (HTTPS, {"HTTPS_PROXY": A, "NO_PROXY": "*", "no_proxy": "other"}, (A, "HTTPS_PROXY")),
        (HTTP, {"http_proxy": A, "no_proxy": "api.test:8000"}, (None, "no_proxy")),
        ("http://127.0.0.2:8000/v1", {"http_proxy": A}, (None, "it is on this machine")),
        ("http://[::1]/v1", {"http_proxy": "socks5://x"}, (None, "it is on this machine")),
        ("http://localhost:1", {"http_proxy": A, "no_proxy": "*"}, (None, "it is on this machine")),
        ("http://10.0.0.1:1", {"http_proxy": A}, (A, "http_proxy")),
    ],
)
def test_the_environment_names_the_proxy(base_url, environment, found) -> None:
    """The upstream's scheme decides; lower case counts first. NO_PROXY and addresses of this machine are exempt."""
    assert _find(base_url, environment) == found


def test_the_configuration_wins() -> None:
    """It overrides the whole environment, also for an upstream on this machine."""
    environment = {"HTTPS_PROXY": "socks5://x", "NO_PROXY": "*"}
    assert _find(HTTPS, environment, A) == (A, "upstream.proxy")
    assert _find("http://127.0.0.1:1", environment, A) == (A, "upstream.proxy")
    assert _find(HTTPS, environment, "direct") == (None, "upstream.proxy")


@pytest.mark.parametrize(
    ("host", "entry", "exempt"),
    [
        ("api.example.com", "example.com", True),
        ("api.example.com", ".example.com", True),
        ("api.example.com", "*.example.com", True),
        ("example.com", ".example.com", True),
        ("example.com", "EXAMPLE.com.", True),
        ("example.com.", "example.com", True),
        ("notexample.com", "example.com", False),
        ("example.com", "api.example.com", False),
        ("example.com", "example.com:443", True),
        ("example.com", "example.com:80", False),
        ("example.com", "*", True),
        ("example.com", "a, b example.com,c", True),
        ("example.com", ", ,.,*.", False),
        ("10.1.2.3", "10.0.0.0/8", True),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.3:443", True),
        ("10.1.2.3", "10.1.2", False),
        ("11.1.2.3", "10.0.0.0/8", False),
        ("fd00::1", "fd00::/8", True),
        ("fd00::1", "fd00::1", True),
        ("fd00::1", "[fd00::1]", True),
        ("fd00::1", "[fd00::1]:443", True),
        ("fd00::1", "[fd00::1]:80", False),
        ("fd00::1", "10.0.0.0/8", False),
        ("example.com", "10.0.0.0/8", False),
    ],
)
def test_no_proxy_names_hosts_suffixes_networks_and_ports(host, entry, exempt) -> None:
    """Whole labels are compared, without regard to case."""
    assert is_exempt(host, 443, entry) is exempt


@given(st.text(), st.integers(1, 65_535))
def test_any_no_proxy_is_read(text: str, port: int) -> None:
    """Every text has an answer; `*` always means yes."""
    assert isinstance(is_exempt("api.example.com", port, text), bool)
    assert is_exempt("api.example.com", port, f"{text},*")


def test_a_password_is_kept_apart() -> None:
    """It is decoded and sent only in the header for the proxy. No text of the address contains it."""
    proxy = read_proxy("http://me:P%40SS@a:1", "HTTPS_PROXY")

    assert proxy.authorization == "Basic bWU6UEBTUw=="
    assert str(proxy) == "the proxy a:1 (HTTPS_PROXY)"
    assert not any(word in repr(proxy) for word in ("P%40SS", "P@SS", "bWU6"))
    assert read_proxy("http://me@a:1", "x").authorization == "Basic bWU6"
    assert read_proxy(A, "x").authorization is None


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("socks5://PLANTED@a:1", "SOCKS proxies are not supported"),
        ("socks4://a:1", "SOCKS proxies are not supported"),
        ("socks5h://a:1", "SOCKS proxies are not supported"),
        ("ftp://a:1", "must be http://HOST:PORT"),
        ("http://", "must be http://HOST:PORT"),
        ("http://a:99999", "must be http://HOST:PORT"),
        ("http://a:0", "must be http://HOST:PORT"),
        ("http://me:PLANTED a:1", "must be http://HOST:PORT"),
        ("http://me:PLAN/TED@a:1", "in a password, write"),
        ("http://me:PLAN#TED@a:1", "in a password, write"),
        ("http://me:PLAN?TED@a:1", "in a password, write"),
        ("http://me:1/PLANTED@a:1", "in a password, write"),
        ("http://me:PLÄNTED@a:1", "percent-encode characters"),
        ("http://a:1/path", "must end with the port"),
        ("PLANTED", "must be http://HOST:PORT"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused(address: str, words: str) -> None:
    """The message says what to write, and does not repeat what was written."""
    with pytest.raises(UnusableProxyError, match=words) as caught:
        read_proxy(address, "x")
    assert "PLANTED" not in str(caught.value)


def test_a_proxy_of_the_environment_that_cannot_be_used_is_named() -> None:
    """The message names its variable if an upstream would use it. Upstreams on this machine are not affected."""
    environment = {"ALL_PROXY": "socks5://me:PLANTED@a:1"}
    with pytest.raises(ConfigError, match=r"\AALL_PROXY: SOCKS proxies are not supported; ") as caught:
        load_config(environment=environment)
    assert "PLANTED" not in str(caught.value)
    assert load_config(environment=environment, is_online=False).upstream.route.proxy is None
    load_config("upstream: {proxy: direct}", environment=environment)
    load_config("upstream: {base_url: http://127.0.0.1:1}", environment=environment)
    with pytest.raises(ConfigError, match="ALL_PROXY"):
        load_config("upstream: {proxy: direct}\nupstreams: {x: {base_url: https://x.test}}", environment=environment)


def test_each_upstream_has_its_own() -> None:
    """Named upstreams have theirs, too."""
    text = f"upstream: {{proxy: '{A}'}}\nupstreams: {{x: {{base_url: '{HTTPS}'}}, y: {{proxy: direct}}}}"
    config = load_config(text, environment={"HTTPS_PROXY": B})

    routes = [config.upstream.route, config.upstreams["x"].route, config.upstreams["y"].route]
    assert [str(route) for route in routes] == [
        "through the proxy a:1 (upstream.proxy)",
        "through the proxy b:2 (HTTPS_PROXY)",
        "directly (upstream.proxy)",
    ]
