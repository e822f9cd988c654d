"""Context windows of hosted models. Used if the upstream does not report a window.

Law: the catalogue has no answer for servers on this machine or in a private network: they may give a model any name.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from proxy.state.catalogue.providers import KEPT_ANSWERS, MAX_NAME_CHARS, find_host, is_local, load_providers

if TYPE_CHECKING:
    from genai_prices.types import Provider

MIN_WINDOW_TOKENS = 1024
"""Smaller windows are ignored. Chosen: in the catalogue only embedding models and classifiers have them (512)."""


@lru_cache(KEPT_ANSWERS)
def find_window(base_url: str, model: str) -> int | None:
    """The context window of an upstream's model in tokens; None if the catalogue does not know it.

    If the catalogue knows the upstream by its URL, only that upstream's models are searched. For any other public
    upstream, the answer is the smallest window of the model's name among all providers that make or offer it.
    Thread-safe. Loads the catalogue if necessary.
    """
    if len(model) > MAX_NAME_CHARS or is_local(base_url):
        return None
    host = find_host(base_url)
    if host is not None:
        return _find_at((host,), model)
    name = model.rpartition("/")[2].lower()  # gateways write maker/model
    makers = [one for one in load_providers() if one.model_match is not None and one.model_match.is_match(name)]
    return _find_at(makers, name)


def _find_at(providers: "Sequence[Provider]", model: str) -> int | None:
    every = list(load_providers())
    found = (provider.find_model(model, all_providers=every) for provider in providers)
    windows = [one.context_window for one in found if one is not None and one.context_window is not None]
    return min((window for window in windows if window >= MIN_WINDOW_TOKENS), default=None)
