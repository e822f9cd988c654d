"""Fuzzes other outside input: URLs and headers of requests, and the content of a store.

Laws: no path leads to another host. No hop-by-hop header is forwarded. Garbage in a store is ignored, and never raises.
"""

from fuzzing.choices import DAMAGES, Choices
from yarl import URL

from trimtab.proxy.config.schema import UpstreamConfig
from trimtab.proxy.http.client import target_url
from trimtab.proxy.http.credentials import find_query_keys, find_shown, keep_credentials
from trimtab.proxy.http.errors import PathNotAllowedError
from trimtab.proxy.http.headers import HOP_BY_HOP, read_headers, request_headers
from trimtab.proxy.models.records import MAX_RATIO, _decode
from trimtab.proxy.summaries.sealing import seal, unseal
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.rules.summary.request import Summary

_UPSTREAMS = (UpstreamConfig(base_url="http://up:1/v1"), UpstreamConfig(base_url="https://up/a/v1", api_key="sk-own"))
_PATHS = (
    "/v1", "/v1/", "/", "//", "\\", "evil.example", "@", ":", "?", "#", "%", "%2f", "%00", "..", "/chat/completions",
    "http://", "https:", "[", "]", "\u00e9", "\udcff", " ", "\t", "*", ";", "&", "=", "a", "//evil.example/",
    "http://u:p@evil.example:9/v1/x", "/v1/models",
    "key=", "k%65y", "access_token=a",
)  # fmt: skip
_NAMES = (
    b"x_goog_api_key", b"Cookie", b"X-Acme-Token",
    b"Connection", b"X-A", b"Authorization", b"api-key", b"Host", b"Content-Length", b"Expect", b"TE",
    b"Accept-Encoding", b"X-Trimtab-Mode", b"x-api-key", b"Keep-Alive", b"Upgrade", b"\xff",
)  # fmt: skip
_HEADER_VALUES = (
    b"X-A, close", b"close", b"Bearer sk-1", b"Bearer", b"", b" ", b"\xff\xfe", b"Host", b",,", b"identity", b"5",
)  # fmt: skip
_RECORDS = (
    b'{"ratio":1.0}',
    b'{"ratio":1e999}',
    b'{"ratio":0}',
    b'{"ratio":1.5,"window_tokens":1023}',
    b'{"ratio":2,"calibrated":true}',
)
_SECRET, _ID = b"s" * 32, "an id"
_SEALED = seal(_SECRET, _ID, Summary("a text \ud800", by_model=True))


def fuzz_addresses(data: bytes) -> None:
    """A path and headers as received, for an upstream with or without a configured key."""
    choices = Choices(data)
    upstream = choices.pick(_UPSTREAMS)
    path = "".join(choices.pick(_PATHS) for _ in range(1 + choices.below(6)))
    if not path.startswith("/") and not _is_url(path):
        return
    try:
        url = target_url(upstream, path, is_api=choices.happens(128))
    except PathNotAllowedError:
        assert upstream.api_key is not None, "a path was refused although no key would be sent"
        return
    assert url.origin() == URL(upstream.base_url).origin(), "another host"
    assert url.user is None, "a user name that is not the upstream's"
    raw = [(choices.pick(_NAMES), choices.pick(_HEADER_VALUES)) for _ in range(choices.below(8))]
    headers = read_headers(raw)
    sent = request_headers(headers, upstream, identity=choices.happens(128))
    names = {name.lower() for name in sent}
    assert not names & (HOP_BY_HOP | {"host", "expect"}), "a hop-by-hop header was forwarded"
    assert not any(name.startswith("x-trimtab-") for name in names), "a header of trimtab was forwarded"
    if upstream.api_key is not None:
        assert keep_credentials(sent.items()) == [("Authorization", "Bearer sk-own")], (
            "the client's credential was forwarded"
        )
        assert not find_query_keys(url.raw_path), "a key in the query was forwarded"
    known = {name.lower().replace("_", "-") for name, _ in headers}
    assert all(name in known for name, _ in find_shown(headers) if name != "/"), "a credential that no header contains"
    CHAT.peek_model(choices.take(20) + b'{"model" : "m' + choices.rest())


def _is_url(path: str) -> bool:
    """Whether the HTTP library accepts it; it answers 400 to a URL that it cannot parse."""
    try:
        return bool(URL(path, encoded=True).scheme)
    except ValueError:
        return False


def fuzz_stored(data: bytes) -> None:
    """Content of a store: a summary sealed with another secret, a damaged one, other bytes; and records likewise."""
    choices = Choices(data)
    kind = choices.below(4)
    sealed = choices.mutate(_SEALED) if kind == 1 else _SEALED[:1] + choices.rest() if kind == 2 else choices.rest()
    found = unseal(_SECRET, _ID, sealed)
    assert (found is not None) == (sealed == _SEALED), "a damaged summary was opened"
    assert unseal(b"t" * 32, _ID, _SEALED) is None, "a summary was opened with another secret"
    encoded = choices.pick(_RECORDS)
    record = _decode(choices.mutate(encoded) if kind == 3 else encoded + choices.pick(DAMAGES) if kind == 2 else data)
    if record is not None:
        assert 1 / MAX_RATIO <= record.ratio <= MAX_RATIO, "a ratio out of bounds"
        assert record.window_tokens is None or record.window_tokens >= 1024, "a window out of bounds"
