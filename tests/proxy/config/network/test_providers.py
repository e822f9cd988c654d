"""Hosts of providers."""

import pytest

from proxy.config.network.providers import Provider, find_provider, read_host


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
