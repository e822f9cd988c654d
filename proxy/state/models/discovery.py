"""What context windows an upstream's models have, as the upstream itself tells.

Law: a question on the side. It ends within its time, reads no more than its bounds, and whatever comes back, or does
not, it raises nothing. A window that a running server has beats the one that its model was trained with.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from proxy.config.schema import UpstreamConfig
from proxy.http.client import UpstreamClient, read_bounded, target_url
from proxy.http.errors import ProxyError
from proxy.http.headers import Headers, request_headers
from proxy.wire.json.repair import try_decode

TIMEOUT_SECONDS = 5.0
"""For all that is asked of one upstream."""
MAX_ANSWER_BYTES = 8 * 1024 * 1024
"""A longer answer is none. OpenRouter's list is large."""
MAX_MODELS = 4096
"""What is read of a longer list."""
MAX_ALIASES = 16
"""And of one model's other names."""
MIN_WINDOW_TOKENS = 1024
MAX_WINDOW_TOKENS = 100_000_000

_Path = tuple[str, ...]
_Rank = tuple[_Path, ...]
_RUNNING: _Rank = (
    ("meta", "n_ctx"),  # llama.cpp, for one slot
    ("loaded_context_length",),  # LM Studio, /api/v0
    ("loaded_instances", "config", "context_length"),  # LM Studio, /api/v1
)
_STATED: _Rank = (
    ("max_model_len",),  # vLLM, SGLang
    ("context_window",),  # Groq
    ("context_length",),  # OpenRouter, Together, Maritaca; Ollama, of a model that is loaded
    ("top_provider", "context_length"),  # OpenRouter
    ("max_context_length",),  # Mistral; LM Studio, of a model that is not loaded
)
_TRAINED: _Rank = (("meta", "n_ctx_train"),)  # llama.cpp, in older builds without n_ctx
_SERVED = (_RUNNING, _STATED)
_NAMES: _Rank = (("id",), ("key",), ("model",))
_ALIASES: _Rank = (("aliases",), ("loaded_instances", "id"))
"""Other names that requests may say: llama.cpp's, and those of LM Studio's instances."""
_LATEST = ":latest"
"""Ollama's tag for names that have none."""
_OTHERS = ("/props", "/api/v0/models", "/api/v1/models", "/api/ps")
"""llama.cpp's; LM Studio's lists, in older and newer builds; and Ollama's of the models that are loaded."""
_PROPS: _Rank = (("default_generation_settings", "n_ctx"),)


@dataclass(frozen=True, slots=True)
class Windows:
    """What an upstream says of its models' context windows, in tokens: by the model's name, and of any model.

    llama.cpp serves its one model whatever name a request says: `every` is the window for any name.
    """

    by_model: Mapping[str, int]
    every: int | None

    @property
    def told_any(self) -> bool:
        """Whether there is a window among them."""
        return bool(self.by_model) or self.every is not None

    def find(self, model: str) -> int | None:
        """The model's window in tokens; None where nothing is known of it."""
        return self.by_model.get(model, self.every)


def read_models(body: bytes) -> Windows:
    """The windows in a list of models, in any form that is known; none in any other.

    The window that a model was trained with counts only where nothing else is said of it.
    """
    return _read_list(body, (*_SERVED, _TRAINED))


def read_names(body: bytes) -> list[str]:
    """The models' names in a list of models, windows or not."""
    names = (_find_name(entry) for entry in _find_entries(try_decode(body)))
    return [name for name in names if name is not None]


def read_props(body: bytes) -> int | None:
    """The window in tokens in the answer of llama.cpp's /props; None where there is none."""
    return _read_window(try_decode(body), (_PROPS,))


async def discover(
    client: UpstreamClient, upstream: UpstreamConfig, headers: Headers, *, timeout_seconds: float = TIMEOUT_SECONDS
) -> Windows:
    """Ask the upstream for its models' windows: what could be learned, maybe nothing. Raises nothing.

    `headers` are the client's credential headers; an upstream with a key of its own gets that instead. Asked are
    /models, then llama.cpp's /props, then the lists of LM Studio and Ollama. Ollama's /api/show is not asked: of a
    model that is not loaded it tells the window of its training, which is not the one that it will run in.
    """
    asked = request_headers(headers, upstream, identity=True)
    asked["Accept"] = "application/json"
    root = upstream.base_url.removesuffix("/v1")
    listed = b""
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_seconds):
            for url in (target_url(upstream, "/v1/models"), *(URL(root + path, encoded=True) for path in _OTHERS)):
                answer = await _get(client, upstream, url, asked)
                listed = listed or answer
                windows = await asyncio.to_thread(_read_served, answer)
                if windows.told_any:
                    return windows
    return await asyncio.to_thread(read_models, listed)


async def _get(client: UpstreamClient, upstream: UpstreamConfig, url: URL, headers: CIMultiDict[str]) -> bytes:
    """The answer's body; empty where there was no success, or too much of it."""
    with suppress(ProxyError, aiohttp.ClientError, OSError):  # a timeout of the connection's is an OSError
        async with client.send("GET", url, headers, None, upstream) as response:
            if response.status == 200:
                return await read_bounded(response, MAX_ANSWER_BYTES) or b""
    return b""


def _read_served(body: bytes) -> Windows:
    windows = _read_list(body, _SERVED)
    return windows if windows.by_model else Windows({}, read_props(body))


def _read_list(body: bytes, ranks: tuple[_Rank, ...]) -> Windows:
    entries = _find_entries(try_decode(body))
    by_model: dict[str, int] = {}
    by_alias: dict[str, int] = {}
    for entry in entries:
        name = _find_name(entry)
        window_tokens = _read_window(entry, ranks)
        if window_tokens is None and isinstance(entry.get("parent"), str):
            window_tokens = by_model.get(entry["parent"])  # vLLM: an adapter runs in the window of its model
        if name is not None and window_tokens is not None:
            by_model[name] = min(window_tokens, by_model.get(name, window_tokens))
            by_alias |= dict.fromkeys(_find_aliases(entry, name), window_tokens)
    by_model = by_alias | by_model
    if len(entries) == 1 and _is_llama(entries[0]):  # with several, llama.cpp is a router and heeds the name
        return Windows(by_model, next(iter(by_model.values()), None))
    return Windows(by_model, None)


def _find_name(entry: dict[str, Any]) -> str | None:
    return next((name for path in _NAMES for name in _find(entry, path) if isinstance(name, str)), None)


def _find_aliases(entry: dict[str, Any], name: str) -> list[str]:
    found = [alias for path in _ALIASES for item in _find(entry, path) for alias in _as_list(item)]
    aliases = [alias for alias in found[:MAX_ALIASES] if isinstance(alias, str)]
    return [*aliases, name.removesuffix(_LATEST)]


def _find_entries(body: Any) -> list[dict[str, Any]]:
    """The models of a list that is the whole body, or stands in `data`, or in `models`."""
    if isinstance(body, dict):
        body = next((body[key] for key in ("data", "models") if isinstance(body.get(key), list)), None)
    if not isinstance(body, list):
        return []
    return [entry for entry in body[:MAX_MODELS] if isinstance(entry, dict)]


def _is_llama(entry: dict[str, Any]) -> bool:
    return entry.get("owned_by") == "llamacpp" or bool(_find(entry, ("meta", "n_ctx")))


def _read_window(entry: Any, ranks: tuple[_Rank, ...]) -> int | None:
    """The smallest window of the first rank that has any."""
    for rank in ranks:
        known: list[int] = [value for path in rank for value in _find(entry, path) if _is_window(value)]
        if known:
            return min(known)
    return None


def _is_window(value: Any) -> bool:
    return type(value) is int and MIN_WINDOW_TOKENS <= value <= MAX_WINDOW_TOKENS  # true and false are no numbers


def _find(value: Any, path: _Path) -> list[Any]:
    """What stands at the path; a list on the way stands for each of its items."""
    found = [value]
    for key in path:
        items = [each for item in found for each in _as_list(item)]
        found = [item[key] for item in items if isinstance(item, dict) and key in item]
    return found


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
