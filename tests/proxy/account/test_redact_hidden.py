"""What is searched for finds a credential, and is not found in ordinary text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.account.redact import MAX_PIECED, WORDY_CHARS, find_seeds, read_own, read_secret
from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.policy import Same

KEYS = st.text("abcXYZ0123456789-_", min_size=44, max_size=200)
SCHEME_CHARS = 27
"""The longest beginning that keys of one provider may have in common."""


@given(KEYS, st.integers(SCHEME_CHARS + WORDY_CHARS, 200))
def test_each_long_beginning_and_end_holds_a_seed(key, length):
    seeds = [seed.text for seed in find_seeds(key)]
    assert any(seed in key[:length] for seed in seeds)
    assert any(seed in key[-length:] for seed in seeds)


@given(KEYS)
def test_a_seed_is_a_part_of_its_credential(key):
    for seed in find_seeds(key):
        assert key[seed.start : seed.start + len(seed.text)] == seed.text


@pytest.mark.parametrize("scheme", ["sk-proj-", "sk-ant-api03-", "github_pat_", "sk-or-v1-"])
def test_what_all_keys_of_a_provider_begin_with_is_no_seed(scheme):
    seeds = [seed.text for seed in find_seeds(scheme + "a1b2c3d4e5f6a7b8c9d0e1f2a3b4")]
    assert seeds[0] == "a1b2c3d4"


@pytest.mark.parametrize(
    ("key", "is_bounded", "is_word"),
    [("test", True, True), ("1234", True, True), ("k3y-b", True, False), ("admin-token-with-words", False, False)],
)
def test_a_short_key_of_the_configuration_counts_only_in_its_place(key, is_bounded, is_word):
    (secret,) = read_own(Same(load_config("", settings=[f"upstream.api_key={key!r}"])))
    assert (secret.is_bounded, secret.is_word) == (is_bounded, is_word)


def test_the_shortest_keys_of_the_configuration_are_not_searched_for():
    assert read_own(Same(load_config("", settings=["upstream.api_key=m"]))) == ()


def test_pieces_of_the_operators_keys_are_searched_for_before_those_of_many_clients():
    clients = [f"sk-client-{number:020}" for number in range(MAX_PIECED)]
    own = read_own(
        Same(load_config("", settings=[f"client_keys={clients}", "upstream.api_key=sk-operator-0123456789"]))
    )
    assert len(own) == MAX_PIECED + 1
    assert own[0].text == "sk-operator-0123456789"
    assert own[0].seeds
    assert not own[-1].seeds


def test_a_secret_shows_nothing_of_itself():
    assert "planted" not in repr(read_secret("sk-planted-0123456789"))
