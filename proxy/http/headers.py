"""Headers: which are forwarded to an upstream, and what those of keys and waiting times say.

Law: the client's credential goes only to upstreams that are configured to get it. Hop-by-hop headers are never
forwarded; everything else passes unchanged. A client's key is compared by its hash, so the time says nothing of it.
None is ever written anywhere. A waiting time that cannot be read counts as absent.
"""

from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from functools import lru_cache
from hashlib import sha256
from itertools import islice
from math import isfinite

from multidict import CIMultiDict

from trimtab.proxy.config.policy import Same
from trimtab.proxy.config.schema import UpstreamConfig
from trimtab.proxy.config.values import HASHED
from trimtab.proxy.http.credentials import IDENTITY_NAMES, drop_credentials, is_credential, plain

HOP_BY_HOP = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
    "transfer-encoding", "upgrade",
})  # fmt: skip
"""Source: RFC 9110 section 7.6.1. `proxy-connection` is not standard, but browsers send it."""
NOT_FORWARDED = HOP_BY_HOP | {"host", "content-length", "expect"}
"""Request headers that end at this hop, or that are written again for the next one."""
MAX_HEAD_BYTES = 64 * 1024  # Of a request or response. Chosen among others: Node 16 KiB, nginx 32, curl 300, Go 1 MiB.
MAX_HEADER_FIELDS = 1000  # With trailers. Chosen: Apache and http.client take 100, most others have no limit.
OWN_PREFIX = "x-trimtab-"
KEY_HEADER = f"{OWN_PREFIX}key"  # For clients with the upstream's key in `Authorization`; never forwarded
OUTCOME_HEADER = "x-trimtab-outcome"  # What was done to a request: a value of the metrics' label `outcome`
SESSION_HEADERS = frozenset({
    "accept-language", "conversation-id", "cookie", "http-referer", "originator", "sec-fetch-mode", "session-id",
    "thread-id", "user-agent", "version", "x-affinity", "x-app", "x-client-request-id", "x-client-version",
    "x-grok-conv-id", "x-initiator",
    "x-session-affinity", "x-session-id", "x-title",
})  # fmt: skip
"""Headers that say who the client is and which session goes on.

Source: recorded requests of agents and SDKs; xAI, Fireworks and OpenRouter for the affinity of a session."""
SESSION_BEGINNINGS = (
    "anthropic-", "azure", "cf-", "chatgpt-", "copilot-", "editor-", "helicone-", "openai-", "x-amz-", "x-anthropic-",
    "x-azure-", "x-claude-", "x-codex-", "x-github-", "x-goog-", "x-litellm-", "x-ms-", "x-openai-", "x-portkey-",
    "x-stainless-", "x-vscode-",
)  # fmt: skip
"""Beginnings of the names of headers of providers, their clients and gateways."""
OF_ONE_REQUEST = ("x-amz-content-", "x-amz-date", "x-stainless-retry", "x-ms-client-request", "cf-ray", "cf-connecting")
"""Beginnings of the names of those among them that belong to one request."""

REWRITING_HEADERS = frozenset({
    "x-original-url", "x-rewrite-url", "x-original-uri", "x-override-url",  # IIS, Symfony, Zend, nginx
    "x-envoy-original-path", "x-forwarded-prefix",  # Envoy, Traefik
    "x-http-method-override", "x-http-method", "x-method-override",  # frameworks
})  # fmt: skip
"""Headers that make some servers use another path or method than the request's own. They are not sent together with the
operator's own key, because only the request's own path is checked (`is_allowed` in client.py)."""

CONNECTION = "connection"
Headers = Sequence[tuple[str, str]]


def read_headers(raw_headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Headers in wire order and case, with duplicates. Bytes that are not UTF-8 become surrogate escapes."""
    return [
        (name.decode("utf-8", "surrogateescape"), value.decode("utf-8", "surrogateescape"))
        for name, value in raw_headers
    ]


def drop_hop_by_hop(headers: Headers) -> Headers:
    """The headers without the hop-by-hop ones: those of HOP_BY_HOP and those that `Connection` names."""
    ending = HOP_BY_HOP
    for name, value in headers:
        if len(name) == len(CONNECTION) and name.lower() == CONNECTION:
            ending = ending.union(token.strip().lower() for token in value.split(","))
    return [item for item in headers if item[0].lower() not in ending]


def split_headers(raw_headers: Iterable[tuple[bytes, bytes]]) -> tuple[Headers, Headers]:
    headers = read_headers(raw_headers)
    return headers, drop_hop_by_hop(headers)


def keep_for_session(headers: Headers) -> Headers:
    """The client's headers that our own requests for its session have, too: the provider may need them."""
    return [
        item
        for item in headers
        if is_credential(name := plain(item[0]))
        or name in SESSION_HEADERS
        or name in IDENTITY_NAMES
        or (name.startswith(SESSION_BEGINNINGS) and not name.startswith(OF_ONE_REQUEST))
    ]


def write_key(key: str, upstream: UpstreamConfig, *, is_messages: bool = False) -> Headers:
    """The headers in which an upstream looks for a key: those of its provider, else those of the dialect.

    is_messages: the request is of the Messages API. Some servers of it look for the key where Anthropic does, others
        where OpenAI does.
    """
    bearer, anthropics = ("Authorization", f"Bearer {key}"), ("x-api-key", key)
    if upstream.provider == "azure":
        return [("api-key", key)]
    if upstream.provider == "anthropic":
        return [anthropics]
    return [anthropics, bearer] if is_messages else [bearer]


def request_headers(
    headers: Headers, upstream: UpstreamConfig, *, identity: bool, is_messages: bool = False
) -> CIMultiDict[str]:
    """The headers that the upstream receives, in the client's order.

    The client's credentials are forwarded only if the upstream's `credential` setting says so. `identity` asks the
    upstream for an uncompressed response. `is_messages`: as for `write_key`. A repeated header is spelt like its first
    occurrence, because aiohttp would drop it otherwise.
    """
    own: dict[str, tuple[str, str]] = {}
    if identity:
        own["accept-encoding"] = ("Accept-Encoding", "identity")
    shown, left_out = upstream.shown, frozenset({"host", "expect"})
    if shown == "key":
        shown_key = write_key(upstream.api_key or "", upstream, is_messages=is_messages)
        own |= {item[0].lower(): item for item in shown_key}
        left_out |= REWRITING_HEADERS
    spelt: dict[str, str] = {}
    forwarded: CIMultiDict[str] = CIMultiDict()
    further = drop_hop_by_hop(headers)
    for name, value in further if shown == "client" else drop_credentials(further):
        lower = name.lower().replace("_", "-")  # some servers treat `_` like `-`
        if lower in left_out or lower.startswith(OWN_PREFIX) or ("_" in name and lower in NOT_FORWARDED):
            continue
        if lower not in own:
            forwarded.add(spelt.setdefault(lower, name), value)
        elif own[lower][0] not in forwarded:
            forwarded.add(*own[lower])
    for name, value in own.values():
        forwarded.setdefault(name, value)
    return forwarded


def add_to_lists(headers: CIMultiDict[str], added: Headers) -> None:
    for name, value in added:
        listed = headers.getall(name, [])
        if value not in [one.strip() for each in listed for one in each.split(",")]:
            headers[name] = ", ".join([*listed, value])


MAX_SHOWN = 8  # Credentials of one request that are compared. Chosen: real clients send one or two; bounds the work.
ADMITTING_HEADERS = frozenset({KEY_HEADER, "api-key", "x-api-key", "x-goog-api-key"})
"""Headers for a key other than `Authorization`: trimtab's own, Azure's, Anthropic's and Google's."""
_BEARER, _BASIC = "bearer ", "basic "


def find_key(keys: tuple[str, ...], headers: Headers, *, takes_basic: bool = False) -> str | None:
    """The first of the configured keys that the request holds; None if it holds none of them.

    takes_basic: the key may be the password of basic authentication, which browsers ask people for.

    A configured key may be a hash of the key; what is sent is hashed, so the hash itself admits nobody. Only hashes are
    compared, so the time taken says nothing of how much of a wrong key is right.
    """
    shown = [_hash(value) for value in islice(_find_shown(headers, takes_basic=takes_basic), MAX_SHOWN)]
    places = _place_hashes(Same(keys))
    found = [places[value] for value in shown if value in places]
    return keys[min(found)] if found else None


def _find_shown(headers: Headers, *, takes_basic: bool) -> Iterable[str]:
    for name, value in headers:
        lower = name.lower()
        if lower == "authorization":
            if value[: len(_BEARER)].lower() == _BEARER:
                yield value[len(_BEARER) :].strip(" \t")
            elif takes_basic and value[: len(_BASIC)].lower() == _BASIC:
                with suppress(ValueError):  # it is no name and password in Base64 and UTF-8 (RFC 7617)
                    decoded = b64decode(value[len(_BASIC) :].strip(" \t"), validate=True).decode()
                    yield from decoded.split(":", 1)[1:]
        elif lower in ADMITTING_HEADERS:
            yield value


@lru_cache(64)
def _place_hashes(keys: Same[tuple[str, ...]]) -> dict[bytes, int]:
    """The first place of each key by its hash; kept by the identity of `keys`: to hash a long tuple takes longest."""
    hashed = [bytes.fromhex(key.removeprefix(HASHED)) if key.startswith(HASHED) else _hash(key) for key in keys.value]
    return {one: at for at, one in reversed([*enumerate(hashed)])}


def _hash(key: str) -> bytes:
    # Hashes have one length, so the time of a comparison does not reveal the length of a key.
    return sha256(key.encode("utf-8", "surrogateescape")).digest()


BUSY = frozenset({429, 503, 529})  # A later attempt may succeed. Source: RFC 6585, RFC 9110; 529 is Anthropic's.
_MILLISECONDS = "retry-after-ms"  # source: Azure OpenAI, which OpenAI's SDKs read first


def read_retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds from `now` (since 1970); None if no valid time is named. Source: RFC 9110 section 10.2.3."""
    milliseconds = _read_number(headers.get(_MILLISECONDS))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _read_number(value)
    if seconds is not None or value is None:
        return seconds
    try:
        return max(parsedate_to_datetime(value).timestamp() - now, 0.0)
    except (ValueError, OverflowError):
        return None


def _read_number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if isfinite(number) and number >= 0 else None
