"""A request as its head tells, and what of it may stand in the log.

Law: what may be logged is on one line, of bounded length, without a character that a terminal would obey, and without a
credential.
"""

import re
import secrets
import time
from dataclasses import dataclass
from itertools import islice
from urllib.parse import unquote, urlsplit

from aiohttp import web

from proxy.http.client import origin_form
from proxy.http.credentials import COOKIE, GUESSABLE_NAMES, Shown, find_shown
from proxy.http.headers import Headers, split_headers
from proxy.state.tenancy import Tenancy, Tenant
from proxy.telemetry.logs import escape
from proxy.wire.codec import Codec

OTHER_ENDPOINT = "other"
"""The endpoint of requests that no codec claims."""
MAX_CHARS = 128
MAX_READ_CHARS = 64 * 1024
"""What is looked through for credentials: none is longer, as a header must not be."""
MIN_SECRET_CHARS = 12
"""A shorter credential is a placeholder ("ollama", "lm-studio"), which may well be a part of a model's name."""
MAX_SECRETS = 64
"""Of one request; each costs a look through each name that is logged. More are no client's."""
_BETWEEN_WORDS = re.compile(r"[\s;]+")
_PLAIN_PART = re.compile(r"[a-z_]{0,24}|v\d{1,2}((alpha|beta)\d{0,2})?|\.{1,2}")
"""A part of a path that is a word, or a version of an API: no identifier, and no key."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request of which the head has come.

    `endpoint` is the name of the codec that claims it, else `other`. `method` and `path` are as they may be logged,
    `target` is the request's own. `headers` are in wire order; those that end on this hop are not in `end_to_end`.
    `started_at` is of the monotonic clock. `secrets` are the credentials that the request shows, `tenant` is whose it
    is.
    """

    endpoint: str
    method: str
    path: str
    target: str
    headers: Headers
    end_to_end: Headers
    secrets: frozenset[str]
    tenant: Tenant
    request_id: str
    started_at: float

    def tell_name(self, name: str) -> tuple[str, bool]:
        """A name that the client gave, a model's say, as it may be logged; `***` stands for a credential.

        And whether there is one of the same request in it: then it must not be shown to anybody else.
        """
        return tell_name(name, self.secrets), any(secret in name for secret in self.secrets)


def read_arrival(request: web.BaseRequest, codec: Codec | None, tenancy: Tenancy) -> Arrival:
    """What the head of a request tells, which the codec claims; None if no codec does."""
    (headers, end_to_end), target = split_headers(request.raw_headers), request.raw_path
    shown = find_shown(headers, target)
    found = find_secrets(shown)
    return Arrival(
        endpoint=OTHER_ENDPOINT if codec is None else codec.name,
        method=tell_name(request.method, found),
        path=target if codec is not None and target in codec.paths else tell_path(target, found),
        target=target,
        headers=headers,
        end_to_end=end_to_end,
        secrets=found,
        tenant=tenancy.identify(headers, target, shown),
        request_id=secrets.token_hex(12),
        started_at=time.monotonic(),
    )


def find_secrets(shown: Shown) -> frozenset[str]:
    """The credentials among what a request shows, without the names of their schemes."""
    values = [value for name, value in shown if name not in GUESSABLE_NAMES or name == COOKIE]
    values += [unquote(value) for value in values if "%" in value]
    words = [word for value in values for word in _BETWEEN_WORDS.split(value)]
    words += [word.partition("=")[2] for word in words if "=" in word]  # of a cookie, what stands behind its name
    found = (word for word in words if len(word) >= MIN_SECRET_CHARS)
    return frozenset(islice(dict.fromkeys(found), MAX_SECRETS))


def tell_name(name: str, found: frozenset[str]) -> str:
    """A name as it may be logged; `***` stands for each secret that was `found`."""
    name = name[:MAX_READ_CHARS]
    for secret in sorted(found, key=len, reverse=True):
        name = name.replace(secret, "***")
    name = _cut(name)
    return name if name.isprintable() else escape(name)


def tell_path(target: str, found: frozenset[str] = frozenset()) -> str:
    """The path of a request target, without its query; `*` stands for each part that may be an identifier or a key."""
    path = re.split("[?#]", origin_form(target), maxsplit=1)[0]
    parts = (part if _PLAIN_PART.fullmatch(part) and part not in found else "*" for part in path.split("/"))
    return _cut("/".join(parts))


def tell_upstream(name: str | None, base_url: str) -> str:
    """The name that the configuration gives to an upstream; of the main one, which has none, the host and port."""
    return name or urlsplit(base_url).netloc


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CHARS else text[:MAX_CHARS] + "…"
