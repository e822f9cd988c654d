"""Discovery: asks upstreams for the context windows of their models.

Law: no request depends on it. It ends within its time limit, reads no more than its bounds, and never raises, whatever
the upstream answers. The window that a running server uses beats the window that its model was trained with.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from trimtab.proxy.catalogue.prices import MIN_WINDOW_TOKENS
from trimtab.proxy.config.schema import UpstreamConfig
from trimtab.proxy.http.client import UpstreamClient, read_bounded, target_url
from trimtab.proxy.http.errors import ProxyError
from trimtab.proxy.http.headers import Headers, request_headers
from trimtab.proxy.models.tokenizer import Post, ask_reading
from trimtab.proxy.wire.json import try_decode
from trimtab.rules.tokens.families import SILENT, Reading

TIMEOUT_SECONDS = 5.0  # For one upstream. Chosen: local servers answer far sooner, and no request waits for it.
MAX_ANSWER_BYTES = 8 * 1024 * 1024  # Longer ones are ignored. Chosen: far above long lists of models (OpenRouter's).
MAX_MODELS = 4096  # Entries that are read of a list. Chosen: the largest provider in the catalogue has 923 models.
MAX_ALIASES = 16  # Further names that are read of one model. Chosen: more than real servers list.
MAX_WINDOW_TOKENS = 100_000_000  # Larger windows are ignored. Chosen: ten times the largest in the catalogue.

ANTHROPIC_VERSION = "2023-06-01"  # Required in a header. Source: Anthropic's reference; there is no later one.
ANTHROPIC_PAGE = 1000  # Models that Anthropic is asked to list at once. Source: its reference; the most that it allows.
_Path = tuple[str, ...]
_Rank = tuple[_Path, ...]
_RUNNING: _Rank = (
    ("meta", "n_ctx"),  # llama.cpp, for one slot
    ("n_ctx",),
    ("num_ctx",),
    ("loaded_context_length",),  # LM Studio, /api/v0
    ("loaded_instances", "config", "context_length"),  # LM Studio, /api/v1
)
_STATED: _Rank = (
    ("max_model_len",),  # vLLM, SGLang
    ("context_window",),  # Groq, Codex
    ("context_length",),  # OpenRouter, Together, Maritaca; Ollama, for a loaded model
    ("top_provider", "context_length"),  # OpenRouter
    ("providers", "context_length"),  # Hugging Face, for each provider of the model
    ("max_context_length",),  # Mistral; LM Studio, for a model that is not loaded
    ("context_size",),  # Novita
    ("contextWindow",),
    ("contextLength",),
    ("max_context_window",),
    ("max_context_tokens",),
    ("max_input_tokens",),  # Anthropic; LiteLLM, beside the whole window: a prompt may have no more
    ("max_prompt_tokens",),
    ("maxInputTokens",),
    ("inputTokenLimit",),  # Gemini
    ("input_token_limit",),
    ("limit", "context"),  # models.dev
    ("limit", "input"),
    ("limits", "max_context_length"),  # Cerebras
    ("limits", "max_input_tokens"),  # GitHub Models
    ("limits", "max_prompt_tokens"),
    ("metadata", "context_length"),  # DeepInfra
    ("model_info", "max_input_tokens"),  # LiteLLM, /model/info
    ("model_spec", "availableContextTokens"),  # Venice
    ("max_total_tokens",),  # TGI, /info
    ("parameters", "max_seq_len"),  # TabbyAPI
    ("model_limits", "max_sequence_length"),  # watsonx
    ("context_window", "context_length"),  # Poe
    ("limits", "context_window"),
    ("limits", "context_length"),
    ("capabilities", "context_window"),
    ("capabilities", "context_length"),
    ("max_seq_len",),
    ("max_sequence_length",),
    ("max_context_window_tokens",),
    ("maxContextLength",),
    ("context_len",),
    ("ctx_len",),
    ("capabilities", "limits", "max_context_window_tokens"),  # Copilot
    ("capabilities", "limits", "max_prompt_tokens"),
)
_TRAINED: _Rank = (("meta", "n_ctx_train"),)  # llama.cpp, in older builds without n_ctx
_SERVED = (_RUNNING, _STATED)
_NAMES: _Rank = (("id",), ("key",), ("model",), ("slug",), ("model_name",), ("name",))
_ALIASES: _Rank = (("aliases",), ("loaded_instances", "id"))
"""Other names that requests may use: llama.cpp's aliases, and the instances of LM Studio."""
_LATEST = ":latest"  # The tag that Ollama adds to names without a tag
_MODELS = "models/"  # Gemini's own list has names of that form. Requests may leave it out.
_OTHERS = ("/props", "/api/v1/models", "/api/v0/models", "/api/ps", "/info", "/model/info")
"""Asked after /v1/models, in turn: llama.cpp; LM Studio, newer and older; Ollama's loaded models; TGI; LiteLLM."""
_ENGINES: dict[str, tuple[str, _Path]] = {
    "/api/v1/models": ("LM Studio", ()),
    "/api/v0/models": ("LM Studio", ()),
    "/api/ps": ("Ollama", ("/api/version",)),
    "llamacpp": ("llama.cpp", ("/props",)),
    "vllm": ("vLLM", ("/version", "/server_info?config_format=json")),
    "sglang": ("SGLang", ("/get_server_info", "/server_info")),
}
"""By the path of the list with windows, or by the owner in it: the server's name, and where it says more of itself,
until it has said its slots. vLLM has /server_info only in its developers' mode; SGLang had another name for it."""
_TGI = "TGI"
_VERSIONS: _Rank = (("build_info",), ("version",))
_SLOTS: _Rank = (
    ("total_slots",),  # llama.cpp
    ("internal_states", "effective_max_running_requests_per_dp"),  # SGLang
    ("vllm_config", "scheduler_config", "max_num_seqs"),  # vLLM
    ("models", "loaded_instances", "config", "parallel"),  # LM Studio, for each of its models
)
FEW_SLOTS = 2
"""Each of so few belongs to a session. Measured: two chats at once behind two slots took 1.9 times as long with
summaries beside them, which push the chats' prompts out of their slots' caches, and 1.2 times without."""
_MAX_VERSION_CHARS = 40  # Chosen: longer than the versions of development builds
_MAX_DIGITS = len(str(MAX_WINDOW_TOKENS))
_ABLE = ("supports_tools", "supports_tool_calls")  # What llama.cpp says of its chat template, in this order
_PROPS: _Rank = (("default_generation_settings", "n_ctx"),)


@dataclass(frozen=True, slots=True)
class Windows:
    """The context windows that an upstream reports, in tokens.

    by_model: by the model's name.
    every: the window for any other name; None if there is none. llama.cpp serves its only model under every name.
    slots: how many requests the server works on at once; None if it does not say.
    reading: how a server with one model reads prompts; SILENT of any other.
    engine: the server's name and version, as far as they are known.
    """

    by_model: Mapping[str, int]
    every: int | None
    slots: int | None = None
    reading: Reading = SILENT
    engine: str = field(default="", compare=False)

    @property
    def told_any(self) -> bool:
        return bool(self.by_model) or self.every is not None

    def find(self, model: str) -> int | None:
        return self.by_model.get(model, self.every)


def read_models(body: bytes) -> Windows:
    """Read the windows in a list of models, in any known form. A model's trained one counts only if it has no other."""
    return _read_list(body, (*_SERVED, _TRAINED))


def read_list(body: bytes) -> tuple[str, ...]:
    names = map(find_name, find_entries(try_decode(body)))
    return tuple(name for name in names if name is not None)


def read_props(body: bytes, engine: str = "") -> Windows:
    """Read what a server says of itself: llama.cpp's /props, TGI's /info, and what _ENGINES has.

    engine: the server's name, as far as another answer has shown it.
    llama.cpp does not say whether it has --cache-reuse. Without, it reads as much wherever a summary stands.
    """
    told = try_decode(body)
    version = next((each for path in _VERSIONS for each in _find(told, path) if isinstance(each, str)), "")
    drops_tools, drops_calls = (_find(told, ("chat_template_caps", able)) == [False] for able in _ABLE)
    window_tokens = _read_window(told, (_PROPS,))
    reading = Reading(drops_tools, shifts=window_tokens is not None, drops_calls=drops_calls)
    if window_tokens is not None:
        engine = "llama.cpp"
    elif _find(told, ("model_id",)):
        engine, window_tokens = _TGI, _read_window(told, _SERVED)
    named = f"{engine} {version[:_MAX_VERSION_CHARS]}".strip()
    return Windows({}, window_tokens, _read_slots(told), reading, named)


def _read_slots(told: Any) -> int | None:
    """The fewest slots that any model has; None if the server does not say."""
    found = [each for path in _SLOTS for each in _find(told, path)]
    return min((each for each in found if type(each) is int and each > 0), default=None)  # `type`: a bool is an int


def ask_for_models(upstream: UpstreamConfig, headers: Headers) -> tuple[URL, CIMultiDict[str]]:
    """URL and headers to ask for an upstream's models: with its configured key, else the client's `headers`."""
    asked = request_headers(headers, upstream, identity=True)
    asked["Accept"] = "application/json"
    if upstream.provider != "anthropic":
        return target_url(upstream, "/v1/models"), asked
    asked["anthropic-version"] = ANTHROPIC_VERSION
    return target_url(upstream, f"/v1/models?limit={ANTHROPIC_PAGE}"), asked


async def discover(
    client: UpstreamClient,
    upstream: UpstreamConfig,
    headers: Headers,
    known: Windows | None = None,
    *,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Windows:
    """Ask the upstream for its models' windows. Returns none if it reports none or fails. Never raises.

    It asks /v1/models, then _OTHERS, and stops at the first answer with a window. A server of _ENGINES is asked for its
    version and slots, too; a host of a known provider is asked for /v1/models only. Ollama's /api/show is not asked: of
    a model that is not loaded it reports the window of the training, and the model will run with another one. A server
    with one model is then asked to count samples, unless it has done so for `known`, the answer before this one.
    headers: as for `ask_for_models`.
    """
    found, listed = await _find_windows(client, upstream, headers, timeout_seconds)
    if not found.told_any:
        return await asyncio.to_thread(read_models, listed)
    if known is not None and known.by_model == found.by_model and found.slots is None and not found.reading.shifts:
        # Its /props failed this time: sessions must not be planned otherwise until it answers again.
        found = replace(found, slots=known.slots, reading=known.reading._replace(samples=()))
    only = None if upstream.provider else await asyncio.to_thread(_find_only, listed, found.engine)
    if only is None:
        return found
    if known is not None and known.reading.samples and known.by_model == found.by_model:
        return replace(found, reading=known.reading.take_props(found.reading))
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_seconds):
            return replace(found, reading=await ask_reading(bind(client, upstream, headers), only, found.reading))
    return found


async def _find_windows(
    client: UpstreamClient, upstream: UpstreamConfig, headers: Headers, timeout_seconds: float
) -> tuple[Windows, bytes]:
    url, asked = ask_for_models(upstream, headers)
    listed, found, path = b"", Windows({}, None), ""
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_seconds):
            for path in ("", *(() if upstream.provider else _OTHERS)):
                answer = await _ask(client, upstream, _place(upstream, path) if path else url, asked)
                listed = listed or answer
                found = await asyncio.to_thread(_read_served, answer)
                if found.told_any:
                    break
            name = path if path in _ENGINES else await asyncio.to_thread(_find_owner, listed)
            if name is None or not found.by_model or upstream.provider:
                return found, listed
            engine, paths = _ENGINES[name]
            found = replace(found, engine=engine)
            for more in paths:
                answer = await _ask(client, upstream, _place(upstream, more), asked)
                props = await asyncio.to_thread(read_props, answer, engine)
                named = max(found.engine, props.engine, key=len)
                found = replace(found, slots=props.slots, reading=props.reading, engine=named)
                if found.slots:
                    break
    return found, listed


def _place(upstream: UpstreamConfig, path: str) -> URL:
    return URL(upstream.base_url.removesuffix("/v1") + path, encoded=True)


def bind(client: UpstreamClient, upstream: UpstreamConfig, headers: Headers) -> Post:
    """How to ask an upstream's tokenizer."""
    _, asked = ask_for_models(upstream, headers)
    asked["Content-Type"] = "application/json"
    return lambda path, body: _ask(client, upstream, _place(upstream, path), asked, body)


async def _ask(
    client: UpstreamClient, upstream: UpstreamConfig, url: URL, headers: CIMultiDict[str], body: bytes | None = None
) -> bytes:
    """The body of the answer; empty if the question failed or the answer is too long."""
    with suppress(ProxyError, aiohttp.ClientError, OSError):  # OSError: a timeout of the connection
        async with client.send("POST" if body else "GET", url, headers, body, upstream) as response:
            if response.status == 200:
                return await read_bounded(response, MAX_ANSWER_BYTES) or b""
    return b""


def _find_owner(listed: bytes) -> str | None:
    """The owner of a server with one model, apart from adapters, if it is one of _ENGINES."""
    models = [entry for entry in find_entries(try_decode(listed)) if not entry.get("parent")]
    if len(models) != 1:
        return None
    owner = "llamacpp" if _is_llama(models[0]) else models[0].get("owned_by")
    return owner if isinstance(owner, str) and owner in _ENGINES else None


def _find_only(listed: bytes, engine: str) -> str | None:
    """The name of the only model, apart from adapters, of a server that has a tokenizer to ask; None of any other."""
    models = [entry for entry in find_entries(try_decode(listed)) if not entry.get("parent")]
    has_tokenizer = _find_owner(listed) is not None or (engine.startswith(_TGI) and len(models) == 1)
    return find_name(models[0]) if has_tokenizer else None


def _read_served(body: bytes) -> Windows:
    windows = _read_list(body, _SERVED)
    return replace(windows, slots=_read_slots(try_decode(body))) if windows.by_model else read_props(body)


def _read_list(body: bytes, ranks: tuple[_Rank, ...]) -> Windows:
    entries = find_entries(try_decode(body))
    by_model: dict[str, int] = {}
    by_alias: dict[str, int] = {}
    for entry in entries:
        name = find_name(entry)
        window_tokens = _read_window(entry, ranks)
        if window_tokens is None and isinstance(entry.get("parent"), str):
            window_tokens = by_model.get(entry["parent"])  # vLLM: an adapter has the window of its model
        if name is not None and window_tokens is not None:
            by_model[name] = min(window_tokens, by_model.get(name, window_tokens))
            by_alias |= dict.fromkeys(_find_aliases(entry, name), window_tokens)
    by_model = by_alias | by_model
    if len(entries) == 1 and _is_llama(entries[0]):  # with several models, llama.cpp is a router that selects by name
        return Windows(by_model, next(iter(by_model.values()), None))
    return Windows(by_model, None)


def find_name(entry: dict[str, Any]) -> str | None:
    return next((name for path in _NAMES for name in _find(entry, path) if isinstance(name, str)), None)


def _find_aliases(entry: dict[str, Any], name: str) -> list[str]:
    found = [alias for path in _ALIASES for item in _find(entry, path) for alias in _as_list(item)]
    aliases = [alias for alias in found[:MAX_ALIASES] if isinstance(alias, str)]
    return [*aliases, name.removesuffix(_LATEST).removeprefix(_MODELS)]


def find_entries(body: Any) -> list[dict[str, Any]]:
    """The entries of a list of models, which is the whole body, or its member `data` or `models`."""
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
        found = (_read_number(value) for path in rank for value in _find(entry, path))
        known = [number for number in found if number is not None]
        if known:
            return min(known)
    return None


def _read_number(value: Any) -> int | None:
    """A window in tokens; None if the value is none. Some servers write it as "32768" or 32768.0."""
    if isinstance(value, str) and len(value) <= _MAX_DIGITS and value.isascii() and value.isdecimal():
        value = int(value)
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not MIN_WINDOW_TOKENS <= value <= MAX_WINDOW_TOKENS
    ):
        return None
    return int(value) if value == int(value) else None


def _find(value: Any, path: _Path) -> list[Any]:
    """All values at a path of keys. A list on the way means each of its items."""
    found = [value]
    for key in path:
        items = [each for item in found for each in _as_list(item)]
        found = [item[key] for item in items if isinstance(item, dict) and key in item]
    return found


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
