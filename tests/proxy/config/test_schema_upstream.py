"""An upstream of the configuration: which environment applies to it, and which certificates."""

from pathlib import Path
from typing import Any

import pytest
from support.authority import Authority

from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.network import UnusableProxyError
from trimtab.proxy.config.schema import MIN_NAMED_CHARS, Config, UpstreamConfig, find_in_name, list_secrets

URL = "https://up.test/v1"
PROXIED = {"HTTPS_PROXY": "http://proxy.test:3128"}


def test_the_environment_counts_only_when_it_is_asked() -> None:
    """`check` and tests read a configuration without it. The original upstream object does not change."""
    upstream = UpstreamConfig(base_url=URL)
    routed = upstream.routed_by(PROXIED)

    assert upstream.route.proxy is None
    assert routed.route.proxy is not None
    assert (routed.route.proxy.url, routed.base_url) == ("http://proxy.test:3128", URL)
    assert routed.routed_by({}).route.proxy is None


@pytest.mark.parametrize(("setting", "url"), [("http://other.test:1", "http://other.test:1"), ("direct", None)])
def test_what_is_configured_wins_over_the_environment(setting: str, url: str | None) -> None:
    """The result is the same with and without an environment."""
    upstream = UpstreamConfig(base_url=URL, proxy=setting)
    for route in (upstream.route, upstream.routed_by(PROXIED).route):
        assert (route.proxy.url if route.proxy is not None else None) == url


def test_a_proxy_of_the_environment_that_cannot_be_used_is_refused() -> None:
    """Such a proxy is not skipped."""
    with pytest.raises(UnusableProxyError, match="HTTPS_PROXY"):
        UpstreamConfig(base_url=URL).routed_by({"HTTPS_PROXY": "socks5://proxy.test:1"})


def test_certificates_are_those_that_were_read(tmp_path: Path) -> None:
    """If a file changes or disappears, the certificates that were read stay in use."""
    upstream = UpstreamConfig(base_url=URL, ca_file=str(Authority(tmp_path).ca_file))
    Path(str(upstream.ca_file)).unlink()

    assert upstream.tls is not None
    assert upstream.routed_by(PROXIED).tls is upstream.tls
    assert UpstreamConfig(base_url=URL).tls is None


def test_authorities_of_the_environment_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    """OpenSSL skips such files silently."""
    upstream = UpstreamConfig(base_url=URL)
    fault = upstream.routed_by({"SSL_CERT_FILE": str(tmp_path / "missing.pem")}).trust_fault

    assert upstream.trust_fault is None
    assert fault is not None
    assert "missing.pem" in fault
    assert upstream.routed_by({"SSL_CERT_FILE": str(Authority(tmp_path).ca_file)}).trust_fault is None


@pytest.mark.parametrize(
    ("fields", "main", "named"),
    [
        ({}, "client", "none"),
        ({"api_key": "k"}, "key", "key"),
        ({"credential": "none"}, "none", "none"),
        ({"credential": "client"}, "client", "client"),
    ],
)
def test_whose_credential_an_upstream_is_shown(fields: dict[str, Any], main: str, named: str) -> None:
    """A client's credential reaches a named upstream only if the configuration says so. Copies behave the same."""
    upstream = UpstreamConfig(base_url=URL, **fields)
    config = Config(upstream=upstream, upstreams={"other": upstream})

    assert (upstream.shown, config.upstream.shown, config.upstreams["other"].shown) == (main, main, named)
    assert config.routed_by(PROXIED).upstreams["other"].shown == named
    assert config.model_copy().upstreams["other"].shown == named


@pytest.mark.parametrize(
    ("base_url", "setting", "strips"),
    [
        ("https://api.anthropic.com/v1", "auto", False),
        ("https://api.anthropic.com.example.org/v1", "auto", True),
        ("http://127.0.0.1:8000/v1", "auto", True),
        ("http://127.0.0.1:8000/v1", "off", False),
    ],
)
def test_nonces_are_stripped_for_servers_of_other_providers(base_url: str, setting: Any, *, strips: bool) -> None:
    """Anthropic's own servers know them, so they do no harm there."""
    assert UpstreamConfig(base_url=base_url, strip_nonces=setting).strips_nonces is strips


@pytest.mark.parametrize(
    ("base_url", "bares"),
    [
        ("http://10.0.0.1:8000/v1", True),
        ("http://gateway.internal/v1", True),
        ("http://localhost.example.com/v1", True),
        ("https://10.0.0.1/v1", False),
        ("http://127.0.0.9:8000/v1", False),
        ("http://[::1]/v1", False),
        ("http://localhost:1/v1", False),
    ],
)
def test_a_credential_is_bare_on_the_way_to_another_machine_without_tls(base_url: str, *, bares: bool) -> None:
    """It does not matter whose credential it is. If none is sent, nothing can be read."""
    for fields in ({}, {"api_key": "k"}):
        assert UpstreamConfig(base_url=base_url, **fields).bares_credential is bares
    assert not UpstreamConfig(base_url=base_url).named().bares_credential


def test_no_key_and_no_password_is_shown() -> None:
    """Printing an upstream does not show them either."""
    upstream = UpstreamConfig(base_url=URL, api_key="PLANTED", proxy="http://user:PLANTED@proxy.test:1")
    assert "PLANTED" not in f"{upstream!r} {upstream} {upstream.route!r} {upstream.route}"


@pytest.mark.parametrize(
    ("base_url", "credential", "needs"),
    [
        ("https://api.openai.com/v1", "auto", True),
        ("https://api.anthropic.com/v1", "client", True),
        ("https://api.openai.com/v1", "none", False),
        ("https://up.test/v1", "auto", False),
    ],
)
def test_known_providers_list_their_models_only_to_a_key(base_url: str, credential: Any, *, needs: bool) -> None:
    """If only clients have one, nobody else can ask."""
    assert UpstreamConfig(base_url=base_url, credential=credential).needs_clients_key is needs
    assert not UpstreamConfig(base_url=base_url, api_key="k").needs_clients_key


FILE = """
client_keys: {alice: sk-alice}
admin_token: admin
upstream: {api_key: sk-main, proxy: "http://u:proxy%2B1@p:1"}
upstreams: {other: {base_url: "http://127.0.0.1:1/v1", api_key: sk-other}}
store: "redis://:redis-1@r:6379/0"
"""


def test_every_credential_is_listed_and_those_of_clients_are_the_last():
    config = load_config(FILE, environment={"HTTPS_PROXY": "http://u:env-1@p:1"})
    listed = list_secrets(config)
    assert set(listed) == {
        "sk-alice", "admin", "sk-main", "sk-other", "proxy%2B1", "proxy+1", "redis-1", "env-1",
    }  # fmt: skip
    assert listed[-1] == "sk-alice"
    assert list_secrets(config) is listed


def test_an_empty_configuration_has_none():
    assert list_secrets(load_config("", environment={})) == ()


def test_a_credential_in_a_name_is_found_unless_it_is_short():
    config = load_config("upstream: {api_key: sk-main-0123456789}\nadmin_token: gpt", environment={})
    assert find_in_name(config, "m-sk-main-0123456789-x") == ("sk-main-0123456789",)
    assert find_in_name(config, "sk-main-0123456789" + "x" * 1000) == ("sk-main-0123456789",)
    assert find_in_name(config, "gpt-5") == ()
    for length, found in ((MIN_NAMED_CHARS, 1), (MIN_NAMED_CHARS - 1, 0)):
        config = load_config(f"upstream: {{api_key: {'k' * length}}}", environment={})
        assert len(find_in_name(config, f"m-{'k' * length}")) == found
