"""What the head of a request shows, and the form in which it may be logged."""

from base64 import b64encode
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.journeys import TENANCY

from trimtab.proxy.config.schema import UpstreamConfig
from trimtab.proxy.exchange.arrival import (
    MAX_CHARS,
    MAX_KEPT_BYTES,
    MAX_READ_CHARS,
    MAX_SECRETS,
    MAX_UPSTREAMS,
    MIN_SECRET_CHARS,
    find_path_keys,
    find_secrets,
    read_arrival,
    tell_name,
    tell_path,
    tell_upstream,
)
from trimtab.proxy.http.credentials import find_shown
from trimtab.proxy.http.headers import request_headers
from trimtab.proxy.http.tenancy import Tenancy
from trimtab.proxy.wire.chat.codec import CHAT

KEY = "sk-PLANTED-KEY"
HEADERS = [("authorization", f"Bearer {KEY}"), ("X-Api-Key", "ollama"), ("x-trimtab-key", "planted_planted")]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("gpt-4o", "gpt-4o"),
        ("Qwen/Qwen2.5 7B", "Qwen/Qwen2.5 7B"),
        ("modèle-通义", "modèle-通义"),
        ("gpt\x1b[2J\r\nfake=line", "gpt\\x1b[2J\\r\\nfake=line"),
        ("gpt\u202e\u2028\x9b\ud800", "gpt\\u202e\\u2028\\x9b\\ud800"),
        ("x" * (MAX_CHARS + 1), "x" * MAX_CHARS + "…"),
        (KEY, "***"),
        (f"openai/{KEY}:x", "openai/***:x"),
        ("ollama/llama3", "ollama/llama3"),
    ],
)
def test_a_name_stands_as_it_was_given(name: str, told: str) -> None:
    """Exceptions are control characters, text that is too long, and a credential of the same request."""
    assert tell_name(name, find_secrets(find_shown(HEADERS))) == told


def test_the_longest_credential_is_replaced_first() -> None:
    """If one credential begins another, the end of the longer one must not remain."""
    headers = [("authorization", f"Bearer {KEY}"), ("x-api-key", f"{KEY}-AND-MORE")]
    assert tell_name(f"a/{KEY}-AND-MORE", find_secrets(find_shown(headers))) == "a/***"


def test_no_more_than_a_header_is_looked_through() -> None:
    """Text after that many characters is not searched."""
    headers = [("authorization", "Bearer " + "s" * (MAX_READ_CHARS + 1))]
    assert tell_name("s" * (MAX_READ_CHARS + 1), find_secrets(find_shown(headers))) == "s" * MAX_CHARS + "…"


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("/v1/chat/completions", "/v1/chat/completions"),
        ("/v1beta/models?key=secret", "/v1beta/models"),
        ("/v1/x#secret", "/v1/x"),
        ("/v1/files/file-abc123/content", "/v1/files/*/content"),
        (f"/{KEY}/v1/chat/completions", "/*/v1/chat/completions"),
        ("/planted_planted/x", "/*/x"),
        ("http://user:secret@host/v1/models?x", "/v1/models"),
        ("http://user:secret@host", "/"),
        ("//..//v1", "//..//v1"),
        ("/v1/%0a%1b[2J", "/v1/*"),
        ("*", "*"),
        ("secret:443", "/"),
        ("/" + "a" * 200, "/*"),
        ("/a" * 100, "/a" * (MAX_CHARS // 2) + "…"),
    ],
)
def test_of_a_path_the_words_stand(target: str, told: str) -> None:
    """The query, user names, and parts that may be an identifier or a key are left out."""
    assert tell_path(target, find_secrets(find_shown(HEADERS))) == told


@pytest.mark.parametrize(
    ("name", "base_url", "told"),
    [
        (None, "https://api.openai.com/v1", "api.openai.com"),
        (None, "http://[::1]:8000/v1", "[::1]:8000"),
        (None, "https://host:1/v1", "host:1"),
        ("local", "http://127.0.0.1:8000/v1", "local"),
    ],
)
def test_an_upstream_is_told_by_its_name_or_its_host(name: str | None, base_url: str, told: str) -> None:
    """Nothing else of its URL is shown."""
    assert tell_upstream(name, base_url) == told


@given(st.text(alphabet=st.characters(), max_size=300))
def test_whatever_comes_is_one_line_of_text(text: str) -> None:
    """It can be written as JSON, is bounded, and has only printable characters."""
    for told in (tell_name(text, frozenset()), tell_path(text, frozenset())):
        assert told.isprintable()
        assert len(told) <= 10 * MAX_CHARS + 1
        assert orjson.dumps(told)


def _head(*headers: tuple[bytes, bytes]) -> Any:
    return SimpleNamespace(method="POST", path=f"/v1/{KEY}/x", raw_path=f"/v1/{KEY}/x?y", raw_headers=headers)


def test_an_arrival_tells_nothing_that_must_not_be_logged() -> None:
    """Headers are decoded once. Hop-by-hop headers are left out, and credentials are recognised by name."""
    arrival = read_arrival(
        _head((b"Authorization", f"Bearer {KEY}".encode()), (b"TE", b"x"), (b"X-A", b"1")), CHAT, TENANCY
    )

    assert (arrival.endpoint, arrival.method) == ("chat", "POST")
    assert (arrival.path, arrival.target) == ("/v1/*/x", f"/v1/{KEY}/x?y")
    assert [name for name, _ in arrival.headers] == ["Authorization", "TE", "X-A"]
    assert [name for name, _ in arrival.end_to_end] == ["Authorization", "X-A"]
    assert (arrival.tell_name(f"a/{KEY}"), arrival.tell_name("a")) == (("a/***", True), ("a", False))


def test_request_ids_are_all_different() -> None:
    """They are long enough to stay different."""
    ids = {read_arrival(_head(), None, TENANCY).request_id for _ in range(100)}

    assert len(ids) == 100
    assert {len(item) for item in ids} == {24}


@pytest.mark.parametrize(
    ("headers", "target", "model", "told"),
    [
        ([("x-goog-api-key", KEY)], "/", f"a/{KEY}", "a/***"),
        ([("X-Acme-Token", f"Token {KEY}")], "/", KEY, "***"),
        ([("Cookie", f"theme=dark; sid={KEY}")], "/", f"a/{KEY}", "a/***"),
        ([], f"/v1/x?key={KEY}", KEY, "***"),
        ([], "/v1/x?token=sk%2FPLANTED%2FKEY", "sk/PLANTED/KEY", "***"),
        ([("OpenAI-Organization", "org-of-many-letters")], "/", "org-of-many-letters", "org-of-many-letters"),
    ],
)
def test_a_credential_is_known_wherever_it_was_shown(
    headers: list[tuple[str, str]], target: str, model: str, told: str
) -> None:
    """It may be in a header or the query, escaped or not. The name of who pays is not secret."""
    assert tell_name(model, find_secrets(find_shown(headers, target))) == told


def test_so_many_credentials_are_looked_for_and_no_more() -> None:
    """Each costs a search through each logged name."""
    shown = find_shown([("Cookie", "; ".join(f"c{number}=value-of-cookie-{number}" for number in range(5000)))])
    assert len(find_secrets(shown)) == MAX_SECRETS


def _connection(*heads: Any) -> list[Any]:
    """The arrivals of requests with these heads on one connection."""
    protocol = SimpleNamespace(head=None)
    return [read_arrival(SimpleNamespace(**vars(head), protocol=protocol), CHAT, TENANCY) for head in heads]


_FIELDS = st.lists(
    st.tuples(
        st.sampled_from([b"Authorization", b"X-A", b"Connection", b"content-length", b"Content-Length", b"Cookie"]),
        st.sampled_from([b"1", b"22", b"Bearer " + KEY.encode(), b"x-a", b"content-length", b"\xff"]),
    ),
    max_size=6,
).map(tuple)


@given(first=_FIELDS, second=_FIELDS, is_other_path=st.booleans())
def test_a_head_tells_the_same_whatever_head_was_before_it(first: Any, second: Any, *, is_other_path: bool) -> None:
    """If a head differs, nothing that is kept of the previous one is used.

    It may have another client's credential, because a front proxy may share the connection, or another length.
    """
    other = _head(*second)
    other.raw_path += "z" * is_other_path
    _, _, behind = _connection(_head(*first), _head(*first), other)
    alone = read_arrival(other, CHAT, TENANCY)
    for name in ("method", "path", "target", "headers", "end_to_end", "secrets", "tenant"):
        assert getattr(behind, name) == getattr(alone, name)
    upstream = UpstreamConfig(base_url="http://localhost/v1")
    expected = request_headers(alone.end_to_end, upstream, identity=True)
    assert [*behind.forward(upstream).items()] == [*expected.items()]


def test_another_length_is_the_only_thing_that_may_differ() -> None:
    """The head is not parsed again. The new length is forwarded in its position."""
    key = (b"Authorization", f"Bearer {KEY}".encode())
    heads = [_head(key, (b"content-length", length), (b"X-A", b"1")) for length in (b"5", b"777")]
    first, second = _connection(*heads)
    assert first.head is second.head
    assert [dict(told)["content-length"] for told in (second.headers, second.end_to_end)] == ["777", "777"]
    upstream = UpstreamConfig(base_url="http://localhost/v1")
    sent = [[*arrival.forward(upstream).items()] for arrival in (first, second)]
    assert [dict(headers)["content-length"] for headers in sent] == ["5", "777"]
    assert [name for name, _ in sent[0]] == [name for name, _ in sent[1]]


@pytest.mark.parametrize(
    ("value", "upstream_too"), [(f"Bearer {KEY}x".encode(), False), (b"", False), (f"Bearer {KEY}".encode(), True)]
)
def test_another_credential_is_another_client(value: bytes, *, upstream_too: bool) -> None:
    """Each client is identified by its own credential, which is not kept for another client."""
    shown = _head((b"Authorization", f"Bearer {KEY}".encode()))
    first, second = _connection(shown, _head((b"Authorization", value)))
    assert (first.tenant == second.tenant) is upstream_too
    assert (first.head is second.head) is upstream_too


def test_what_is_forwarded_may_be_changed() -> None:
    """Each request has its own copy."""
    first, second = _connection(_head((b"X-A", b"1")), _head((b"X-A", b"1")))
    upstream = UpstreamConfig(base_url="http://localhost/v1")
    first.forward(upstream).clear()
    assert second.forward(upstream)["X-A"] == "1"


def test_other_services_read_a_head_anew() -> None:
    """After a reload, another rule may decide whose request it is."""
    head = SimpleNamespace(**vars(_head((b"X-Team", b"a"))), protocol=SimpleNamespace(head=None))
    before = read_arrival(head, CHAT, TENANCY)
    after = read_arrival(head, CHAT, Tenancy("header:X-Team", b"key"))
    assert before.tenant != after.tenant


def test_a_large_head_is_not_kept() -> None:
    """A thousand waiting connections would keep it in memory."""
    protocol = SimpleNamespace(head=None)
    read_arrival(SimpleNamespace(**vars(_head((b"X-A", b"x" * MAX_KEPT_BYTES))), protocol=protocol), CHAT, TENANCY)
    assert protocol.head is None


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (b"alice:" + KEY.encode(), {KEY}),
        (KEY.encode() + b":", {KEY}),
        (b"alice:" + KEY.encode() + b":more", {f"{KEY}:more"}),
        (b"alice:short", set()),
        (b"no colon", set()),
    ],
)
@pytest.mark.parametrize("scheme", ["Basic", "basic"])
def test_the_user_and_password_of_basic_credentials_count_as_secrets(scheme, value, found):
    """Beside their encoded form. Some services take their key as the user."""
    word = b64encode(value).decode()
    long = {word} if len(word) >= MIN_SECRET_CHARS else set()
    assert find_secrets([("authorization", f"{scheme} {word}")]) == found | long


@pytest.mark.parametrize("word", ["not base64!", "a", "\udcff"])
def test_what_is_no_base64_does_no_harm(word):
    assert find_secrets([("authorization", f"Basic {word}")]) == frozenset()


@pytest.mark.parametrize(
    ("headers", "target", "found"),
    [
        ([], f"/v1/{KEY}-and-more/chat", {f"{KEY}-and-more"}),
        ([], "/v1/sk%2Dplanted-0123456789/chat", {"sk%2Dplanted-0123456789", "sk-planted-0123456789"}),
        ([("x-api-key", "other")], f"/v1/{KEY}-and-more/chat", set()),
        ([], "/v1/a_plain_word_of_words/chat", set()),
    ],
)
def test_a_long_part_of_the_path_is_a_key_if_there_is_no_other(headers, target, found):
    assert find_path_keys(headers, target) == found


def test_the_headers_for_an_upstream_are_made_once_for_a_head() -> None:
    """For a few upstreams: a client must not fill the memory with them."""
    (arrival,) = _connection(_head((b"X-A", b"1")))
    upstreams = [UpstreamConfig(base_url=f"http://localhost:{number}/v1") for number in range(1, MAX_UPSTREAMS + 2)]
    made = [[arrival.head.forward(each, is_messages=False) for each in upstreams] for _ in range(2)]
    assert [one is other for one, other in zip(*made, strict=True)] == [True] * MAX_UPSTREAMS + [False]
