"""What single values of the configuration may be."""

import pytest

from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.values import own_host, site_url, split_address


@pytest.mark.parametrize(
    "store",
    [
        "memory",
        "sqlite",
        "sqlite:///a.db",
        "sqlite:////var/a.db",
        "redis://h:1/0",
        "rediss://u:p@h",
        "valkey://[::1]:1",
    ],
)
def test_a_store_is_taken_as_it_is_written(store: str) -> None:
    """All forms in the reference of the configuration are accepted."""
    assert load_config(settings=[f"store={store}"], environment={}).store == store


def test_a_tenant_is_authorization_or_a_header() -> None:
    """The name of a header is a token."""
    for tenant in ("authorization", "header:X-Team"):
        assert load_config(settings=[f"tenant={tenant}"], environment={}).tenant == tenant
    for tenant in ("header", "header:a b", "cookie:x"):
        with pytest.raises(ConfigError, match="must be authorization, or header:NAME"):
            load_config(settings=[f"tenant={tenant}"], environment={})


OTHER_URLS = ["", "/v1", "/v1/", "/models/v1", "/models", "/chat", "/my-models", "/openai/deployments/gpt-4o"]


@pytest.mark.parametrize("path", OTHER_URLS)
def test_other_addresses_are_taken(path: str) -> None:
    """A path may contain such a word elsewhere."""
    url = f"https://h{path}"
    assert load_config(settings=[f"upstream.base_url={url}"], environment={}).upstream.base_url == url.rstrip("/")


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


@pytest.mark.parametrize(
    ("listen", "own"), [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("127.0.0.1", "127.0.0.1"), ("box.lan", "box.lan")]
)
def test_a_server_on_all_addresses_is_reached_on_the_loopback(listen: str, own: str) -> None:
    """If it listens on another address, it is reached there."""
    assert own_host(listen) == own


@pytest.mark.parametrize(
    "setting",
    ["upstream.api_key=null", "store=redis://u@h:1", "upstream.proxy=http://u@h:1", "upstream.proxy=''"],
)
def test_none_at_all_may_be_said(setting: str) -> None:
    """A user may have no password, and an empty proxy means none."""
    assert load_config(settings=[setting], environment={}).upstream.api_key is None


@pytest.mark.parametrize("workers", ["1", "256", "auto"])
def test_a_number_of_workers_is_taken(workers: str) -> None:
    """So is the word that leaves the number to the machine."""
    settings = [f"workers={workers}", "limits.max_memory_bytes=137438953472"]
    assert str(load_config(settings=settings, environment={}).workers) == workers


@pytest.mark.parametrize("glob", ["[[]", "[]]", "[!]]x", "[!z-a]", "*" * 300, "?" * 256, "[a]" * 256, "a]", "[a-]"])
def test_other_globs_are_taken(glob: str) -> None:
    """They are odd, but each of them matches something."""
    load_config(
        f"models: [{{match: '{glob}'}}]\ndefaults: {{tools: {{'{glob}': {{exclude: ['{glob}']}}}}}}", environment={}
    )


def test_an_argument_may_be_longer_than_a_name() -> None:
    """A path is an example. Its brackets must be closed, too."""
    load_config(f"defaults: {{tools: {{a: {{exclude: ['{'x' * 300}']}}}}}}", environment={})
    with pytest.raises(ConfigError, match="write a literal"):
        load_config("defaults: {tools: {a: {exclude: ['*/[id/page']}}}", environment={})
