"""For whom a lesson counts, what contradicts it, and when it is tested."""

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.models.hypotheses import (
    FIRST_TEST,
    FIRST_TEST_OF_NUMBERS,
    MAX_FAILURES,
    claim,
    combine,
    contradict,
    doubt_ratio,
    is_test_due,
    retract,
)
from trimtab.proxy.models.records import MAX_CLAIMS, Claim, Facts, Record, recall

LEARNED = Record(1.0, learned_tokens=8192, refuted=(128_000,), refused_tokens=12_000, window_source="second attempt")
NOW = 5.0


def meet(record: Record, *claims: Claim) -> Record:
    """The record of all after these claims, in order."""
    for met in claims:
        record = msgspec.structs.replace(record, **claim(met, record, now=NOW))
    return record


@given(st.integers(0, 20_000))
def test_an_answer_confirms_its_own_size_and_no_limit(answered_tokens: int) -> None:
    """A prompt longer than the learned window contradicts the window; a shorter one changes nothing."""
    known = msgspec.structs.replace(LEARNED, **contradict(LEARNED, Record(1.0), answered_tokens))

    if answered_tokens <= 8192:
        assert known == LEARNED
    elif answered_tokens < 12_000:
        assert known.learned_tokens == answered_tokens
    else:
        assert (known.learned_tokens, known.refuted) == (None, ())


def test_an_answer_contradicts_what_counts_for_all_for_the_client_that_had_it() -> None:
    """It is noted only if the prompt is longer than any before. Nothing contradicts what was not learned."""
    assert contradict(Record(1.0, window_tokens=8192), Record(1.0), 100_000) == {}

    own = Record(1.0)
    assert contradict(own, LEARNED, 8000) == {}
    own = msgspec.structs.replace(own, **contradict(own, LEARNED, 9000))
    assert (own.answered_tokens, contradict(own, LEARNED, 9000)) == (9000, {})
    assert combine(recall(own), recall(LEARNED)).learned_tokens is None


def test_a_ratio_that_no_answer_has_confirmed_is_given_up_if_more_was_answered_than_it_allows() -> None:
    """Its own ratio and that of all can be given up. A ratio that the client's own answers confirm stays."""
    taught = Record(2.0, ratio_source="refused prompt")
    assert msgspec.structs.replace(taught, **doubt_ratio(taught, Record(1.0), 1.12)).ratio == 1.12
    own = msgspec.structs.replace(Record(1.0), **doubt_ratio(Record(1.0), taught, 1.12))
    assert combine(recall(own), recall(taught)).ratio == 1.12
    assert doubt_ratio(msgspec.structs.replace(taught, calibrated=True), Record(1.0), 1.12) == {}
    assert doubt_ratio(Record(1.0), Record(1.0), 1.12) == {}


@given(st.integers(0, 2 * MAX_FAILURES))
def test_each_test_that_fails_makes_the_next_one_rarer(failures: int) -> None:
    """The number doubles up to a bound. A guess is tested sooner than any other lesson."""
    sources = {
        "second attempt": FIRST_TEST,
        "refused prompt": FIRST_TEST_OF_NUMBERS,
        "cut prompts": FIRST_TEST_OF_NUMBERS,
    }
    for source, first in sources.items():
        known = msgspec.structs.replace(LEARNED, window_source=source)
        wanted = first * 2 ** min(failures, MAX_FAILURES)
        for own, of_all in ((known, Record(1.0)), (Record(1.0), known)):
            failed = msgspec.structs.replace(own, failures=failures)
            assert [is_test_due(failed, of_all, number) for number in (wanted - 1, wanted)] == [False, True]


OF_ALL = Facts(1.3, learned_tokens=4096, refuted=(128_000,), added_tokens=100, has_ratio=True, is_calibrated=True)


def test_what_a_client_has_met_comes_before_what_counts_for_all() -> None:
    """What counts for all fills the gaps, but for a client that was answered more than its window."""
    own = Facts(0.9, learned_tokens=8192, refuted=(64_000,), has_ratio=True)

    assert combine(Facts(1.0), OF_ALL) == OF_ALL
    combined = combine(own, OF_ALL)
    assert (combined.ratio, combined.learned_tokens, combined.refuted) == (0.9, 8192, (64_000,))
    assert combine(own, Facts(1.0)) == own
    assert combine(Facts(1.0, 16_384), Facts(1.0, 32_768)).window_tokens == 16_384
    assert combine(Facts(1.0), Facts(1.0, 32_768)).window_tokens == 32_768

    assert combine(replace(Facts(1.0), answered_tokens=5000), OF_ALL).learned_tokens is None
    assert combine(replace(Facts(1.0), answered_tokens=4000), OF_ALL).learned_tokens == 4096


WINDOW = Claim("one", 128_000, learned_tokens=8192)
CLAIMS = st.builds(
    Claim,
    st.just("one"),
    st.sampled_from((0, 64_000, 128_000)),
    learned_tokens=st.none() | st.integers(1024, 10_000),
    added_tokens=st.none() | st.integers(1, 100),
    ratio=st.none() | st.floats(0.2, 6),
)


@given(st.lists(CLAIMS, max_size=20))
def test_what_one_client_can_provoke_changes_nothing_for_all(claims: list[Claim]) -> None:
    """A client has at most one claim, and no other field of the record changes."""
    before = Record(1.0, 8192)
    known = meet(before, *claims)

    assert msgspec.structs.replace(known, claims=()) == before
    assert len(known.claims) <= 1


def test_what_two_clients_have_met_counts_for_all() -> None:
    """Both learned the same window in place of the same one. The same claim again changes nothing."""
    known = meet(Record(1.0), WINDOW, msgspec.structs.replace(WINDOW, by="two"))

    assert (known.learned_tokens, known.refuted, known.window_at) == (8192, (128_000,), NOW)
    assert claim(WINDOW, known, now=9.0) == {}


@pytest.mark.parametrize(
    "other",
    [
        Claim("two", 128_000, learned_tokens=8191),
        Claim("two", 64_000, learned_tokens=8192),
        Claim("two", ratio=1.5),
        Claim("one", 128_000, learned_tokens=8192),
    ],
)
def test_clients_must_have_met_the_same(other: Claim) -> None:
    """Another window, another refuted window, a ratio, or the same client again is no agreement."""
    known = meet(Record(1.0), WINDOW, other)

    assert (known.learned_tokens, known.ratio) == (None, 1.0)


def test_who_was_answered_more_claims_nothing_any_more() -> None:
    """A later claim of another client finds no claim to agree with."""
    known = meet(Record(1.0), WINDOW)
    known = msgspec.structs.replace(known, **retract("one", known))

    assert (known.claims, retract("one", known)) == ((), {})
    agreed = meet(Record(1.0), WINDOW, msgspec.structs.replace(WINDOW, by="two"))
    assert msgspec.structs.replace(agreed, **retract("one", agreed)).learned_tokens is None
    three = meet(agreed, msgspec.structs.replace(WINDOW, by="three"))
    assert msgspec.structs.replace(three, **retract("one", three)).learned_tokens == 8192
    assert meet(known, msgspec.structs.replace(WINDOW, by="two")).learned_tokens is None


@pytest.mark.parametrize(("second", "ratio"), [(1.4, 1.3), (1.25, 1.3), (1.6, 1.0)])
def test_ratios_agree_if_they_are_near(second: float, ratio: float) -> None:
    known = meet(Record(1.0), Claim("one", ratio=1.3), Claim("two", ratio=second))

    assert (known.ratio, known.calibrated) == (ratio, ratio != 1.0)


def test_so_many_claims_are_kept_and_no_more() -> None:
    known = meet(Record(1.0), *(Claim(str(number), ratio=1 + number) for number in range(3 * MAX_CLAIMS)))

    assert [each.by for each in known.claims] == [str(number) for number in range(2 * MAX_CLAIMS, 3 * MAX_CLAIMS)]
