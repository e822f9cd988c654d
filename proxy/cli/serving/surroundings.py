"""The environment of a wrapped command: which variables its clients read, and which upstream each of them meant.

Law: a client's credential goes to the server that it would have gone to without trimtab, unless the user names another.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

import orjson

from proxy.config.network.urls import OPENAI_HOST, read_host
from proxy.config.schema import Config

_PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy")
_LOOPBACK = ("127.0.0.1", "localhost")


class Family(Enum):
    """A family of clients: the variables with their base URL, what follows the server's address there, and more.

    others: variables that are set only if they were set before. Source: LiteLLM reads them.
    usual: the upstream of clients without a variable; None if they have none.
    key: the variable with these clients' key.
    """

    OPENAI = (("OPENAI_BASE_URL", "OPENAI_API_BASE"), (), "/v1", "https://api.openai.com/v1", "OPENAI_API_KEY")
    ANTHROPIC = (
        ("ANTHROPIC_BASE_URL",),
        ("ANTHROPIC_API_BASE",),
        "",
        "https://api.anthropic.com/v1",
        "ANTHROPIC_API_KEY",
    )
    AZURE = (("AZURE_OPENAI_ENDPOINT",), ("AZURE_API_BASE",), "", None, "AZURE_OPENAI_API_KEY")

    def __init__(self, names: tuple[str, ...], others: tuple[str, ...], path: str, usual: str | None, key: str) -> None:
        self.names, self.others, self.path, self.usual, self.key = names, others, path, usual, key

    def find_before(self, environment: Mapping[str, str]) -> str | None:
        """The upstream that the environment names for these clients; None if it names none."""
        url = next((environment[name] for name in (*self.names, *self.others) if environment.get(name)), None)
        if url is None:
            return None
        url = url.rstrip("/")
        end = {Family.OPENAI: "", Family.ANTHROPIC: "/v1", Family.AZURE: "/openai/v1"}[self]
        return url if url.endswith(end) else f"{url}{end}"


@dataclass(frozen=True, slots=True)
class Way:
    """An upstream, and the families of clients whose requests go there by a proxy of their own.

    is_configured: whether it is the upstream of the configuration, with its key and settings.
    """

    base_url: str
    families: tuple[Family, ...]
    is_configured: bool

    def write_setting(self, config: Config) -> tuple[str, ...]:
        """The settings that make it the upstream. A key of the configuration belongs to another server."""
        if self.is_configured:
            return ()
        shared = config.upstream.model_dump(mode="json", include={"proxy", "ca_file"}, exclude_unset=True)
        return (f"upstream={orjson.dumps({'base_url': self.base_url, **shared}).decode()}",)


def choose_ways(config: Config, environment: Mapping[str, str]) -> tuple[Way, ...]:
    """The upstream of each family: the configuration's if it names one, else the variable's, else the usual one."""
    meant = _find_meant(config)
    chosen: dict[tuple[str, bool], list[Family]] = {}
    for family in Family:
        before = family.find_before(environment)
        is_configured = family in meant or (family is Family.OPENAI and before is None and not meant)
        url = config.upstream.base_url if is_configured else before or family.usual
        if url is not None and (family in meant or before or not _is_left_out(family, environment)):
            chosen.setdefault((url, is_configured), []).append(family)
    return tuple(Way(url, tuple(families), is_configured) for (url, is_configured), families in chosen.items())


def _is_left_out(family: Family, environment: Mapping[str, str]) -> bool:
    """Whether OPENAI_BASE_URL must stay unset: Azure's client for Node would prefer it to AZURE_OPENAI_ENDPOINT."""
    is_azure = Family.AZURE.find_before(environment) is not None
    return family is Family.OPENAI and is_azure and not environment.get(family.key)


def _find_meant(config: Config) -> frozenset[Family]:
    """The families whose upstream the configuration names; all that it may serve if its host is not known."""
    if "upstream" not in config.model_fields_set or "base_url" not in config.upstream.model_fields_set:
        return frozenset()
    provider = config.upstream.provider
    if provider == "anthropic":
        return frozenset({Family.ANTHROPIC})
    if provider == "azure":
        return frozenset({Family.OPENAI, Family.AZURE})
    if read_host(config.upstream.base_url) == OPENAI_HOST:
        return frozenset({Family.OPENAI})
    return frozenset({Family.OPENAI, Family.ANTHROPIC})


def write_environment(environment: Mapping[str, str], urls: Iterable[tuple[Way, str]]) -> dict[str, str]:
    """The environment of the command. `urls`: the proxy's URL of each way.

    Requests to this machine must not go by a forward proxy.
    """
    written = dict(environment)
    for way, url in urls:
        for family in way.families:
            present = [name for name in family.others if environment.get(name)]
            written |= dict.fromkeys((*family.names, *present), f"{url}{family.path}")
    if any(environment.get(name) or environment.get(name.upper()) for name in _PROXY_VARIABLES):
        exempt = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
        hosts = [*filter(None, exempt.split(",")), *_LOOPBACK]
        written |= dict.fromkeys(("no_proxy", "NO_PROXY"), ",".join(dict.fromkeys(hosts)))
    return written
