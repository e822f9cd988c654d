"""How long an upstream keeps a prompt in its cache after it was last read.

Law: an estimate. It decides when a cut costs little, and how a missed cache is explained, never what is correct. What
one client's answers show changes nothing for another client.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from trimtab.proxy.catalogue.providers import MAX_NAME_CHARS
from trimtab.proxy.config.network import is_local, read_host
from trimtab.proxy.lru import BytesLRU

HOUR_SECONDS = 3600.0  # source: the definition
DAY_SECONDS = 86_400.0  # source: the definition
_WANTED = {"24h": DAY_SECONDS, "1h": HOUR_SECONDS, "30m": 1800.0, "5m": 300.0}
"""What a request may say. Sources: OpenAI's `prompt_cache_retention` and `prompt_cache_options.ttl`; Anthropic's `ttl`
of `cache_control`."""
LEARNED_BYTES = 1024 * 1024  # chosen: some thousand clients with their models
LEARNED_SHARE = 0.5
"""Share of a prompt that was read from the cache, from which on the cache was alive. Chosen: the head alone, which
other sessions keep alive, is less."""


@dataclass(frozen=True, slots=True)
class _Row:
    host: str
    model: str
    seconds: float


_GPT_30_MINUTES = r"gpt-(?:5\.[6-9]|5\.\d\d|[6-9]|[12]\d)(?!\d)"
# Not 35: Azure's deployments of GPT-3.5 are called gpt-35-turbo.
_GPT_24_HOURS = r"gpt-5\.5"
_ROWS = (
    # https://developers.openai.com/api/docs/guides/prompt-caching: 5 to 10 minutes in memory; at least 30 minutes from
    # GPT-5.6 on; GPT-5.5 has a retention of 24 hours by default.
    _Row("api.openai.com", _GPT_30_MINUTES, 1800.0),
    _Row("api.openai.com", _GPT_24_HOURS, DAY_SECONDS),
    _Row("api.openai.com", "", 300.0),
    # https://learn.microsoft.com/azure/foundry/openai/how-to/prompt-caching: as OpenAI's.
    _Row("openai.azure.com", _GPT_30_MINUTES, 1800.0),
    _Row("openai.azure.com", _GPT_24_HOURS, DAY_SECONDS),
    _Row("openai.azure.com", "", 300.0),
    # The same deployments under Azure's other names; Claude's time there is Anthropic's.
    *(
        _Row(host, model, seconds)
        for host in ("services.ai.azure.com", "cognitiveservices.azure.com")
        for model, seconds in ((_GPT_30_MINUTES, 1800.0), (_GPT_24_HOURS, DAY_SECONDS), ("gpt|^o\\d|claude", 300.0))
    ),
    # https://platform.claude.com/docs/en/build-with-claude/prompt-caching: 5 minutes, an hour with `ttl`. Bedrock and
    # Vertex AI: the same.
    _Row("anthropic.com", "", 300.0),
    _Row("claude.com", "", 300.0),
    _Row("amazonaws.com", "", 300.0),
    # https://api-docs.deepseek.com/guides/kv_cache: on disk; unused entries go after hours to days. Chosen: the first.
    _Row("api.deepseek.com", "", 2 * HOUR_SECONDS),
    # https://console.groq.com/docs/prompt-caching: two hours without use.
    _Row("api.groq.com", "", 2 * HOUR_SECONDS),
    # https://ai.google.dev/gemini-api/docs/caching names no time for implicit caches; explicit ones live an hour.
    _Row("generativelanguage.googleapis.com", "", HOUR_SECONDS),
    _Row("aiplatform.googleapis.com", "claude", 300.0),
    _Row("aiplatform.googleapis.com", "", HOUR_SECONDS),
    # https://docs.x.ai/developers/advanced-api-usage/prompt-caching/best-practices names no time: by load. Chosen.
    _Row("api.x.ai", "", HOUR_SECONDS),
    # https://openrouter.ai/docs/features/prompt-caching: by the provider that serves the model, so by its maker.
    _Row("openrouter.ai", rf"openai/{_GPT_30_MINUTES}", 1800.0),
    _Row("openrouter.ai", rf"openai/{_GPT_24_HOURS}", DAY_SECONDS),
    _Row("openrouter.ai", "deepseek/", 2 * HOUR_SECONDS),
    _Row("openrouter.ai", "(?:google|x-ai)/", HOUR_SECONDS),
    _Row("openrouter.ai", "", 300.0),
    # https://vercel.com/docs/ai-gateway: passed on to the maker of the model, as at OpenRouter.
    _Row("ai-gateway.vercel.sh", rf"openai/{_GPT_30_MINUTES}", 1800.0),
    _Row("ai-gateway.vercel.sh", "(?:anthropic|openai)/", 300.0),
)
"""The first row that fits counts. If no time is documented, the value is on the long side: a cut at a cache that is
still warm costs more than one that is missed."""
_SHORTEST_SECONDS = min(row.seconds for row in _ROWS)


def find_lifetime_seconds(base_url: str, model: str, wanted: Sequence[str] = ()) -> float | None:
    """The seconds that a cached prompt lives without being read; None if that is not known.

    It is not known for hosts that are not in the table: a server of one's own keeps prompts as long as it has memory.

    wanted: what the request says about it, as `24h` (OpenAI's retention) or `1h` (Anthropic's ttl).
    """
    if is_local(base_url):
        return None
    host, name = f".{read_host(base_url)}", model[:MAX_NAME_CHARS].lower()
    rows = (row for row in _ROWS if host.endswith(f".{row.host}") and re.search(row.model, name))
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
