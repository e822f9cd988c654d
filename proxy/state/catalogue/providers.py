"""The providers in the catalogue, and which of them an upstream is.

Law: servers on this machine or in a private network are no provider's.
"""

import ipaddress
import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from genai_prices.types import Provider

MAX_NAME_CHARS = 256
"""A longer model name is not looked up. Chosen: four times the longest name in the catalogue, which has 61."""
KEPT_ANSWERS = 4096
"""Answers kept in memory. Chosen: more than the catalogue's 2330 models."""
LOCAL_ENDS = (".localhost", ".local", ".internal", ".intranet", ".lan", ".home.arpa")
"""Ends of host names that no public server has. Sources: RFC 6761, RFC 6762, RFC 8375; ICANN reserves .internal."""


def load_catalogue(base_urls: tuple[str, ...]) -> None:
    """Load the catalogue, unless all these upstreams are local. Takes 0.1 to 0.4 s the first time."""
    if not all(map(is_local, base_urls)):
        load_providers()


def is_ready(base_url: str) -> bool:
    """Whether the catalogue can answer for this upstream without being loaded first."""
    return is_local(base_url) or load_providers.cache_info().currsize > 0


@lru_cache(64)
def find_host(base_url: str) -> "Provider | None":
    """The provider of an upstream's URL; None if the catalogue does not know it. Loads the catalogue if necessary."""
    return next((one for one in load_providers() if re.match(one.api_pattern, base_url)), None)


@cache
def load_providers() -> "tuple[Provider, ...]":
    """All providers, from the data in the installed package. The package's own updates over the network stay off."""
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415 - slow, and useless for local servers

    return tuple(get_snapshot().providers)


@lru_cache(64)
def is_local(base_url: str) -> bool:
    """Whether an upstream is on this machine or in a private network, judged by its host name or IP address."""
    host = urlsplit(base_url).hostname or ""
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return "." not in host.rstrip(".") or host.rstrip(".").endswith(LOCAL_ENDS)
