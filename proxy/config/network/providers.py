"""Which hosts belong to a provider whose requests differ from those of all others."""

from functools import lru_cache
from typing import Literal

Provider = Literal["anthropic", "azure"]

_HOSTS: dict[Provider, tuple[str, ...]] = {
    "anthropic": ("anthropic.com", "claude.com"),
    "azure": ("openai.azure.com", "cognitiveservices.azure.com", "services.ai.azure.com"),
}
"""Each name stands for itself and for every host below it. Source: both providers' documentation."""

OPENAI_HOST = "api.openai.com"
"""It has no /v1/messages, and answers no question without a key. Source: its reference."""


@lru_cache(maxsize=64)
def find_provider(host: str) -> Provider | None:
    """The provider of a host; None if it is no host of these."""
    name = f".{host.lower().removesuffix('.')}"
    for provider, hosts in _HOSTS.items():
        if name.endswith(tuple(f".{known}" for known in hosts)):
            return provider
    return None
