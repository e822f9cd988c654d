"""Which hosts and models take what trimtab adds for their prompt caches.

Law: data. Each row has its source, and tests/proxy/catalogue/test_prompt_caches.py has an example for each. Hosts
without a row get nothing: some refuse unknown fields (NVIDIA NIM: anomalyco/opencode#45113; Azure with a model that is
not OpenAI's: vectorize-io/hindsight#3518; Vertex: anomalyco/opencode#3931).
"""

import re
from functools import lru_cache
from typing import NamedTuple

from trimtab.proxy.catalogue.providers import KEPT_ANSWERS, MAX_NAME_CHARS
from trimtab.proxy.config.network import read_host
from trimtab.proxy.wire.content.cache_help import Addition
from trimtab.proxy.wire.routing import MESSAGES

_CACHING = r"(?:ft:)?(?:chatgpt-4o|codex|gpt-4o|gpt-4\.1|gpt-(?:[5-9]|[12]\d)|o\d)(?![a-z\d])"
"""OpenAI's models with a prompt cache: GPT-4o and newer. Source: OpenAI's guide to prompt caching."""
_MARKING = r"gpt-(?:5\.(?:[6-9]|\d\d)|[6-9]|[12]\d)(?!\d)"
"""OpenAI's models with breakpoints: GPT-5.6 and newer. Source: the same."""
_AZURE = ("openai.azure.com", "cognitiveservices.azure.com", "services.ai.azure.com")
_OPEN = ("chat", "responses")
OPENAI_GUIDE = "https://developers.openai.com/api/docs/guides/prompt-caching"
ANTHROPIC_PAGE = "https://platform.claude.com/docs/en/build-with-claude/prompt-caching"
OPENROUTER_PAGE = "https://openrouter.ai/docs/guides/best-practices/prompt-caching"


class Row(NamedTuple):
    """What hosts take in these dialects for models that a pattern matches at the beginning of their name.

    hosts: each stands for itself and for every host below it.
    """

    adds: Addition
    hosts: tuple[str, ...]
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
    Row("cache_breakpoint", ("api.openai.com",), _OPEN, _MARKING, OPENAI_GUIDE),
    Row(
        "cache_breakpoint",
        ("openrouter.ai",),
        _OPEN,
        "openai/" + _MARKING,
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
