"""The providers in the catalogue, which of them an upstream is, and the context windows of their models.

Law: servers on this machine or in a private network are no provider's: they may give a model any name. A window of the
catalogue counts only if the upstream does not report one.
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from trimtab.proxy.config.network import is_local, read_host

if TYPE_CHECKING:
    from genai_prices.types import Provider

MAX_NAME_CHARS = 256  # A longer name is not looked up. Chosen: four times the longest in the catalogue, which has 61.
KEPT_ANSWERS = 4096  # answers kept in memory. Chosen: more than the catalogue's 2330 models.
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


if TYPE_CHECKING:
    from genai_prices.types import Provider

MIN_WINDOW_TOKENS = 1024  # Smaller ones are ignored. Chosen: only embedding models and classifiers have them (512).
MILLION_TOKENS = 1_000_000  # source: Anthropic's page on context windows
_ASKED = "[1m]"  # Ends the name of a model whose window of a million is asked for. Source: Claude Code.
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
