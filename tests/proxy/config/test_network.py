"""The certificate and key files that the configuration names."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st
from support.authority import Authority, write_key
from support.config import find_problems
from support.golden import check_golden, read_tables

from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.network import (
    StoreServers,
    UnusableProxyError,
    find_passwords,
    find_provider,
    find_route,
    is_exempt,
    is_local,
    list_passwords,
    read_host,
    read_proxy,
    read_servers,
)


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The `upstream` section with the names of files, all of which exist."""
    monkeypatch.chdir(tmp_path)
    authority = Authority(tmp_path)
    certificate, key = authority.issue("me")
    other, other_key = authority.issue("other")
    write_key(tmp_path / "a.key", ec.generate_private_key(ec.SECP256R1()), b"PLANTED")
    (tmp_path / "damaged.pem").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    (tmp_path / "text").write_text("hello PLANTED")
    (tmp_path / "both.pem").write_bytes(certificate.read_bytes() + key.read_bytes())
    files = {
        "ca": authority.ca_file, "cert": certificate, "key": key, "other": other, "other_key": other_key,
        "locked": tmp_path / "a.key", "damaged": tmp_path / "damaged.pem", "text": tmp_path / "text",
        "both": tmp_path / "both.pem", "folder": tmp_path, "missing": tmp_path / "missing",
    }  # fmt: skip

    def section(**keys: str) -> str:
        return "upstream:\n" + "".join(f"  {key}: {files[name].relative_to(tmp_path)}\n" for key, name in keys.items())

    return section


WRONG = (
    {"ca_file": "missing"}, {"ca_file": "folder"}, {"ca_file": "text"}, {"ca_file": "key"}, {"ca_file": "damaged"},
    {"client_cert_file": "key"}, {"client_cert_file": "cert"}, {"client_key_file": "key"},
    {"client_cert_file": "cert", "client_key_file": "other_key"},
    {"client_cert_file": "cert", "client_key_file": "locked"}, {"client_cert_file": "cert", "client_key_file": "text"},
    {"client_cert_file": "damaged", "client_key_file": "key"},
)  # fmt: skip


def test_a_file_that_cannot_be_used_is_a_mistake_of_the_configuration(write) -> None:
    """The message has the key's name and line, like any other. Nobody is asked for a passphrase."""
    told = {str(keys): "\n".join(find_problems(write(**keys))) for keys in WRONG}
    assert "PLANTED" not in "".join(told.values())
    check_golden("commands/certificates", told)


def test_files_that_fit_are_read_at_once(write) -> None:
    """Later changes of the files do not change the TLS settings. Without files, the system's own are used."""
    pair = {"client_cert_file": "cert", "client_key_file": "key"}
    for keys in ({"ca_file": "ca"}, pair, {"client_cert_file": "both"}, {"ca_file": "ca", **pair}):
        assert load_config(write(**keys), environment={}).upstream.tls is not None
    assert load_config("", environment={}).upstream.tls is None


@pytest.mark.parametrize("file", ["~nobody-of-this-name/x", '"a\\0b"', '"\\ud800"'])
def test_a_name_that_no_file_can_have_is_told(file: str) -> None:
    """The message does not depend on the system's own error."""
    with pytest.raises(ConfigError, match=r"\Aupstream\.ca_file \(line 1\): .*cannot be read: \w"):
        load_config(f"upstream: {{ca_file: {file}}}", environment={})


# Which proxy is between trimtab and an upstream.

HTTPS, HTTP = "https://api.test/v1", "http://api.test:8000/v1"
A, B, C = "http://a:1", "http://b:2", "http://c:3"


def _find(base_url: str, environment: dict[str, str], setting: str | None = None) -> tuple[str | None, str | None]:
    """The proxy's address, and the setting that decided."""
    route = find_route(base_url, setting, environment)
    return (None, route.told_by) if route.proxy is None else (route.proxy.url, route.proxy.told_by)


FUNCTIONS: dict[str, Callable[..., object]] = {
    "find_route": lambda *given: list(_find(*given)),
    "is_exempt": lambda host, entry: is_exempt(host, 443, entry),
    "find_passwords": lambda url: sorted(set(find_passwords(url))),
    **{function.__name__: function for function in (find_provider, read_host, is_local)},
}


@pytest.mark.parametrize("law", read_tables("network"), ids=lambda law: law["function"])
def test_each_law_of_the_table_holds(law: dict[str, Any]) -> None:
    for *arguments, answer in law["cases"]:
        if law["function"] == "read_proxy":
            with pytest.raises(UnusableProxyError, match=answer) as caught:
                read_proxy(*arguments, "x")
            assert "PLANTED" not in str(caught.value)
            continue
        assert FUNCTIONS[law["function"]](*arguments) == answer, arguments


def test_the_configuration_wins() -> None:
    """It overrides the whole environment, also for an upstream on this machine."""
    environment = {"HTTPS_PROXY": "socks5://x", "NO_PROXY": "*"}
    assert _find(HTTPS, environment, A) == (A, "upstream.proxy")
    assert _find("http://127.0.0.1:1", environment, A) == (A, "upstream.proxy")
    assert _find(HTTPS, environment, "direct") == (None, "upstream.proxy")


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


# Hosts of providers.


def test_passwords_of_proxies_and_headers_for_the_collector_are_found_in_the_environment():
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "all_proxy"):
        assert list_passwords({name: "http://u:s3cret@proxy:3128"}) == ("s3cret",)
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
