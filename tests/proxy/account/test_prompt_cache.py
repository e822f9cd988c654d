"""What a request would have cost unchanged: laws of the imagined tokens, and the rule for each kind of upstream."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from trimtab.proxy.account.prompt_cache import Cache, Case, add_removed, count_cached, imagine, watch_cache
from trimtab.proxy.catalogue.prices import Tokens

counts = st.integers(1, 300_000)
shares = st.floats(0, 1)
reported = st.builds(Tokens.of, counts, counts, counts, counts)
cases = st.builds(
    Case,
    reported,
    counts,
    counts,
    st.none() | shares,
    st.none() | shares,
    st.booleans(),
    st.builds(Cache, shares, shares),
)
SENT = Tokens.of(10_000, 8960, 0, 50)
"""9,000 of its tokens are those of the request before."""
CASE = Case(SENT, 10_000, 40_000, 0.9, 0.975, is_fresh=True)
"""The client's own prompt is four times as long; 39,000 tokens of it are not new."""


@given(cases)
def test_the_prompt_has_three_parts_and_the_completion_is_the_same(case) -> None:
    imagined = imagine(case)
    assert min(imagined.fresh, imagined.cached, imagined.written) >= 0
    assert imagined.completion == case.sent.completion


@given(cases, counts)
def test_a_longer_prompt_has_no_fewer_tokens(case, more) -> None:
    scale = case.sent.prompt / case.sent_tokens
    if 0.25 <= scale <= 4:
        longer = replace(case, original_tokens=case.original_tokens + more)
        assert imagine(longer).prompt >= imagine(case).prompt


@given(cases)
def test_an_upstream_that_could_have_cached_and_did_not_has_no_cache(case) -> None:
    """Else a cache would be credited to requests that never had one."""
    case = replace(case, sent=Tokens.of(case.sent.prompt, 0, 0, 1))
    if count_cached((case.kept_share or 0) * case.sent.prompt):
        assert imagine(case).cached == 0


def test_a_cache_that_read_all_it_could_would_have_read_the_clients_beginning() -> None:
    assert imagine(CASE).prompt == 40_000
    assert imagine(CASE).cached == pytest.approx(39_000, abs=128)


def test_a_cache_that_read_half_would_have_read_half() -> None:
    """Even if the pause was long: the newest report says more than a table."""
    half = replace(CASE, sent=Tokens.of(10_000, 0, 0, 50), kept_share=0.0, cache=Cache(0.5))
    assert imagine(half).cached == pytest.approx(19_500, abs=128)
    told = replace(CASE, sent=Tokens.of(10_000, 8960, 0, 50), is_fresh=False)
    assert imagine(told).cached == pytest.approx(39_000, abs=128)


def test_after_a_long_pause_nothing_is_cached_if_the_prompt_cannot_tell() -> None:
    cut = replace(CASE, sent=Tokens.of(10_000, 0, 0, 50), kept_share=0.05)
    assert imagine(cut).cached == pytest.approx(39_000, abs=128)
    assert imagine(replace(cut, is_fresh=False)).cached == 0


def test_a_session_from_another_process_goes_on_and_a_new_one_begins() -> None:
    """What is new in the prompt that was sent is new in the client's own one."""
    unknown = replace(CASE, kept_share=None, known_share=None)
    assert imagine(unknown).cached == 40_000 - (10_000 - 8960)
    new = replace(unknown, sent=Tokens.of(10_000, 1024, 0, 50))
    assert imagine(new).cached == 1024


def test_the_rest_is_written_as_the_upstream_writes() -> None:
    written = replace(CASE, sent=Tokens.of(10_000, 8960, 1040, 50))
    assert imagine(written).fresh == 0
    assert imagine(written).written == imagine(CASE).fresh
    assert watch_cache(written).written_share == 1


def test_a_part_of_the_prompt_that_the_upstream_holds_does_not_scale() -> None:
    """Its tokens are many times ours; what was removed is added to them."""
    held = replace(CASE, sent=Tokens.of(90_000, 0, 0, 50), sent_tokens=1000, original_tokens=3000)
    assert imagine(held).prompt == 92_000
    assert add_removed(Tokens.of(90_000, 80_000, 5000, 50), 2000) == Tokens.of(92_000, 80_000, 6000, 50)


def test_caches_hold_whole_blocks_from_a_minimum_on() -> None:
    assert [count_cached(tokens) for tokens in (1023.9, 1024, 1151, 1152)] == [0, 1024, 1024, 1152]
