"""Where a request holds a key, or names who pays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.http.credentials import (
    ACCOUNT_NAMES,
    GUESSABLE_NAMES,
    IDENTITY_NAMES,
    KEY_NAMES,
    MAX_KNOWN_CHARS,
    MAX_KNOWN_NAMES,
    KnownNames,
    drop_credentials,
    drop_query_keys,
    find_query_keys,
    find_shown,
    is_credential,
    is_key,
    keep_credentials,
    plain,
)

PARAMETERS = st.lists(
    st.sampled_from(("a=1", "key=K", "x=%26key%3d", "", "api_key=K", "k%65y=K", "b", "page_token=2", "Sig=K")),
    max_size=8,
)


def test_each_place_of_the_table_is_seen_in_the_header_and_in_the_query() -> None:
    for name, spelt in ((each, spelt) for each in KEY_NAMES for spelt in (each, each.upper(), each.replace("-", "_"))):
        assert find_shown([("X-A", "1"), (spelt, "K=1")]) == [(name, "K=1")]
        assert find_shown([], f"/v1/x?a=1&{spelt}=K=1") == [(f"?{name}", "K=1")]


@pytest.mark.parametrize(
    "name",
    ["X-Acme-Token", "acme_api_key", "ApiKey", "X-Gateway-Secret", "modal-key", "X-Tyk-Authorization", "accessToken",
     "x-db-password", "x-some-JWT", "my-credentials", "X-ZUMO-AUTH", "x-vercel-oidc-token"],
)  # fmt: skip
def test_a_name_that_says_it_holds_a_key_is_believed(name: str) -> None:
    assert is_key(plain(name))


@pytest.mark.parametrize(
    "name",
    ["Idempotency-Key", "Sec-WebSocket-Key", "prompt_cache_key", "X-CSRF-Token", "page_token", "max_tokens", "monkey",
     "X-Session-Id", "x-session-affinity", "x-grok-conv-id", "User-Agent", "X-Stainless-Lang", "Content-Type", "model"],
)  # fmt: skip
def test_what_lets_nobody_in_is_no_credential(name: str) -> None:
    """Otherwise values that are new in each request would make each a tenant, and upstreams would not get them."""
    assert not is_credential(plain(name))
    assert keep_credentials([(name, "1")]) == []
    assert drop_credentials([(name, "1")]) == [(name, "1")]


def test_who_pays_and_who_asks_tell_clients_apart_and_are_no_secret() -> None:
    """An upstream that gets another key does not get the account. The user is named by a proxy in front of this one."""
    shown = [(name, "a") for name in ACCOUNT_NAMES | IDENTITY_NAMES]
    assert find_shown(shown) == shown
    assert GUESSABLE_NAMES >= ACCOUNT_NAMES | IDENTITY_NAMES
    assert drop_credentials(shown) == [(name, "a") for name, _ in shown if name not in ACCOUNT_NAMES]


@pytest.mark.parametrize("value", ["", " ", "Bearer", "bearer ", "Basic"])
def test_a_scheme_alone_shows_nothing(value: str) -> None:
    assert find_shown([("Authorization", value), ("Cookie", " ; "), ("x-api-key", "")], "/v1/x?key=&b") == []


@pytest.mark.parametrize(
    ("cookies", "shown"),
    [
        ("sid=a; theme=b", [("cookie", "sid=a;theme=b")]),
        ("AWSALB=x; sid=a; AWSALBCORS=y", [("cookie", "sid=a")]),
        ("__cf_bm=x; _cfuvid=y;ARRAffinity=z; GCLB=1; visid_incap_12=q", []),
    ],
)
def test_cookies_of_load_balancers_are_no_credential(cookies: str, shown: list[tuple[str, str]]) -> None:
    """They name the server that responds, and change with its responses."""
    assert find_shown([("Cookie", cookies)]) == shown


def test_a_long_part_of_the_path_counts_where_nothing_else_is_shown() -> None:
    target = "/sk-helicone-abcdefghijkl/v1/chat/completions"
    assert find_shown([], target) == [("/", "sk-helicone-abcdefghijkl")]
    assert find_shown([("api-key", "a")], target) == [("api-key", "a")]
    assert find_shown([], "/v1/chat/completions?long=abcdefghijklmnopqrstuvwxyz/abcdefghijklmnopqrstuvwxyz") == []


@pytest.mark.parametrize(
    ("target", "left", "keys"),
    [
        ("/v1/x", "/v1/x", ""),
        ("/v1/x?", "/v1/x?", ""),
        ("/v1/x?a=1&b=%2F&&c", "/v1/x?a=1&b=%2F&&c", ""),
        ("/v1/x?key=K", "/v1/x", "key=K"),
        ("/v1/x?key=K&a=1", "/v1/x?a=1", "key=K"),
        ("/v1/x?a=1&API_Key=K", "/v1/x?a=1", "API_Key=K"),
        ("/v1/x?a=1;key=K;b=2", "/v1/x?a=1;b=2", "key=K"),
        ("/v1/x?a=1&%6bey=K&b=2&sig=S", "/v1/x?a=1&b=2", "%6bey=K&sig=S"),
        ("/v1/x?%20key[]=K&+token%5B0%5D=T", "/v1/x", "%20key[]=K&+token%5B0%5D=T"),
        ("/v1/x?api-version=1&%24key=K#key=F", "/v1/x?api-version=1", "%24key=K#key=F"),
        ("/v1/x?key", "/v1/x", "key"),
    ],
)
def test_a_querys_keys_are_taken_out_and_nothing_else(target: str, left: str, keys: str) -> None:
    """Names are read as servers read them; what is left stays byte for byte."""
    assert drop_query_keys(target) == left
    assert find_query_keys(target) == keys


@given(PARAMETERS)
def test_what_is_left_of_a_query_holds_no_key_and_all_the_rest(parameters: list[str]) -> None:
    target = "/v1/x?" + "&".join(parameters)
    left = drop_query_keys(target)
    assert "K" not in left
    assert drop_query_keys(left) == left
    others = [item for item in parameters if "K" not in item]
    assert left.partition("?")[2] == "&".join(others)


def test_a_clients_headers_are_parted_in_two() -> None:
    headers = [
        ("A", "1"),
        ("Authorization", "a"),
        ("Cookie", "c"),
        ("x_api_key", "x"),
        ("OpenAI-Project", "p"),
        ("A", ""),
    ]

    assert keep_credentials(headers) == headers[1:5]
    assert drop_credentials(headers) == [("A", "1"), ("A", "")]


@pytest.mark.parametrize(
    ("protocols", "left"),
    [
        ("realtime, openai-insecure-api-key.sk-1, openai-beta.realtime-v1", "realtime, openai-beta.realtime-v1"),
        ("OpenAI-Organization.o", None),
        ("base64url.bearer.authorization.k8s.io.dG9rZW4,v4.channel", "v4.channel"),
    ],
)
def test_a_browsers_key_stands_among_its_subprotocols(protocols: str, left: str | None) -> None:
    name = "Sec-WebSocket-Protocol"
    assert drop_credentials([(name, protocols)]) == ([] if left is None else [(name, left)])


def test_what_is_remembered_of_names_is_bounded_and_changes_no_result() -> None:
    """However many names are sent, few short ones are kept, and each gets the same verdict when it comes again."""
    known = KnownNames[str, bool](lambda name: name.endswith("-key"))
    for number in range(3 * MAX_KNOWN_NAMES):
        name = f"x-{number}" + "-key" * (number % 2)
        assert known[name] is known[name] is (number % 2 == 1)
        assert len(known) <= MAX_KNOWN_NAMES
    long = "x" * MAX_KNOWN_CHARS + "-key"
    assert known[long]
    assert long not in known
