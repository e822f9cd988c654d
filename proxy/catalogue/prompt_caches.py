"""The prompt caches of upstreams: who takes what trimtab adds for them, who has refused it, how long a prompt stays.

Law: each row of the tables has its source, and tests/proxy/catalogue/test_prompt_caches.py has an example for each.
Hosts without a row get nothing: some refuse unknown fields (NVIDIA NIM: anomalyco/opencode#45113; Azure with a model
that is not OpenAI's: vectorize-io/hindsight#3518; Vertex: anomalyco/opencode#3931). A lifetime is an estimate: it
decides when a cut costs little, and how a missed cache is explained, never what is correct. What one client is refused,
or its answers show, changes nothing for another client.
"""

import re
from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from math import inf
from typing import Generic, NamedTuple, TypeVar

import msgspec

from trimtab.proxy.catalogue.prices import KEPT_ANSWERS, MAX_NAME_CHARS
from trimtab.proxy.config.network import is_local, read_host
from trimtab.proxy.lru import BytesLRU
from trimtab.proxy.wire.cache_help import Addition
from trimtab.proxy.wire.routing import MESSAGES

_CACHING = r"(?:ft:)?(?:chatgpt-4o|codex|gpt-4o|gpt-4\.1|gpt-(?:[5-9]|[12]\d)|o\d)(?![a-z\d])"
"""OpenAI's models with a prompt cache: GPT-4o and newer. Source: OpenAI's guide to prompt caching."""
_GPT_5_6 = r"gpt-(?:5\.(?:[6-9]|\d\d)|[6-9]|[12]\d)(?!\d)"
"""GPT-5.6 and newer, which have breakpoints and a cache of 30 minutes. Source: the same."""
_AZURE = ("openai.azure.com", "cognitiveservices.azure.com", "services.ai.azure.com")
_OPEN = ("chat", "responses")
OPENAI_GUIDE = "https://developers.openai.com/api/docs/guides/prompt-caching"
ANTHROPIC_PAGE = "https://platform.claude.com/docs/en/build-with-claude/prompt-caching"
OPENROUTER_PAGE = "https://openrouter.ai/docs/guides/best-practices/prompt-caching"


class Row(NamedTuple):
    """What hosts take in these dialects for models that a pattern matches at the beginning of their name."""

    adds: Addition
    hosts: tuple[str, ...]  # each stands for itself and for every host below it
    dialects: tuple[str, ...]
    models: str
    source: str


ROWS = (
    Row("cache_key", ("api.openai.com",), _OPEN, _CACHING, OPENAI_GUIDE),
    Row(
        "cache_key",
        _AZURE,
        _OPEN,
        _CACHING,
        "https://learn.microsoft.com/azure/foundry/openai/how-to/prompt-caching; tried in BerriAI/litellm#20989",
    ),
    Row(
        "cache_key",
        ("openrouter.ai",),
        _OPEN,
        "openai/" + _CACHING,
        f"{OPENROUTER_PAGE} (it keeps a session at one provider by this key); damianvtran/local-operator#938",
    ),
    Row("cache_breakpoint", ("api.openai.com",), _OPEN, _GPT_5_6, OPENAI_GUIDE),
    Row(
        "cache_breakpoint",
        ("openrouter.ai",),
        _OPEN,
        "openai/" + _GPT_5_6,
        "https://openrouter.ai/docs/client-sdks/typescript/models/promptcacheoptions",
    ),
    Row("cache_control", ("anthropic.com", "claude.com"), (MESSAGES,), "", ANTHROPIC_PAGE),
    Row("cache_control", ("services.ai.azure.com",), (MESSAGES,), "claude", f"{ANTHROPIC_PAGE} (Microsoft Foundry)"),
    Row(
        "cache_control",
        ("ai-gateway.vercel.sh",),
        (MESSAGES,),
        "anthropic/",
        "https://vercel.com/docs/ai-gateway/sdks-and-apis/anthropic-messages-api",
    ),
    Row(
        "cache_control",
        ("openrouter.ai",),
        ("chat", MESSAGES),
        "~?anthropic/",
        f"{OPENROUTER_PAGE}; results of tools: earendil-works/pi#6941",
    ),
)
"""Not listed: Anthropic's own chat completions, which cache nothing; Azure's breakpoints, which nobody has tried
(pydantic/pydantic-ai#7173); Vercel's chat completions (markers on results of tools are not documented)."""


@lru_cache(KEPT_ANSWERS)
def find_additions(base_url: str, dialect: str, model: str) -> frozenset[Addition]:
    if len(model) > MAX_NAME_CHARS:
        return frozenset()
    name, host = model.lower(), f".{read_host(base_url)}"
    return frozenset(
        row.adds
        for row in ROWS
        if dialect in row.dialects
        and host.endswith(tuple(f".{known}" for known in row.hosts))
        and re.match(row.models, name)
    )


HOUR_SECONDS = 3600.0  # source: the definition
DAY_SECONDS = 86_400.0  # source: the definition
_WANTED = {"24h": DAY_SECONDS, "1h": HOUR_SECONDS, "30m": 1800.0, "5m": 300.0}
"""What a request may say. Sources: OpenAI's `prompt_cache_retention` and `prompt_cache_options.ttl`; Anthropic's `ttl`
of `cache_control`."""
LEARNED_BYTES = 1024 * 1024  # chosen: some thousand clients with their models
LEARNED_SHARE = 0.5  # Cached share of a prompt with a live cache. Chosen: above the head, which other sessions share.


class _Lifetime(msgspec.Struct, frozen=True):
    host: str
    model: str
    seconds: float


# Not 35: Azure's deployments of GPT-3.5 are called gpt-35-turbo.
_GPT_5_5 = r"gpt-5\.5"
_LIFETIMES = (
    # https://developers.openai.com/api/docs/guides/prompt-caching: 5 to 10 minutes in memory; at least 30 minutes from
    # GPT-5.6 on; GPT-5.5 has a retention of 24 hours by default.
    _Lifetime("api.openai.com", _GPT_5_6, 1800.0),
    _Lifetime("api.openai.com", _GPT_5_5, DAY_SECONDS),
    _Lifetime("api.openai.com", "", 300.0),
    # https://learn.microsoft.com/azure/foundry/openai/how-to/prompt-caching: as OpenAI's.
    _Lifetime("openai.azure.com", _GPT_5_6, 1800.0),
    _Lifetime("openai.azure.com", _GPT_5_5, DAY_SECONDS),
    _Lifetime("openai.azure.com", "", 300.0),
    # The same deployments under Azure's other names; Claude's time there is Anthropic's.
    *(
        _Lifetime(host, model, seconds)
        for host in ("services.ai.azure.com", "cognitiveservices.azure.com")
        for model, seconds in ((_GPT_5_6, 1800.0), (_GPT_5_5, DAY_SECONDS), ("gpt|^o\\d|claude", 300.0))
    ),
    # https://platform.claude.com/docs/en/build-with-claude/prompt-caching: 5 minutes, an hour with `ttl`. Bedrock and
    # Vertex AI: the same.
    _Lifetime("anthropic.com", "", 300.0),
    _Lifetime("claude.com", "", 300.0),
    _Lifetime("amazonaws.com", "", 300.0),
    # https://api-docs.deepseek.com/guides/kv_cache: on disk; unused entries go after hours to days. Chosen: the first.
    _Lifetime("api.deepseek.com", "", 2 * HOUR_SECONDS),
    # https://console.groq.com/docs/prompt-caching: two hours without use.
    _Lifetime("api.groq.com", "", 2 * HOUR_SECONDS),
    # https://ai.google.dev/gemini-api/docs/caching names no time for implicit caches; explicit ones live an hour.
    _Lifetime("generativelanguage.googleapis.com", "", HOUR_SECONDS),
    _Lifetime("aiplatform.googleapis.com", "claude", 300.0),
    _Lifetime("aiplatform.googleapis.com", "", HOUR_SECONDS),
    # https://docs.x.ai/developers/advanced-api-usage/prompt-caching/best-practices names no time: by load. Chosen.
    _Lifetime("api.x.ai", "", HOUR_SECONDS),
    # https://openrouter.ai/docs/features/prompt-caching: by the provider that serves the model, so by its maker.
    _Lifetime("openrouter.ai", rf"openai/{_GPT_5_6}", 1800.0),
    _Lifetime("openrouter.ai", rf"openai/{_GPT_5_5}", DAY_SECONDS),
    _Lifetime("openrouter.ai", "deepseek/", 2 * HOUR_SECONDS),
    _Lifetime("openrouter.ai", "(?:google|x-ai)/", HOUR_SECONDS),
    _Lifetime("openrouter.ai", "", 300.0),
    # https://vercel.com/docs/ai-gateway: passed on to the maker of the model, as at OpenRouter.
    _Lifetime("ai-gateway.vercel.sh", rf"openai/{_GPT_5_6}", 1800.0),
    _Lifetime("ai-gateway.vercel.sh", "(?:anthropic|openai)/", 300.0),
)
"""The first row that fits counts. If no time is documented, the value is on the long side: a cut at a cache that is
still warm costs more than one that is missed."""
_SHORTEST_SECONDS = min(row.seconds for row in _LIFETIMES)


def find_lifetime_seconds(base_url: str, model: str, wanted: Sequence[str] = ()) -> float | None:
    """How long a cached prompt lives unread; None for an unknown host. wanted: by the request, as `24h` or `1h`."""
    if is_local(base_url):
        return None
    host, name = f".{read_host(base_url)}", model[:MAX_NAME_CHARS].lower()
    rows = (row for row in _LIFETIMES if host.endswith(f".{row.host}") and re.search(row.model, name))
    seconds = next((row.seconds for row in rows), None)
    return None if seconds is None else max(seconds, *(_WANTED.get(each, 0.0) for each in wanted), 0.0)


class Lifetimes:
    """The lifetimes of this process's clients: those of the table, or longer if a client's answers have shown that."""

    def __init__(self) -> None:
        self._learned: BytesLRU[tuple[str, str, str], float] = BytesLRU(
            LEARNED_BYTES, lambda key, _: sum(map(len, key))
        )

    def find(self, tenant: str, base_url: str, model: str, wanted: Sequence[str] = ()) -> float | None:
        """The seconds that a client's prompt lives in the cache; None if only the server's memory limits it."""
        seconds = find_lifetime_seconds(base_url, model, wanted)
        learned = self._learned.get((tenant, base_url, model[:MAX_NAME_CHARS]))
        return seconds if seconds is None or learned is None else max(seconds, learned)

    def may_be_over(self, idle_seconds: float) -> bool:
        """Whether this is longer than the shortest lifetime of all; if not, nothing else need be looked up."""
        return idle_seconds > _SHORTEST_SECONDS

    def learn(self, tenant: str, base_url: str, model: str, idle_seconds: float, cached_share: float) -> None:
        """Note how much of a prompt was still cached after a silence. The longest such silence counts."""
        if cached_share < LEARNED_SHARE or not self.may_be_over(idle_seconds):
            return
        key = tenant, base_url, model[:MAX_NAME_CHARS]
        self._learned[key] = max(self._learned.get(key) or 0.0, min(idle_seconds, DAY_SECONDS))


T = TypeVar("T", bound=str)
MAX_KEPT = 1024  # With more, the oldest is forgotten. Chosen: more than the clients and models of one process.

Asked = tuple[str, str, str]  # the id of a tenant, the base URL of an upstream, and a model


class Refusals(Generic[T]):
    """What is not added any more, by tenant, upstream and model; for one process. Used on the event loop only.

    seconds: for so long after its first refusal, an entry is kept. Then what was refused is tried again.
    kept: each entry, and until when; empty if nothing was refused, as nearly always.
    """

    def __init__(self, seconds: float = inf) -> None:
        self._seconds = seconds
        self.kept: OrderedDict[Asked, tuple[frozenset[T], float]] = OrderedDict()

    def find(self, asked: Asked, now: float = 0.0) -> frozenset[T]:
        refused, until = self.kept.get(asked, (frozenset[T](), 0.0))
        return refused if now < until else frozenset()

    def keep(self, asked: Asked, refused: frozenset[T], now: float = 0.0) -> None:
        known = self.find(asked, now)
        until = self.kept[asked][1] if known else now + self._seconds
        self.kept[asked] = known | refused, until
        self.kept.move_to_end(asked)
        while len(self.kept) > MAX_KEPT:
            self.kept.popitem(last=False)
