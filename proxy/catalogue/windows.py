"""Context windows of hosted models. Used if the upstream does not report a window.

Law: the catalogue has no answer for servers on this machine or in a private network: they may give a model any name.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING

from trimtab.proxy.catalogue.providers import KEPT_ANSWERS, MAX_NAME_CHARS, find_host, load_providers
from trimtab.proxy.config.network import is_local

if TYPE_CHECKING:
    from genai_prices.types import Provider

MIN_WINDOW_TOKENS = 1024
"""Smaller windows are ignored. Chosen: in the catalogue only embedding models and classifiers have them (512)."""
MILLION_TOKENS = 1_000_000  # source: Anthropic's page on context windows
_ASKED = "[1m]"
"""Ends the name of a model whose window of a million is asked for. Source: Claude Code."""
_HAVE_MILLION = (
    "*sonnet-4*", "*4-sonnet*", "*sonnet-[5-9]*", "*opus-4[.-][6-9]*", "*opus-[5-9]*", "*fable-*", "*mythos-*",
)  # fmt: skip
"""Models of Anthropic that have a window of a million, some of them only if it is asked for. Source: its page on
context windows."""
_PROMPTS = (
    ("gpt-5*-chat*", 400_000, 128_000),
    ("gpt-[5-9]*", 400_000, 272_000),
    ("gpt-[5-9]*", 1_000_000, 922_000),
    ("gpt-[5-9]*", 1_050_000, 922_000),
    ("deepseek-chat*", 64_000, 128_000),
    ("deepseek-reasoner*", 64_000, 128_000),
)
"""What the catalogue (genai-prices 0.2.3) says of some models, and the most tokens that a prompt for them may have.
Source: the pages of OpenAI (of 400,000 tokens, and of 1,050,000, 128,000 are for the completion alone; OpenRouter and
models.dev say the same) and of DeepSeek (V3.2; the two names ended with V4, whose own names have a million)."""


@lru_cache(KEPT_ANSWERS)
def find_window(base_url: str, model: str) -> int | None:
    """The context window of an upstream's model in tokens; None if the catalogue does not know it.

    If the catalogue knows the upstream by its URL, only that upstream's models are searched. For any other public
    upstream, the answer is the smallest window of the model's name among all providers that make or offer it.
    Thread-safe. Loads the catalogue if necessary.
    """
    if len(model) > MAX_NAME_CHARS or is_local(base_url):
        return None
    model = model.removesuffix(_ASKED)
    found = _find(base_url, model)
    name = model.rpartition("/")[2].lower()
    checked = (tokens for glob, listed, tokens in _PROMPTS if found == listed and fnmatchcase(name, glob))
    return next(checked, found)


def asks_million(model: str, betas: str) -> bool:
    """Whether a request asks for a window of a million tokens, and its model has it.

    model: the name in the request. betas: the features that it asks for.
    """
    if "context-1m-" not in betas and not model.lower().endswith(_ASKED):
        return False
    name = model[:MAX_NAME_CHARS].lower()
    return any(fnmatchcase(name.removesuffix(_ASKED), glob) for glob in _HAVE_MILLION)


def _find(base_url: str, model: str) -> int | None:
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
