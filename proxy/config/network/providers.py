"""The host that a URL names, and which hosts belong to a provider whose requests differ from those of all others.

Law: the host decides, whatever the scheme and the port. An upstream may be reached by plain HTTP through something that
adds TLS.
"""

from functools import lru_cache
from typing import Literal
from urllib.parse import urlsplit

Provider = Literal["anthropic", "azure"]

_HOSTS: dict[Provider, tuple[str, ...]] = {
    "anthropic": ("anthropic.com", "claude.com"),
    "azure": ("openai.azure.com", "cognitiveservices.azure.com", "services.ai.azure.com"),
}
"""Each name stands for itself and for every host below it. Source: both providers' documentation."""

OPENAI_HOST = "api.openai.com"
"""It has no /v1/messages, and answers no question without a key. Source: its reference."""


@lru_cache(maxsize=64)
def read_host(url: str) -> str:
    """The host of a URL, in small letters and without the dot of the root; empty if it names none."""
    return (urlsplit(url).hostname or "").removesuffix(".")


@lru_cache(maxsize=64)
def find_provider(url: str) -> Provider | None:
    """The provider of a URL's host; None if it is no host of these."""
    name = f".{read_host(url)}"
    for provider, hosts in _HOSTS.items():
        if name.endswith(tuple(f".{known}" for known in hosts)):
            return provider
    return None
