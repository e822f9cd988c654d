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
        (f"a/{KEY}-AND-MORE", "a/***"),
    ],
)
def test_a_name_stands_as_it_was_given(name: str, told: str) -> None:
    assert tell_name(name, find_secrets(find_shown([*HEADERS, ("api-key", f"{KEY}-AND-MORE")]))) == told


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
    assert tell_path(target, find_secrets(find_shown(HEADERS))) == told


def test_the_search_for_credentials_is_bounded() -> None:
    """Each costs a search through each logged name."""
    shown = find_shown([("Cookie", "; ".join(f"c{number}=value-of-cookie-{number}" for number in range(5000)))])
    assert len(find_secrets(shown)) == MAX_SECRETS
    headers = [("authorization", "Bearer " + "s" * (MAX_READ_CHARS + 1))]
    assert tell_name("s" * (MAX_READ_CHARS + 1), find_secrets(find_shown(headers))) == "s" * MAX_CHARS + "…"


@given(st.text(alphabet=st.characters(), max_size=300))
def test_whatever_comes_is_one_line_of_text(text: str) -> None:
    for told in (tell_name(text, frozenset()), tell_path(text, frozenset())):
        assert told.isprintable()
        assert len(told) <= 10 * MAX_CHARS + 1
        assert orjson.dumps(told)


def _head(*headers: tuple[bytes, bytes]) -> Any:
    return SimpleNamespace(method="POST", path=f"/v1/{KEY}/x", raw_path=f"/v1/{KEY}/x?y", raw_headers=headers)


def test_an_arrival_tells_nothing_that_must_not_be_logged() -> None:
    arrival = read_arrival(
        _head((b"Authorization", f"Bearer {KEY}".encode()), (b"TE", b"x"), (b"X-A", b"1")), CHAT, TENANCY
    )

    assert (arrival.endpoint, arrival.method) == ("chat", "POST")
    assert (arrival.path, arrival.target) == ("/v1/*/x", f"/v1/{KEY}/x?y")
    assert [name for name, _ in arrival.headers] == ["Authorization", "TE", "X-A"]
    assert [name for name, _ in arrival.end_to_end] == ["Authorization", "X-A"]
    assert (arrival.tell_name(f"a/{KEY}"), arrival.tell_name("a")) == (("a/***", True), ("a", False))


def test_a_credential_is_known_wherever_it_was_shown() -> None:
    """It may be in a header or the query, escaped or not. The name of who pays is not secret."""
    for headers, target, model, told in (
        ([("x-goog-api-key", KEY)], "/", f"a/{KEY}", "a/***"),
        ([("X-Acme-Token", f"Token {KEY}")], "/", KEY, "***"),
        ([("Cookie", f"theme=dark; sid={KEY}")], "/", f"a/{KEY}", "a/***"),
        ([], f"/v1/x?key={KEY}", KEY, "***"),
        ([], "/v1/x?token=sk%2FPLANTED%2FKEY", "sk/PLANTED/KEY", "***"),
        ([("OpenAI-Organization", "org-of-many-letters")], "/", "org-of-many-letters", "org-of-many-letters"),
    ):
        assert tell_name(model, find_secrets(find_shown(headers, target))) == told


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
    key = (b"Authorization", f"Bearer {KEY}".encode())
    heads = [_head(key, (b"content-length", length), (b"X-A", b"1")) for length in (b"5", b"777")]
    first, second = _connection(*heads)
    assert first.head is second.head
    assert [dict(told)["content-length"] for told in (second.headers, second.end_to_end)] == ["777", "777"]
    upstream = UpstreamConfig(base_url="http://localhost/v1")
    sent = [arrival.forward(upstream) for arrival in (first, first, second)]
    assert [headers["content-length"] for headers in sent] == ["5", "5", "777"]
    assert [*sent[0]] == [*sent[2]]
    sent[0].clear()
    assert sent[1]["X-A"] == "1"


def test_other_services_read_a_head_anew() -> None:
    head = SimpleNamespace(**vars(_head((b"X-Team", b"a"))), protocol=SimpleNamespace(head=None))
    before = read_arrival(head, CHAT, TENANCY)
    after = read_arrival(head, CHAT, Tenancy("header:X-Team", b"key"))
    assert before.tenant != after.tenant


def test_a_large_head_is_not_kept() -> None:
    """A thousand waiting connections would keep it in memory."""
    protocol = SimpleNamespace(head=None)
    read_arrival(SimpleNamespace(**vars(_head((b"X-A", b"x" * MAX_KEPT_BYTES))), protocol=protocol), CHAT, TENANCY)
    assert protocol.head is None


@pytest.mark.parametrize("scheme", ["Basic", "basic"])
def test_the_user_and_password_of_basic_credentials_count_as_secrets(scheme):
    for value, found in (
        (f"alice:{KEY}", {KEY}),
        (f"{KEY}:", {KEY}),
        (f"alice:{KEY}:more", {f"{KEY}:more"}),
        ("alice:short", set()),
        ("no colon", set()),
    ):
        word = b64encode(value.encode()).decode()
        long = {word} if len(word) >= MIN_SECRET_CHARS else set()
        assert find_secrets([("authorization", f"{scheme} {word}")]) == found | long
    for word in ("not base64!", "a", "\udcff"):
        assert find_secrets([("authorization", f"{scheme} {word}")]) == frozenset()


def test_a_long_part_of_the_path_is_a_key_if_there_is_no_other():
    for headers, target, found in (
        ([], f"/v1/{KEY}-and-more/chat", {f"{KEY}-and-more"}),
        ([], "/v1/sk%2Dplanted-0123456789/chat", {"sk%2Dplanted-0123456789", "sk-planted-0123456789"}),
        ([("x-api-key", "other")], f"/v1/{KEY}-and-more/chat", set()),
        ([], "/v1/a_plain_word_of_words/chat", set()),
    ):
        assert find_path_keys(headers, target) == found


def test_the_headers_for_an_upstream_are_made_once_for_a_head() -> None:
    """For a few upstreams: a client must not fill the memory with them."""
    (arrival,) = _connection(_head((b"X-A", b"1")))
    upstreams = [UpstreamConfig(base_url=f"http://localhost:{number}/v1") for number in range(1, MAX_UPSTREAMS + 2)]
    made = [[arrival.head.forward(each, is_messages=False) for each in upstreams] for _ in range(2)]
    assert [one is other for one, other in zip(*made, strict=True)] == [True] * MAX_UPSTREAMS + [False]
