"""The providers in the catalogue, and which of them an upstream is.

Law: servers on this machine or in a private network are no provider's.
"""

import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from trimtab.proxy.config.network import is_local, read_host

if TYPE_CHECKING:
    from genai_prices.types import Provider

MAX_NAME_CHARS = 256
"""A longer model name is not looked up. Chosen: four times the longest name in the catalogue, which has 61."""
KEPT_ANSWERS = 4096
"""Answers kept in memory. Chosen: more than the catalogue's 2330 models."""
_END = r"(?:(?<=[./])|(?![^/]))"
"""Where a pattern of the catalogue may end in a URL: not within a name, as `api.openai.com` would in a longer host. One
pattern ends with the dot before the last part of its hosts."""


def load_catalogue(base_urls: tuple[str, ...]) -> None:
    """Load the catalogue, unless all these upstreams are local. Takes 0.1 to 0.4 s the first time."""
    if not all(map(is_local, base_urls)):
        load_providers()


def is_ready(base_url: str) -> bool:
    return is_local(base_url) or load_providers.cache_info().currsize > 0


@lru_cache(64)
def find_host(base_url: str) -> "Provider | None":
    """The provider of an upstream's URL; None if the catalogue does not know it. Loads the catalogue if necessary.

    The host decides, and at some hosts the path, but neither the scheme nor the port.
    """
    url = f"https://{read_host(base_url)}{urlsplit(base_url).path}"  # the catalogue's patterns expect https
    return next((one for one in load_providers() if re.match(f"(?:{one.api_pattern}){_END}", url)), None)


@cache
def load_providers() -> "tuple[Provider, ...]":
    """All providers, from the data in the installed package. The package's own updates over the network stay off."""
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415 - slow, and useless for local servers

    return tuple(get_snapshot().providers)
