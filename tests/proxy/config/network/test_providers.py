"""Hosts of providers."""

import pytest

from proxy.config.network.providers import Provider, find_provider


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
    assert find_provider(host) == provider
