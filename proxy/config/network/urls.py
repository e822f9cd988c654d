"""What a URL says: its host, the provider that the host belongs to, and the passwords in it.

Law: of a provider, the host decides, whatever the scheme and the port: an upstream may be reached by plain HTTP through
something that adds TLS. Passwords are values to hide, never values to use. A URL that cannot be read has none.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit

Provider = Literal["anthropic", "azure"]

_HOSTS: dict[Provider, tuple[str, ...]] = {
    "anthropic": ("anthropic.com", "claude.com"),
    "azure": ("openai.azure.com", "cognitiveservices.azure.com", "services.ai.azure.com"),
}
"""Each name stands for itself and for every host below it. Source: both providers' documentation."""

OPENAI_HOST = "api.openai.com"
"""It has no /v1/messages, and answers no question without a key. Source: its reference."""


@lru_cache(maxsize=64)
def read_host(url: str) -> str:
    """The host of a URL, in small letters and without the dot of the root; empty if it names none."""
    return (urlsplit(url).hostname or "").removesuffix(".")


@lru_cache(maxsize=64)
def find_provider(url: str) -> Provider | None:
    name = f".{read_host(url)}"
    for provider, hosts in _HOSTS.items():
        if name.endswith(tuple(f".{known}" for known in hosts)):
            return provider
    return None


PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy")
"""Their URLs may hold a password. Names in upper case count, too. Source: curl."""
HEADER_VARIABLES = ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS")
"""Headers for the collector of traces, `name=value,name=value`, percent-encoded. Source: OpenTelemetry's specification
of the OTLP exporter."""


def find_passwords(url: str) -> Iterator[str]:
    """The passwords in a URL, as written and decoded; the user if it has no password, because it may be a token."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
    except ValueError:
        return
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    written = [password or user, *(value for name, value in parse_qsl(parts.query) if "password" in name)]
    yield from (form for secret in written for form in (secret, unquote(secret)) if form)


def list_passwords(environment: Mapping[str, str]) -> tuple[str, ...]:
    found: list[str] = []
    for name in PROXY_VARIABLES:
        for spelt in (name, name.upper()):
            found += find_passwords(environment.get(spelt, ""))
    for name in HEADER_VARIABLES:
        values = [unquote(pair.partition("=")[2]).strip() for pair in environment.get(name, "").split(",")]
        found += [word for value in values for word in (value, value.rpartition(" ")[2]) if word]  # without the scheme
    return tuple(dict.fromkeys(found))
