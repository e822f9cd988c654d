"""A request as its head tells, and what of it may stand in the log.

Law: what may be logged is on one line, of bounded length, without a character that a terminal would obey, and without a
credential.
"""

import os
import re
import time
from dataclasses import dataclass, field
from itertools import chain, islice
from urllib.parse import unquote, urlsplit

from aiohttp import web
from aiohttp.typedefs import RawHeaders
from multidict import CIMultiDict

from proxy.config.schema import UpstreamConfig
from proxy.http.client import origin_form
from proxy.http.credentials import COOKIE, GUESSABLE_NAMES, Shown, find_shown
from proxy.http.headers import Headers, request_headers, split_headers
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
ID_BYTES = 12
MAX_KEPT_BYTES = 8 * 1024
"""A larger head is read again each time, and not held between two requests of its connection."""
MAX_UPSTREAMS = 4
"""For which what is forwarded of one head is kept."""
KEPT = "head"
LENGTH = "content-length"
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
    head: "Head | None" = field(default=None, repr=False, compare=False)

    def forward(self, upstream: UpstreamConfig) -> CIMultiDict[str]:
        """The headers that an upstream receives, uncompressed answers asked for: the caller's own, to be changed."""
        if self.head is None:
            return request_headers(self.end_to_end, upstream, identity=True)
        forwarded = self.head.forward(upstream).copy()
        length = self.head.find_length(self.headers)
        if length is not None and LENGTH in forwarded and forwarded[LENGTH] != length[1]:
            forwarded[length[0]] = length[1]
        return forwarded

    def tell_name(self, name: str) -> tuple[str, bool]:
        """A name that the client gave, a model's say, as it may be logged; `***` stands for a credential.

        And whether there is one of the same request in it: then it must not be shown to anybody else.
        """
        return tell_name(name, self.secrets), any(secret in name for secret in self.secrets)


@dataclass(frozen=True, slots=True)
class Head:
    """What a head tells, but for its Content-Length: the next one of the same connection is mostly the same.

    Read again for any other difference, by a single byte. It lives as long as its connection at most, and tells nothing
    to any other. `length_at` is where the length stands in `raw`, `further_at` where in `end_to_end`; -1 if it does
    not.
    """

    raw: RawHeaders
    method: str
    target: str
    tenancy: Tenancy
    headers: Headers
    end_to_end: Headers
    secrets: frozenset[str]
    tenant: Tenant
    length_at: int
    further_at: int
    forwarded: list[tuple[UpstreamConfig, CIMultiDict[str]]] = field(default_factory=list)

    def continues(self, request: web.BaseRequest, tenancy: Tenancy) -> bool:
        """Whether a request has this head, but for its length."""
        if (request.raw_path, request.method) != (self.target, self.method) or tenancy is not self.tenancy:
            return False
        raw, at = request.raw_headers, self.length_at
        if raw == self.raw:
            return True
        is_alike = at >= 0 and len(raw) == len(self.raw) and raw[at][0] == self.raw[at][0]
        return is_alike and raw[:at] == self.raw[:at] and raw[at + 1 :] == self.raw[at + 1 :]

    def find_length(self, headers: Headers) -> tuple[str, str] | None:
        """The Content-Length among headers of this form."""
        return headers[self.length_at] if self.length_at >= 0 else None

    def with_length(self, raw: RawHeaders) -> tuple[Headers, Headers]:
        """Its headers, and those that go further, with the length that stands in `raw`."""
        if self.length_at < 0 or raw is self.raw:
            return self.headers, self.end_to_end
        length = (self.headers[self.length_at][0], raw[self.length_at][1].decode("ascii", "surrogateescape"))
        headers, further = [*self.headers], [*self.end_to_end]
        headers[self.length_at] = length
        if self.further_at >= 0:
            further[self.further_at] = length
        return headers, further

    def forward(self, upstream: UpstreamConfig) -> CIMultiDict[str]:
        """What an upstream receives of it. Not to be changed."""
        for known, headers in self.forwarded:
            if known is upstream:
                return headers
        headers = request_headers(self.end_to_end, upstream, identity=True)
        if len(self.forwarded) < MAX_UPSTREAMS:
            self.forwarded.append((upstream, headers))
        return headers


def read_arrival(request: web.BaseRequest, codec: Codec | None, tenancy: Tenancy) -> Arrival:
    """What the head of a request tells, which the codec claims; None if no codec does."""
    kept: dict[str, Head] | None = getattr(getattr(request, "protocol", None), "kept", None)
    head = kept.get(KEPT) if kept else None
    if head is None or not head.continues(request, tenancy):
        head = read_head(request, tenancy)
        if kept is not None:
            kept.clear()
            if sum(map(len, chain.from_iterable(head.raw))) <= MAX_KEPT_BYTES:
                kept[KEPT] = head
    headers, end_to_end = head.with_length(request.raw_headers)
    target = head.target
    return Arrival(
        endpoint=OTHER_ENDPOINT if codec is None else codec.name,
        method=tell_name(request.method, head.secrets),
        path=target if codec is not None and target in codec.paths else tell_path(target, head.secrets),
        target=target,
        headers=headers,
        end_to_end=end_to_end,
        secrets=head.secrets,
        tenant=head.tenant,
        request_id=os.urandom(ID_BYTES).hex(),
        started_at=time.monotonic(),
        head=head,
    )


def read_head(request: web.BaseRequest, tenancy: Tenancy) -> Head:
    """What the head of a request tells."""
    raw, target = request.raw_headers, request.raw_path
    headers, end_to_end = split_headers(raw)
    shown = find_shown(headers, target)
    lengths = [at for at, (name, _) in enumerate(headers) if name.lower() == LENGTH]
    further = [at for at, (name, _) in enumerate(end_to_end) if name.lower() == LENGTH]
    tenant = tenancy.identify(headers, target, shown)
    length_at, further_at = (lengths[0] if len(lengths) == 1 else -1), (further[0] if len(further) == 1 else -1)
    return Head(
        raw, request.method, target, tenancy, headers, end_to_end, find_secrets(shown), tenant, length_at, further_at
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
