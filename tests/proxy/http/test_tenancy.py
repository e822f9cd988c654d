"""Which tenant a request belongs to."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.config.load import load_config
from trimtab.proxy.http.credentials import find_shown
from trimtab.proxy.http.tenancy import Tenancy

KEY = b"k" * 32
VALUES = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20)

NAMES = st.from_regex("[a-zA-Z0-9]{1,20}", fullmatch=True)


@given(left=VALUES, right=VALUES)
def test_a_credential_is_its_own_tenant(left: str, right: str) -> None:
    """Each has a secret of its own. The secret is the same on every machine and for every header."""
    tenancy, elsewhere = Tenancy("authorization", KEY), Tenancy("authorization", b"x" * 32)
    secret = tenancy.find_secret([("Authorization", left)])
    assert secret == elsewhere.find_secret([("X-Other", right), ("authorization", left)])
    assert secret == tenancy.find_secret([("api-key", left)])
    assert (secret == tenancy.find_secret([("Authorization", right)])) == (left == right)


def test_without_a_credential_the_proxys_own_key_stands_in() -> None:
    """A reader of the store cannot guess it. Another machine has another key."""
    here, elsewhere = Tenancy("authorization", KEY), Tenancy("authorization", b"x" * 32)
    assert KEY in here.find_secret([])
    assert here.find_secret([]) != elsewhere.find_secret([])
    for nothing in ("", "Bearer", "bearer ", "Basic"):
        assert here.find_secret([("Authorization", nothing)]) == here.find_secret([])
        assert here.find_secret([("Authorization", nothing), ("X-Api-Key", "a")]) == here.find_secret(
            [("api-key", "a")]
        )


@given(team=VALUES, token=VALUES, other=VALUES)
def test_a_header_names_the_tenant_whatever_the_token(team: str, token: str, other: str) -> None:
    """A name is not secret, so the key is added. Without the header, the credential decides."""
    tenancy = Tenancy("header:X-Team", KEY)
    secret = tenancy.find_secret([("x-team", team), ("Authorization", token)])
    assert secret == tenancy.find_secret([("Authorization", other), ("X-TEAM", team)])
    assert KEY in secret
    assert secret != tenancy.find_secret([("Authorization", team)])
    assert tenancy.find_secret([("Authorization", token)]) == Tenancy("authorization", KEY).find_secret(
        [("Authorization", token)]
    )


def test_a_key_of_ours_tells_clients_apart_that_show_the_same_credential() -> None:
    """They may all send a placeholder for the upstream, or nothing."""
    tenancy = Tenancy("authorization", KEY)
    shown = [[], [("Authorization", "x")], [("X-Trimtab-Key", "a")], [("x-trimtab-key", "b")]]
    shown += [[("Authorization", "x"), ("x-trimtab-key", name)] for name in ("a", "b", "")]
    secrets = [tenancy.find_secret(headers) for headers in shown]
    assert secrets[-1] == secrets[1]
    assert len(set(secrets)) == len(secrets) - 1


def test_a_client_that_shows_one_thing_keeps_its_summaries() -> None:
    tenancy = Tenancy("authorization", KEY)
    assert tenancy.find_secret([("Authorization", "Bearer a")]) == b"credential\0Bearer a"
    assert tenancy.find_secret([("Authorization", "Bearer \udcff")]) == b"credential\0Bearer \xff"
    assert tenancy.find_secret([("api-key", "a")]) == b"credential\0a"
    assert tenancy.find_secret([("x-trimtab-key", "k")]) == b"credential\0\0k"
    assert tenancy.find_secret([("x-trimtab-key", "k"), ("Authorization", "a")]) == b"credential\0a\0k"
    assert tenancy.find_secret([("Authorization", "a"), ("Authorization", "a")]) == b"credential\0a"


@given(left=VALUES, right=VALUES)
def test_a_tenant_is_named_by_its_credential_and_told_apart_by_the_key_that_let_it_in(left: str, right: str) -> None:
    """The name is the same on every machine and contains no credential. A key that is not ours does not count."""
    tenancy, elsewhere = Tenancy("authorization", KEY, (left,)), Tenancy("authorization", b"x" * 32, (left,))
    tenant = tenancy.identify([("api-key", left)])
    assert tenant == elsewhere.identify([("api-key", left)])
    assert len(tenant.id) == len(tenant.key_id) == 64
    stranger = tenancy.identify([("api-key", right)])
    assert (tenant.id == stranger.id) == (tenant.key_id == stranger.key_id) == (left == right)
    assert Tenancy("authorization", KEY).identify([("api-key", left)]).key_id == ""
    assert repr(tenant).count("secret") == 0


SHOWN = (
    "x-goog-api-key",
    "Ocp-Apim-Subscription-Key",
    "X-Auth-Token",
    "Cookie",
    "Proxy-Authorization",
    "X-Acme-Secret",
)


@given(
    name=st.sampled_from((*SHOWN, "?key", "?subscription-key", "?sig")), left=NAMES, right=NAMES, beside=st.booleans()
)
def test_each_place_of_a_key_tells_tenants_apart(name: str, left: str, right: str, *, beside: bool) -> None:
    """It does so alone and next to a placeholder. If it is secret, the tenant is the same on every machine."""

    def secret(value: str, key: bytes = KEY) -> bytes:
        headers = [("Authorization", "Bearer x")] if beside else []
        headers += [] if name.startswith("?") else [(name, value)]
        target = f"/v1/x?{name[1:]}={value}" if name.startswith("?") else "/v1/x"
        return Tenancy("authorization", key).find_secret(headers, target)

    assert (secret(left) == secret(right)) == (left == right)
    assert (secret(left) == secret(left, b"x" * 32)) == (beside or name != "Cookie")


@pytest.mark.parametrize("name", ["OpenAI-Organization", "openai_project", "X-Forwarded-User", "Cookie"])
def test_what_might_be_guessed_is_joined_with_the_proxys_own_key(name: str) -> None:
    """A reader of the store must not find texts by trying names. With a key next to the name, that is impossible."""
    here, elsewhere = Tenancy("authorization", KEY), Tenancy("authorization", b"x" * 32)
    assert here.find_secret([(name, "a")]) != elsewhere.find_secret([(name, "a")])
    assert here.find_secret([(name, "a")]) != here.find_secret([(name, "b")])
    keyed = [("Authorization", "Bearer a"), (name, "a")]
    assert here.find_secret(keyed) == elsewhere.find_secret(keyed) != here.find_secret(keyed[:1])


def test_a_key_in_the_path_tells_clients_apart_that_show_nothing_else() -> None:
    tenancy = Tenancy("authorization", KEY)
    secrets = {tenancy.find_secret([], f"/sk-of-a-long-enough-key-{name}/v1/chat/completions") for name in "ab"}
    assert len(secrets | {tenancy.find_secret([], "/v1/chat/completions")}) == 3


def test_the_order_of_headers_and_what_servers_change_themselves_make_no_tenant() -> None:
    """Otherwise a client would not find its summaries again."""
    tenancy = Tenancy("authorization", KEY)
    headers = [("api-key", "a"), ("X-Auth-Token", "t"), ("Cookie", "sid=1; AWSALB=x"), ("Idempotency-Key", "1")]
    changed = [("Idempotency-Key", "2"), ("Cookie", "AWSALB=y; sid=1"), *headers[1::-1]]
    assert tenancy.find_secret(headers, "/v1/x?a=1") == tenancy.find_secret(changed, "/v1/x?a=2")


def test_what_is_at_hand_is_not_looked_for_again() -> None:
    tenancy, headers = Tenancy("authorization", KEY), [("x-goog-api-key", "a")]
    assert tenancy.identify(headers, "/?key=b", find_shown(headers, "/?key=b")) == tenancy.identify(headers, "/?key=b")


def test_a_name_changes_nothing_but_the_name() -> None:
    """Ids and secrets come from the key, so stores of a list stay valid for a mapping with the same keys."""
    as_list = load_config("client_keys: [key-a, key-b]", environment={}).clients
    named = load_config("client_keys: {alice: key-a, bob: key-b}", environment={}).clients
    headers = [("Authorization", "Bearer key-b")]
    old = Tenancy("authorization", KEY, as_list.keys, as_list.names).identify(headers)
    new = Tenancy("authorization", KEY, named.keys, named.names).identify(headers)

    assert (old.client_name, new.client_name) == ("", "bob")
    assert replace(new, client_name="") == old
    assert Tenancy("authorization", KEY, named.keys, named.names).identify([("x-api-key", "wrong")]).client_name == ""
