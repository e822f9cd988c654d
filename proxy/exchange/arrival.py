"""The head of a request, and which parts of it may be logged.

Law: a logged value is one line of bounded length, without control characters and without a credential.
"""

import os
import re
import time
from base64 import b64decode
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
from aiohttp import web
from aiohttp.typedefs import RawHeaders
from multidict import CIMultiDict

from trimtab.proxy.account.outcome import ID_BYTES
from trimtab.proxy.account.redact import MIN_SECRET_CHARS
from trimtab.proxy.config.schema import Config, UpstreamConfig
from trimtab.proxy.http.client import origin_form
from trimtab.proxy.http.credentials import COOKIE, GUESSABLE_NAMES, Shown, find_shown
from trimtab.proxy.http.headers import Headers, request_headers, split_headers
from trimtab.proxy.http.tenancy import Tenancy, Tenant
from trimtab.proxy.telemetry.logs import escape
from trimtab.proxy.wire.codec import Codec
from trimtab.proxy.wire.routing import MESSAGES, Endpoint, find_endpoint

MAX_CHARS = 128  # Longest logged name or path. Chosen: longer than real ones.
MAX_READ_CHARS = 64 * 1024  # Of a name, searched for credentials. Chosen: the server accepts no header this long.
MAX_SECRETS = 64  # Of one request, sought in names. Chosen: more than real clients send; each costs a search.
MAX_KEPT_BYTES = 8 * 1024  # A larger head is not kept for the next one. Chosen: above real heads; bounds the memory.
MAX_UPSTREAMS = 4  # Whose route is kept with one head. Chosen: clients rarely use more on one connection.
IDS_AT_ONCE = 64  # chosen: a few bytes for each
LENGTH = "content-length"
_BETWEEN_WORDS = re.compile(r"[\s;]+")
_PLAIN_PART = re.compile(r"[a-z_]{0,24}|v\d{1,2}((alpha|beta)\d{0,2})?|\.{1,2}")
"""A path segment that is a plain word or an API version, so neither an identifier nor a key."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody who has a request compacted, and sends it to a model. texts: summaries that it has got, by id."""

    summary: str = "ask"
    texts: Mapping[str, str] = field(default_factory=dict, repr=False)


class Arrival(msgspec.Struct, frozen=True):
    """A request whose head has arrived.

    endpoint: its name in metrics and log lines: that of the codec that claims the request, else that of a known API.
    passed: what is known of the request if no codec claims it; None if a codec does.
    method, path: in the form that may be logged. target: as sent. started_at: seconds of the monotonic clock.
    headers: all headers in wire order; end_to_end: without the hop-by-hop ones.
    named: the first header of each name, in lower case. Content-Length may be that of an earlier request.
    caller: set if the answer is the compacted request itself.
    budget: what the answer says of a budget that is spent; else empty.
    """

    endpoint: str
    method: str
    path: str
    target: str
    headers: Headers
    end_to_end: Headers
    named: Mapping[str, str]
    secrets: frozenset[str]
    tenant: Tenant
    request_id: str
    started_at: float
    head: "Head"
    passed: Endpoint | None = None
    caller: Caller | None = None
    budget: str = ""

    @property
    def is_messages(self) -> bool:
        """Whether the request is of the Messages API, which has headers of its own for credentials."""
        return self.endpoint == MESSAGES

    def forward(self, upstream: UpstreamConfig) -> CIMultiDict[str]:
        """Headers for an upstream, which ask for an uncompressed response. The caller may change them."""
        forwarded = self.head.forward(upstream, is_messages=self.is_messages).copy()
        length = self.headers[self.head.length_at] if self.head.length_at >= 0 else None
        if length is not None and LENGTH in forwarded and forwarded[LENGTH] != length[1]:
            forwarded[length[0]] = length[1]
        return forwarded

    def tell_name(self, name: str, own: Collection[str] = ()) -> tuple[str, bool]:
        """A name for the log, with `***` for credentials, and whether it has any: then no other client may see it.

        own: the credentials of the configuration in this name.
        """
        found = self.secrets.union(own) if own else self.secrets
        return tell_name(name, found), bool(own) or any(secret in name for secret in found)


class Head(msgspec.Struct, eq=False):
    """A parsed head, kept for the next request of its connection, which mostly differs in Content-Length only.

    After any other difference, even of one byte, the head is parsed again. A head never outlives its connection and is
    not used for another one.

    length_at, further_at: index of Content-Length in `raw` and in `end_to_end`; -1 if it is absent.
    forwarded: headers for each upstream, made once. routes: the route of each model, chosen once.
    admitted_by: the configuration by which a request with this head is not of another site's page; None before.
    codec: the one that claims its path by the configuration of the newest request; None if no codec does.
    """

    raw: RawHeaders
    method: str
    target: str
    told_method: str
    told_path: str
    tenancy: Tenancy
    headers: Headers
    end_to_end: Headers
    secrets: frozenset[str]
    tenant: Tenant
    length_at: int
    further_at: int
    named: Mapping[str, str]
    forwarded: list[tuple[UpstreamConfig, CIMultiDict[str]]] = msgspec.field(default_factory=list)
    routes: dict[str, object] = msgspec.field(default_factory=dict)
    admitted_by: Config | None = None
    codec: Codec | None = None

    def continues(self, request: web.BaseRequest, tenancy: Tenancy) -> bool:
        """Whether the request has this head, except for Content-Length."""
        if (request.raw_path, request.method) != (self.target, self.method) or tenancy is not self.tenancy:
            return False
        raw, at = request.raw_headers, self.length_at
        if raw == self.raw:
            return True
        is_alike = at >= 0 and len(raw) == len(self.raw) and raw[at][0] == self.raw[at][0]
        return is_alike and raw[:at] == self.raw[:at] and raw[at + 1 :] == self.raw[at + 1 :]

    def with_length(self, raw: RawHeaders) -> tuple[Headers, Headers]:
        if self.length_at < 0 or raw is self.raw:
            return self.headers, self.end_to_end
        length = (self.headers[self.length_at][0], raw[self.length_at][1].decode("ascii", "surrogateescape"))
        headers, further = [*self.headers], [*self.end_to_end]
        headers[self.length_at] = length
        if self.further_at >= 0:
            further[self.further_at] = length
        return headers, further

    def forward(self, upstream: UpstreamConfig, *, is_messages: bool) -> CIMultiDict[str]:
        """Headers for an upstream. The caller must not change them. The path decides `is_messages`."""
        for known, headers in self.forwarded:
            if known is upstream:
                return headers
        headers = request_headers(self.end_to_end, upstream, identity=True, is_messages=is_messages)
        if len(self.forwarded) < MAX_UPSTREAMS:
            self.forwarded.append((upstream, headers))
        return headers


def find_head(request: web.BaseRequest, tenancy: Tenancy) -> Head | None:
    """The head of the connection's last request, if this one has it, too."""
    head: Head | None = getattr(getattr(request, "protocol", None), "head", None)
    return head if head is not None and head.continues(request, tenancy) else None


def _keep_head(request: web.BaseRequest, tenancy: Tenancy) -> Head:
    head = read_head(request, tenancy)
    connection: Any = getattr(request, "protocol", None)
    if hasattr(connection, "head"):
        connection.head = head if sum(map(len, chain.from_iterable(head.raw))) <= MAX_KEPT_BYTES else None
    return head


def _draw_ids() -> Iterator[str]:
    """Random ids without end. The system is asked for many at once: asked each time, it took 1 % of a small request."""
    while True:
        drawn = os.urandom(IDS_AT_ONCE * ID_BYTES).hex()
        for start in range(0, len(drawn), 2 * ID_BYTES):
            yield drawn[start : start + 2 * ID_BYTES]


_IDS = _draw_ids()  # drawn at the first request, so each worker, which is forked before that, has its own


def read_arrival(request: web.BaseRequest, codec: Codec | None, tenancy: Tenancy, found: Head | None = None) -> Arrival:
    """Read the head of a request. codec: the one that claims its path, or None. found: the result of `find_head`."""
    head = found or find_head(request, tenancy) or _keep_head(request, tenancy)
    head.codec = codec
    headers, end_to_end = head.with_length(request.raw_headers)
    passed = find_endpoint(request.method, request.path) if codec is None else None
    return Arrival(
        endpoint=codec.name if codec is not None else passed.label if passed is not None else "",
        method=head.told_method,
        path=head.told_path,
        target=head.target,
        headers=headers,
        end_to_end=end_to_end,
        named=head.named,
        secrets=head.secrets,
        tenant=head.tenant,
        request_id=next(_IDS),
        started_at=time.monotonic(),
        head=head,
        passed=passed,
    )


def read_head(request: web.BaseRequest, tenancy: Tenancy) -> Head:
    raw, target = request.raw_headers, request.raw_path
    headers, end_to_end = split_headers(raw)
    shown = find_shown(headers, target)
    lengths = [at for at, (name, _) in enumerate(headers) if name.lower() == LENGTH]
    further = [at for at, (name, _) in enumerate(end_to_end) if name.lower() == LENGTH]
    tenant = tenancy.identify(headers, target, shown)
    length_at, further_at = (lengths[0] if len(lengths) == 1 else -1), (further[0] if len(further) == 1 else -1)
    secrets = find_secrets(shown)
    return Head(
        raw=raw,
        method=request.method,
        target=target,
        told_method=tell_name(request.method, secrets),
        told_path=tell_path(target, secrets),
        tenancy=tenancy,
        headers=headers,
        end_to_end=end_to_end,
        secrets=secrets,
        tenant=tenant,
        length_at=length_at,
        further_at=further_at,
        named={name.lower(): value for name, value in reversed(headers)},
    )


def find_secrets(shown: Shown) -> frozenset[str]:
    """The credentials in the given headers, without scheme names such as `Bearer`."""
    values = [value for name, value in shown if name not in GUESSABLE_NAMES or name == COOKIE]
    values += [unquote(value) for value in values if "%" in value]
    words = [word for value in values for word in _BETWEEN_WORDS.split(value)]
    words += chain.from_iterable(_decode_basic(value) for value in values if value[:6].lower() == "basic ")
    words += [word.partition("=")[2] for word in words if "=" in word]  # the value of a cookie
    found = (word for word in words if len(word) >= MIN_SECRET_CHARS)
    return frozenset(islice(dict.fromkeys(found), MAX_SECRETS))


def find_path_keys(headers: Headers, target: str) -> frozenset[str]:
    """The parts of the path that count as a key: long ones, if the request has no other credential."""
    parts = [value for name, value in find_shown(headers, target) if name == "/"]
    return frozenset(part for each in parts for part in (each, unquote(each)) if not _PLAIN_PART.fullmatch(part))


def tell_name(name: str, found: frozenset[str]) -> str:
    """A name in the form for the log; `***` replaces each secret in `found`."""
    name = name[:MAX_READ_CHARS]
    for secret in sorted(found, key=len, reverse=True):
        name = name.replace(secret, "***")
    name = _cut(name)
    return name if name.isprintable() else escape(name)


def tell_path(target: str, found: frozenset[str] = frozenset()) -> str:
    """The path of a request target without its query; `*` replaces each part that may be an identifier or a key."""
    path = re.split("[?#]", origin_form(target), maxsplit=1)[0]
    parts = (part if _PLAIN_PART.fullmatch(part) and part not in found else "*" for part in path.split("/"))
    return _cut("/".join(parts))


def tell_upstream(name: str | None, base_url: str) -> str:
    """An upstream's name in the configuration; host and port for the main upstream, which has no name."""
    return name or urlsplit(base_url).netloc


def _decode_basic(value: str) -> tuple[str, ...]:
    """The password of Basic credentials (RFC 7617), and the user, because some services take their key there."""
    try:
        user, _, password = b64decode(value[6:].strip()).decode("utf-8", "surrogateescape").partition(":")
    except ValueError:
        return ()
    return password, user


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CHARS else text[:MAX_CHARS] + "…"
