"""What a client says, in the form in which it may stand in the log.

Law: on one line, of bounded length, without a character that a terminal would obey, and without a credential.
"""

import re
from urllib.parse import urlsplit

from proxy.http.client import origin_form
from proxy.http.headers import CREDENTIAL_HEADERS, KEY_HEADER, Headers
from proxy.telemetry.logs import escape

MAX_CHARS = 128
MAX_READ_CHARS = 64 * 1024
"""What is looked through for credentials: none is longer, as a header must not be."""
MIN_SECRET_CHARS = 12
"""A shorter credential is a placeholder ("ollama", "lm-studio"), which may well be a part of a model's name."""
_PLAIN_PART = re.compile(r"[a-z_]{0,24}|v\d{1,2}((alpha|beta)\d{0,2})?|\.{1,2}")
"""A part of a path that is a word, or a version of an API: no identifier, and no key."""


def find_secrets(headers: Headers) -> frozenset[str]:
    """The credentials that a request shows, without the names of their schemes."""
    names = {*CREDENTIAL_HEADERS, KEY_HEADER}
    words = (word for name, value in headers if name.lower() in names for word in value.split())
    return frozenset(word for word in words if len(word) >= MIN_SECRET_CHARS)


def tell_name(name: str, headers: Headers) -> str:
    """A name that a client gave, a model's say; `***` stands for a credential of the same request."""
    name = name[:MAX_READ_CHARS]
    for secret in sorted(find_secrets(headers), key=len, reverse=True):
        name = name.replace(secret, "***")
    return escape(_cut(name))


def names_secret(name: str, headers: Headers) -> bool:
    """Whether a credential of the same request stands in a name, which then must not be shown to anybody."""
    return any(secret in name for secret in find_secrets(headers))


def tell_path(target: str, headers: Headers) -> str:
    """The path of a request target, without its query; `*` stands for each part that may be an identifier or a key."""
    path = re.split("[?#]", origin_form(target), maxsplit=1)[0]
    secrets = find_secrets(headers)
    parts = (part if _PLAIN_PART.fullmatch(part) and part not in secrets else "*" for part in path.split("/"))
    return _cut("/".join(parts))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CHARS else text[:MAX_CHARS] + "…"


def tell_upstream(name: str | None, base_url: str) -> str:
    """The name that the configuration gives to an upstream; of the main one, which has none, the host and port."""
    return name or urlsplit(base_url).netloc.rpartition("@")[2]
