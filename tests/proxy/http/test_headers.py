"""Which headers are forwarded."""

import sys
from datetime import UTC, datetime
from email.utils import format_datetime
from hashlib import sha256

import pytest
from multidict import CIMultiDict

from trimtab.proxy.config.schema import UpstreamConfig
from trimtab.proxy.config.values import HASHED
from trimtab.proxy.http.headers import (
    MAX_SHOWN,
    add_to_lists,
    drop_hop_by_hop,
    find_key,
    keep_for_session,
    read_headers,
    read_retry_after,
    request_headers,
    write_key,
)

PLAIN = UpstreamConfig(base_url="http://up:1/v1")
KEYED = UpstreamConfig(base_url="http://up:1/v1", api_key="sk-own")


def _headers(*lines: str) -> list[tuple[str, str]]:
    return [(name, value) for name, _, value in (line.partition(": ") for line in lines)]


def test_headers_are_read_as_they_are() -> None:
    raw = ((b"X-A", b"1"), (b"x-a", b"2"), (b"X-B", "ü".encode()), (b"X-C", b"\xff"))

    headers = read_headers(raw)
    assert headers == [("X-A", "1"), ("x-a", "2"), ("X-B", "ü"), ("X-C", "\udcff")]
    assert [value.encode("utf-8", "surrogateescape") for _, value in headers] == [value for _, value in raw]


def test_hop_by_hop_headers_stay_on_their_hop() -> None:
    """The standard ones and those that `Connection` names, which no other header does. Others keep their order."""
    headers = _headers(
        "Set-Cookie: a", "Connection: close, X-Hop", "KEEP-ALIVE: 5", "x-hop: 1", "TE: trailers", "Set-Cookie: b",
        "Trailer: x", "Transfer-Encoding: chunked", "Upgrade: h2c", "Proxy-Authorization: p", "Proxy-Connection: c",
        "Proxy-Authenticate: q", "connection: X-Other", "X-Other: 2", "X-Kept: 3",
    )  # fmt: skip

    assert drop_hop_by_hop(headers) == _headers("Set-Cookie: a", "Set-Cookie: b", "X-Kept: 3")

    headers = _headers("X-Settings: x-a", "Xonnection: x-a", "Connection: x-b ,X-C", "X-A: 1", "X-B: 2", "X-C: 3")

    assert drop_hop_by_hop(headers) == _headers("X-Settings: x-a", "Xonnection: x-a", "X-A: 1")


def test_a_request_passes_as_it_is() -> None:
    headers = _headers(
        "Host: proxy", "X-Twice: 1", "Authorization: Bearer mine", "Content-Length: 5", "x-twice: 2", "Expect: 100",
        "X-Trimtab-Mode: off", "Accept-Encoding: gzip, br", "Connection: x-twice-not", "User-Agent: me",
    )  # fmt: skip
    kept = _headers(
        "X-Twice: 1", "Authorization: Bearer mine", "Content-Length: 5", "X-Twice: 2", "Accept-Encoding: gzip, br",
        "User-Agent: me",
    )  # fmt: skip

    assert list(request_headers(headers, PLAIN, identity=False).items()) == kept


def test_identity_replaces_every_encoding_that_the_client_takes() -> None:
    headers = _headers("accept-encoding: gzip", "X-A: 1", "Accept-Encoding: br")

    forwarded = request_headers(headers, PLAIN, identity=True)
    assert list(forwarded.items()) == _headers("Accept-Encoding: identity", "X-A: 1")
    assert request_headers([], PLAIN, identity=True).getall("accept-encoding") == ["identity"]


def test_the_upstreams_own_key_replaces_every_credential() -> None:
    """The client's key is not forwarded, in whatever header it came; neither is an account that it names."""
    headers = _headers(
        "authorization: Bearer theirs", "API-Key: theirs", "x-api-key: theirs", "X_Goog_Api_Key: theirs", "Cookie: a=b",
        "OpenAI-Project: theirs", "X-Acme-Token: theirs", "Idempotency-Key: 1", "X-A: ",
    )  # fmt: skip

    assert list(request_headers(headers, KEYED, identity=False).items()) == _headers(
        "Idempotency-Key: 1", "X-A: ", "Authorization: Bearer sk-own"
    )
    assert list(request_headers([], KEYED, identity=False).items()) == _headers("Authorization: Bearer sk-own")


def test_an_upstream_that_is_to_be_shown_nothing_is_shown_nothing() -> None:
    """The default of a named upstream. The rest of the request passes unchanged."""
    headers = _headers("Authorization: Bearer theirs", "X-A: 1", "Sec-WebSocket-Protocol: realtime, openai-project.p")
    for upstream in (PLAIN.named(), PLAIN.model_copy(update={"credential": "none"})):
        forwarded = request_headers(headers, upstream, identity=False)
        assert list(forwarded.items()) == _headers("X-A: 1", "Sec-WebSocket-Protocol: realtime")


BEARER, ANTHROPICS, AZURES = ("Authorization", "Bearer k"), ("x-api-key", "k"), ("api-key", "k")


@pytest.mark.parametrize(
    ("host", "chat", "messages"),
    [
        ("api.openai.com", [BEARER], [ANTHROPICS, BEARER]),
        ("127.0.0.1:8000", [BEARER], [ANTHROPICS, BEARER]),
        ("api.anthropic.com", [ANTHROPICS], [ANTHROPICS]),
        ("name.openai.azure.com", [AZURES], [AZURES]),
        ("name.services.ai.azure.com", [AZURES], [AZURES]),
    ],
)
def test_a_key_is_where_the_server_looks_for_it(host: str, chat: object, messages: object) -> None:
    """A known provider has one place for it. At other servers, requests of the Messages API have it in two."""
    upstream = UpstreamConfig(base_url=f"https://{host}/v1", api_key="k")

    assert write_key("k", upstream) == chat
    assert write_key("k", upstream, is_messages=True) == messages
    for is_messages, expected in ((False, chat), (True, messages)):
        theirs = _headers("X-Api-Key: theirs", "api-key: theirs", "Authorization: Bearer theirs")
        forwarded = request_headers(theirs, upstream, identity=False, is_messages=is_messages)
        assert list(forwarded.items()) == expected


def test_a_clients_own_credential_stays_in_its_own_header() -> None:
    for headers in (_headers("x-api-key: theirs"), _headers("Authorization: Bearer theirs")):
        assert list(request_headers(headers, PLAIN, identity=False, is_messages=True).items()) == headers


def test_a_request_of_our_own_is_one_of_the_clients_session() -> None:
    """It has all that says who asks, with what and for which session; not what belongs to one request."""
    kept = _headers(
        "Anthropic-Version: 2023-06-01", "anthropic-beta: a,b", "OpenAI-Beta: c", "X-Session-Id: s", "User-Agent: me",
        "x-api-key: theirs", "OpenAI-Organization: o", "x-app: cli", "originator: codex", "session_id: s",
    )  # fmt: skip
    others = _headers(
        "x-note: about this request", "Content-Type: text/plain", "Content-Length: 7", "Accept: text/html",
        "Accept-Encoding: br", "Idempotency-Key: k",
        "traceparent: 00", "X-Request-Id: r", "If-None-Match: e", "Range: bytes=0-", "X-Stainless-Retry-Count: 1",
    )  # fmt: skip

    assert keep_for_session([*kept, *others]) == kept


KEYS = ("key-one", "key-two")


@pytest.mark.parametrize(
    ("headers", "key"),
    [
        ([("Authorization", "Bearer key-two")], "key-two"),
        ([("AUTHORIZATION", "bearer  key-one")], "key-one"),
        ([("api-key", "key-one"), ("x-api-key", "key-two")], "key-one"),
        ([("x-trimtab-key", "key-two"), ("Authorization", "Bearer another")], "key-two"),
        ([("X-Goog-Api-Key", "key-two")], "key-two"),
        ([("Authorization", "key-one")], None),
        ([("Authorization", "Bearer KEY-ONE")], None),
        ([("Authorization", "Bearer key-one, key-two")], None),
        ([("Authorization", "Basic a2V5LW9uZTo=")], None),
        ([("Authorization", "Bearer "), ("api-key", ""), ("x-trimtab-key", "é")], None),
        ([("x-auth-token", "key-one"), ("Cookie", "key-one")], None),
        ([("api-key", "key-on"), ("x-key", "key-one")], None),
    ],
)
def test_a_key_is_found_wherever_a_client_may_show_it(headers: list[tuple[str, str]], key: str | None) -> None:
    """Only whole keys, only there. Of several, the first in the configuration counts."""
    assert find_key(KEYS, headers) == key


def test_ten_thousand_keys_cost_no_more_than_two() -> None:
    """The keys are not walked, not even to find out that they are the same as before."""

    class Key(str):
        __slots__ = ()

        def __hash__(self) -> int:
            raise AssertionError

    keys = tuple(Key(f"key-{number}") for number in range(10_000))
    assert find_key(keys, [("api-key", "key-9999")]) is keys[-1]

    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        found = find_key(keys, [("api-key", "wrong"), ("x-api-key", "key-9999")])
    finally:
        sys.setprofile(None)
    assert found is keys[-1]
    assert calls < 100


def test_of_several_keys_the_first_of_the_first_few_counts() -> None:
    """Also if one of them is written as its hash. Real clients do not send more."""
    keys = ("other", f"{HASHED}{sha256(b'same').hexdigest()}", "same")

    assert find_key(keys, [("api-key", "same")]) == keys[1]

    shown = [("api-key", f"wrong-{number}") for number in range(MAX_SHOWN)]

    assert find_key(KEYS, [*shown, ("api-key", "key-one")]) is None


NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "20"}, 20.0),
        ({"Retry-After": "0.5"}, 0.5),
        ({"Retry-After": format_datetime(datetime.fromtimestamp(NOW + 90, UTC), usegmt=True)}, 90.0),
        ({"Retry-After": format_datetime(datetime.fromtimestamp(NOW - 90, UTC), usegmt=True)}, 0.0),
        ({"Retry-After": "20", "retry-after-ms": "1500"}, 1.5),
        *(
            ({"Retry-After": value}, None)
            for value in ("", "-1", "nan", "inf", "soon", "Fri, 99 Nov 2023 99:99:99 GMT")
        ),
        ({}, None),
    ],
)
def test_the_time_is_in_seconds_from_now(headers: dict[str, str], seconds: float | None) -> None:
    """A date that has passed is no wait; an invalid value is none."""
    assert read_retry_after(CIMultiDict(headers), NOW) == seconds


# Values that are added to headers which are lists.


def test_a_value_is_added_to_the_clients_own_once() -> None:
    """Several headers of the name become one; a value that is there already is not repeated."""
    headers = CIMultiDict([("Anthropic-Beta", "a, b"), ("anthropic-beta", "c")])
    add_to_lists(headers, [("anthropic-beta", "b")])
    assert headers.getall("anthropic-beta") == ["a, b", "c"]
    add_to_lists(headers, [("anthropic-beta", "d"), ("x", "y")])
    assert (headers.getall("anthropic-beta"), headers["x"]) == (["a, b, c, d"], "y")
