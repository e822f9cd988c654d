"""The credentials in URLs and in variables of the environment, so that nothing that is kept shows one.

Law: values to hide, never values to use. A URL that cannot be read raises nothing.
"""

from collections.abc import Iterator, Mapping
from urllib.parse import parse_qsl, unquote, urlsplit

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
    """The credentials in the variables that name a forward proxy, or headers for the collector of traces."""
    found: list[str] = []
    for name in PROXY_VARIABLES:
        for spelt in (name, name.upper()):
            found += find_passwords(environment.get(spelt, ""))
    for name in HEADER_VARIABLES:
        values = [unquote(pair.partition("=")[2]).strip() for pair in environment.get(name, "").split(",")]
        found += [word for value in values for word in (value, value.rpartition(" ")[2]) if word]  # without the scheme
    return tuple(dict.fromkeys(found))
