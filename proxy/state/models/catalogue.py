"""What context windows hosted models have, from the package genai-prices: for upstreams that do not tell theirs.

Law: no network. The same question has the same answer for as long as the process lives; nothing of it is kept in the
store. Servers on this machine or in a private network may call a model what they like: of them nothing is said here.
"""

import ipaddress
import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from genai_prices.types import Provider

MAX_NAME_CHARS = 256
MIN_WINDOW_TOKENS = 1024
KEPT_ANSWERS = 4096
LOCAL_ENDS = (".localhost", ".local", ".internal", ".intranet", ".lan", ".home.arpa")
"""Ends of names that no public server has. Sources: RFC 6761, RFC 6762, RFC 8375, ICANN's reservation of .internal."""


def load_catalogue(base_urls: tuple[str, ...]) -> None:
    """Have the catalogue at hand for these upstreams, if it says anything of any of them. Takes 0.1 s or so, once."""
    if not all(map(is_local, base_urls)):
        _load_providers()


def is_ready(base_url: str) -> bool:
    """Whether an answer about this upstream takes less than a millisecond."""
    return is_local(base_url) or _load_providers.cache_info().currsize > 0


@lru_cache(KEPT_ANSWERS)
def find_window(base_url: str, model: str) -> int | None:
    """The context window in tokens of an upstream's model; None where nothing is known of it.

    Where the catalogue knows the upstream by its address, what it says of that one's models; else, for an upstream in
    the internet, the smallest window that it has for the model's name with those who make or offer it. Thread-safe.
    Loads the catalogue where that has not been done.
    """
    if len(model) > MAX_NAME_CHARS or is_local(base_url):
        return None
    host = _find_host(base_url)
    if host is not None:
        return _find_at((host,), model)
    name = model.rpartition("/")[2].lower()  # gateways write maker/model
    makers = [one for one in _load_providers() if one.model_match is not None and one.model_match.is_match(name)]
    return _find_at(tuple(makers), name)


def _find_at(providers: "tuple[Provider, ...]", model: str) -> int | None:
    every = list(_load_providers())
    found = (provider.find_model(model, all_providers=every) for provider in providers)
    windows = [one.context_window for one in found if one is not None and one.context_window is not None]
    return min((window for window in windows if window >= MIN_WINDOW_TOKENS), default=None)


@lru_cache(64)
def _find_host(base_url: str) -> "Provider | None":
    return next((one for one in _load_providers() if re.match(one.api_pattern, base_url)), None)


@cache
def _load_providers() -> "tuple[Provider, ...]":
    """The data that came with the package; its own updates, over the network, stay off."""
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415 - slow, and of no use to local servers

    return tuple(get_snapshot().providers)


@lru_cache(64)
def is_local(base_url: str) -> bool:
    """Whether an upstream is on this machine or, by its name or address, in a private network."""
    host = urlsplit(base_url).hostname or ""
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return "." not in host.rstrip(".") or host.rstrip(".").endswith(LOCAL_ENDS)
