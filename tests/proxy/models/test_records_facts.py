"""Which of the known facts requests are planned with."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.models.records import Facts, ModelName, Record, complete, recall

LEARNED = Facts(1.0, learned_tokens=8192, added_tokens=500, refuted=(32_000, 128_000))


@pytest.mark.parametrize(
    ("window_tokens", "is_configured", "corrected"),
    [(128_000, False, 8192), (128_000, True, 8192), (64_000, False, 64_000), (64_000, True, 64_000)],
)
def test_a_learned_window_stands_for_those_that_it_has_refuted(window_tokens, is_configured, corrected) -> None:
    assert LEARNED.correct(window_tokens, is_configured=is_configured) == corrected


@given(learned=st.integers(1024, 10**6), configured=st.integers(1024, 10**6))
def test_a_window_that_is_configured_is_never_made_larger(learned: int, configured: int) -> None:
    facts = Facts(1.0, learned_tokens=learned, refuted=(configured,))
    assert facts.correct(configured, is_configured=True) == min(learned, configured)
    assert facts.correct(configured) == learned


def test_a_ratio_that_answers_confirm_is_learned_and_not_in_doubt() -> None:
    confirmed = replace(LEARNED, ratio=0.8, has_ratio=True, is_calibrated=True)
    assert (confirmed.forget(1.2).ratio, confirmed.doubt(1.2).ratio) == (1.2, 0.8)
    assert (confirmed.forget(1.2).has_ratio, confirmed.doubt(1.2).has_ratio) == (False, True)
    assert confirmed.doubt(1.2).correct(32_000) == 32_000
    assert replace(confirmed, is_calibrated=False).doubt(1.2) == Facts(1.2)


def test_a_record_tells_everything_but_the_catalogue() -> None:
    record = Record(1.3, 8192, calibrated=True, learned_tokens=4096, added_tokens=7, refuted=(8192,))
    assert recall(record) == Facts(1.3, 8192, learned_tokens=4096, added_tokens=7, refuted=(8192,))


def test_the_catalogue_is_asked_for_a_window_that_nobody_has_told(monkeypatch: pytest.MonkeyPatch) -> None:
    name = ModelName("https://api.example.com/v1", "m", "auto")
    monkeypatch.setattr("trimtab.proxy.models.records.find_window", lambda *_: 30_000)
    assert complete(name, Facts(1.0)) == Facts(1.0, 30_000, from_catalogue=True)
    assert complete(name, Facts(1.0, 8192)) == Facts(1.0, 8192)

    monkeypatch.setattr("trimtab.proxy.models.records.find_window", lambda *_: None)
    assert complete(name, Facts(1.0)) == Facts(1.0)
