"""What a request would have cost unchanged: laws of the imagined tokens, and the rule for each kind of upstream."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import astuple, replace

from trimtab.proxy.account.outcome import Answered
from trimtab.proxy.account.prompt_cache import (
    Cache,
    Case,
    Cause,
    Prefix,
    add_removed,
    count_cached,
    find_cause,
    imagine,
    watch_cache,
)
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
def test_an_upstream_that_could_have_cached_and_did_not_has_no_cache(case) -> None:
    """Else a cache would be credited to requests that never had one."""
    case = replace(case, sent=Tokens.of(case.sent.prompt, 0, 0, 1))
    if count_cached((case.kept_share or 0) * case.sent.prompt):
        assert imagine(case).cached == 0


@given(cases)
@example(replace(CASE, sent=Tokens.of(10_000, 6000), original_tokens=1000, known_share=None))
def test_no_part_of_an_imagined_prompt_is_negative(case) -> None:
    assert min(astuple(imagine(case))) >= 0


def test_a_cache_would_have_read_the_clients_beginning_as_it_reads_ours() -> None:
    """All that it could, or half, even if the pause was long: the newest report says more than a table.

    If the prompt cannot tell, nothing is cached after a long pause. The rest is written as the upstream writes.
    """
    assert imagine(CASE).prompt == 40_000
    half = replace(CASE, sent=Tokens.of(10_000, 0, 0, 50), kept_share=0.0, cache=Cache(0.5))
    cut = replace(CASE, sent=Tokens.of(10_000, 0, 0, 50), kept_share=0.05)
    for case, cached in (
        (CASE, 39_000),
        (replace(CASE, is_fresh=False), 39_000),
        (half, 19_500),
        (replace(CASE, known_share=0.5), 40_000 - (10_000 - 8960)),  # it has read the beginning, whatever we know
        (cut, 39_000),
        (replace(cut, is_fresh=False), 0),
    ):
        assert imagine(case).cached == pytest.approx(cached, abs=128)
    written = replace(CASE, sent=Tokens.of(10_000, 8960, 1040, 50))
    assert (imagine(written).fresh, imagine(written).written) == (0, imagine(CASE).fresh)
    assert watch_cache(written).written_share == 1


def test_a_session_from_another_process_goes_on_and_a_new_one_begins() -> None:
    unknown = replace(CASE, kept_share=None, known_share=None)
    assert imagine(unknown).cached == 40_000 - (10_000 - 8960)
    new = replace(unknown, sent=Tokens.of(10_000, 1024, 0, 50))
    assert imagine(new).cached == 1024


def test_a_part_of_the_prompt_that_the_upstream_holds_does_not_scale() -> None:
    held = replace(CASE, sent=Tokens.of(90_000, 0, 0, 50), sent_tokens=1000, original_tokens=3000)
    assert imagine(held).prompt == 92_000
    assert add_removed(Tokens.of(90_000, 80_000, 5000, 50), 2000) == Tokens.of(92_000, 80_000, 6000, 50)


def test_caches_hold_whole_blocks_from_a_minimum_on() -> None:
    assert [count_cached(tokens) for tokens in (1023.9, 1024, 1151, 1152)] == [0, 1024, 1024, 1152]


# The cause of a missed prompt cache, from what was sent and what the upstream reports.

LIFETIME_SECONDS = 300.0
GROWN = Prefix(
    tokens=11_000, previous_tokens=10_000, kept_tokens=10_000, pause_seconds=20.0, continues=True, is_ours=True
)
"""The client has added 1,000 tokens, and everything before is kept."""
CUT = replace(GROWN, tokens=6000, kept_tokens=2000)
CHANGED = replace(CUT, continues=False, is_ours=False)


def _find(
    prefix: Prefix | None,
    cached_tokens: int | None,
    *,
    prompt_tokens: int | None = None,
    lifetime: float | None = 300.0,
) -> Cause:
    prompt_tokens = prompt_tokens or (prefix.tokens if prefix else 11_000)
    return find_cause(prefix, Answered(prompt_tokens, cached_tokens), lambda: lifetime)


@pytest.mark.parametrize(
    ("prefix", "cached_tokens", "cause"),
    [
        (GROWN, 9984, ""),
        (GROWN, 11_000, ""),
        (GROWN, 8000, ""),
        (GROWN, 5000, "unknown"),
        (GROWN, 0, "unknown"),
        (replace(GROWN, pause_seconds=301.0), 9984, ""),
        (replace(GROWN, pause_seconds=301.0), 0, "expired"),
        (replace(GROWN, pause_seconds=301.0), 5000, "expired"),
        (CUT, 1920, "cut"),
        (CUT, 0, "cut"),
        (CUT, 5900, ""),
        (replace(CUT, kept_tokens=5000), 0, "unknown"),
        (replace(CUT, pause_seconds=301.0), 1920, "cut"),
        (replace(CUT, pause_seconds=301.0), 0, "expired"),
        (replace(CUT, tokens=2200), 1920, ""),
        (CHANGED, 1920, "prefix"),
        (CHANGED, 0, "prefix"),
        (replace(CHANGED, continues=True), 0, "prefix"),
        (replace(CHANGED, kept_tokens=500), 0, "prefix"),
        (replace(CHANGED, kept_tokens=500, pause_seconds=301.0), 0, "expired"),
        (None, 0, "cold"),
        (None, 100, "cold"),
        (None, 1024, ""),
        (GROWN, None, ""),
    ],
)
def test_the_cause_is_the_larger_part_of_what_was_missed(
    prefix: Prefix | None, cached_tokens: int, cause: Cause
) -> None:
    assert _find(prefix, cached_tokens) == cause


def test_a_prompt_that_is_too_short_is_not_missed() -> None:
    short = Prefix(1200, 1000, 1000, 20.0, continues=True, is_ours=True)

    assert _find(short, 0) == ""
    assert _find(None, 0, prompt_tokens=1000) == ""
    assert _find(replace(short, previous_tokens=1100, kept_tokens=1100), 0) == "unknown"
    assert _find(replace(GROWN, pause_seconds=1e6), 0, lifetime=None) == "unknown"
    assert find_cause(GROWN, Answered(None, 0), lambda: LIFETIME_SECONDS) == ""


def test_our_tokens_are_scaled_to_the_upstreams() -> None:
    assert _find(GROWN, 19_968, prompt_tokens=22_000) == ""
    assert _find(GROWN, 9984, prompt_tokens=22_000) == "unknown"
