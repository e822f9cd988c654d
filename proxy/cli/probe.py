"""Asks an upstream what it is, for `trimtab init`.

Law: it asks what `trimtab doctor` asks. A key goes only to the upstream, and is shown nowhere.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trimtab.proxy.catalogue.prices import PriceList, PriceSource, find_listed
from trimtab.proxy.catalogue.providers import find_host, is_local, load_catalogue
from trimtab.proxy.catalogue.windows import find_window
from trimtab.proxy.cli.doctor.checks import Answer, Finding, ask_upstream
from trimtab.proxy.cli.tables import mask
from trimtab.proxy.config.schema import UpstreamConfig
from trimtab.proxy.http.client import UpstreamClient

MAX_SHOWN = 12
"""How many models are shown at most. Chosen: they fit on a screen with the rest."""
_SERVERS: Mapping[str, str] = {
    "llamacpp": "llama.cpp",
    "vllm": "vLLM",
    "sglang": "SGLang",
    "library": "Ollama",
    "organization_owner": "LM Studio",
}
"""Model servers by the owner that their lists of models name. Source: their lists, as tests/proxy/models has them."""


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model that the upstream lists. `window_from`: upstream or catalogue; empty if `window_tokens` is None."""

    name: str
    window_tokens: int | None
    window_from: str
    prices: PriceList

    def describe(self) -> str:
        """Its window and prices, in words."""
        window = "window not known"
        if self.window_tokens is not None:
            window = f"window {self.window_tokens:,} (from the {self.window_from})"
        if self.prices.source == PriceSource.LOCAL:
            return f"{window}; tokens cost time only"
        if not self.prices.is_in_dollars:
            return f"{window}; prices not known"
        tier = self.prices.at(0)
        return f"{window}; ${tier.input:g} in, ${tier.cached_input:g} cached, ${tier.output:g} out per million"


@dataclass(frozen=True, slots=True)
class Probe:
    """What was found.

    server: what kind of server it is, in words. is_catalogued: whether the catalogue knows the provider.
    models: all that it lists, those with a known window first.
    """

    finding: Finding
    server: str
    models: tuple[FoundModel, ...]
    is_catalogued: bool = False

    @property
    def unknown(self) -> tuple[FoundModel, ...]:
        return () if self.is_catalogued else tuple(model for model in self.models if model.window_tokens is None)

    @property
    def is_reachable(self) -> bool:
        """Whether it answered at all, even if it refused the key."""
        return bool(self.models) or self.finding.level != "error" or "the key" in self.finding.found

    def describe(self) -> Iterator[str]:
        """What was found, line by line. Names that a server invents hold no control characters here."""
        found, advice = self.finding.found, self.finding.advice
        yield f"{self.server}: {found}"
        if advice and self.finding.level != "ok":
            yield f"  what to do: {advice}"
        for model in self.models[:MAX_SHOWN]:
            yield f"  {mask(model.name)}: {model.describe()}"
        if self.models[MAX_SHOWN:]:
            yield f"  and {len(self.models) - MAX_SHOWN} more"


async def probe(upstream: UpstreamConfig, key: str | None) -> Probe:
    """Ask the upstream for its models, with this key if there is one."""
    client = UpstreamClient()
    try:
        answer = await ask_upstream(client, upstream, key)
    finally:
        await client.close()
    load_catalogue((upstream.base_url,))
    names = dict.fromkeys((*answer.names, *answer.windows.by_model))
    found = (_find_model(upstream.base_url, name, answer) for name in names)
    models = tuple(sorted(found, key=lambda model: model.window_tokens is None))
    is_catalogued = not is_local(upstream.base_url) and find_host(upstream.base_url) is not None
    return Probe(answer.finding, name_server(upstream, answer.owners), models, is_catalogued)


def _find_model(base_url: str, name: str, answer: Answer) -> FoundModel:
    told = answer.windows.find(name)
    window = told or find_window(base_url, name)
    window_from = "upstream" if told else "catalogue" if window else ""
    return FoundModel(name, window, window_from, find_listed(base_url, name))


def name_server(upstream: UpstreamConfig, owners: frozenset[str]) -> str:
    """What kind of server it is: a provider of the catalogue, a known model server, or another one."""
    if upstream.provider == "azure":
        return "Azure OpenAI"
    if not is_local(upstream.base_url):
        host = find_host(upstream.base_url)
        return upstream.base_url if host is None else host.name
    server = next((_SERVERS[owner] for owner in sorted(owners) if owner in _SERVERS), None)
    return f"{server or 'A server'} at {upstream.base_url}"
