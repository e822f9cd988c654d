"""Context windows of hosted models, from the package genai-prices. Used if the upstream does not report a window.

Law: no network. The same question has the same answer while the process lives, and no answer is kept in the store. The
catalogue has no answer for servers on this machine or in a private network: they may give a model any name.
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
MIN_WINDOW_TOKENS = 1024
"""Smaller windows are ignored. Chosen: in the catalogue only embedding models and classifiers have them (512)."""
KEPT_ANSWERS = 4096
"""Answers kept in memory. Chosen: more than the catalogue's 2330 models."""
LOCAL_ENDS = (".localhost", ".local", ".internal", ".intranet", ".lan", ".home.arpa")
"""Ends of host names that no public server has. Sources: RFC 6761, RFC 6762, RFC 8375; ICANN reserves .internal."""


def load_catalogue(base_urls: tuple[str, ...]) -> None:
    """Load the catalogue, unless all these upstreams are local. Takes 0.1 to 0.4 s the first time."""
    if not all(map(is_local, base_urls)):
        _load_providers()


def is_ready(base_url: str) -> bool:
    """Whether `find_window` can answer for this upstream without loading the catalogue first."""
    return is_local(base_url) or _load_providers.cache_info().currsize > 0


@lru_cache(KEPT_ANSWERS)
def find_window(base_url: str, model: str) -> int | None:
    """The context window of an upstream's model in tokens; None if the catalogue does not know it.

    If the catalogue knows the upstream by its URL, only that upstream's models are searched. For any other public
    upstream, the answer is the smallest window of the model's name among all providers that make or offer it.
    Thread-safe. Loads the catalogue if necessary.
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
    """The data in the installed package. The package's own updates over the network stay off."""
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
