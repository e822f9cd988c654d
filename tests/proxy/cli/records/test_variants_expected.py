"""The summaries that a configuration would ask for."""

from types import SimpleNamespace
from typing import Any

import pytest

from trimtab.proxy.catalogue.prices import DEFAULT
from trimtab.proxy.cli.records.sums import Pricing
from trimtab.proxy.cli.records.variants import ExpectedSummaries, PricedVariant, Texts
from trimtab.proxy.compaction.engine import Text, Variant
from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.config.policy import PolicyConfig
from trimtab.rules.policy import Policy
from trimtab.rules.summary.prompts import PROMPT_TOKENS
from trimtab.rules.summary.request import Summary

SUMMARY = Summary("The harbour was mended.", by_model=True)


def _want(key: str, *, asks_model: bool = True) -> Any:
    return SimpleNamespace(key=key, asks_model=asks_model, max_tokens=100)


def _plan(request: Any = None, prefetch: Any = None, earlier: Any = None, reserved_tokens: int = 3000) -> Any:
    sizes = {"reserved_tokens": reserved_tokens, "fitting": 4000, "hard_limit": 5000}
    return SimpleNamespace(request=request, prefetch=prefetch, put_off=lambda: earlier, **sizes)


@pytest.fixture
def chosen(compactors: Compactors) -> PricedVariant:
    way = Variant(compactors.choose(PolicyConfig(), "m"), Policy(token_ratio=2.0))
    return PricedVariant(way, Pricing(DEFAULT), "m")


def test_a_call_is_made_once_for_each_cut(chosen: PricedVariant) -> None:
    """It reads what was forwarded from the cache, and its answer is as long as it may be."""
    expected, plan = ExpectedSummaries(Texts()), _plan(prefetch=_want("k"))
    (call,) = expected.ask(chosen, plan, "s")
    assert (call.label, call.completion_tokens) == ("m", 200)
    assert call.prompt_tokens == 6000 + 2 * PROMPT_TOKENS
    assert call.charged.cached == 5888
    assert expected.ask(chosen, _plan(request=_want("k")), "s") == []
    assert len(expected.ask(chosen, plan, "t")) == 1
    assert expected.ask(chosen, _plan(request=_want("x", asks_model=False)), "s") == []


def test_a_cut_whose_summary_was_not_asked_for_is_put_off_if_the_request_fits(chosen: PricedVariant) -> None:
    """At the next request the summary is there. If the request does not fit, the cut is made at once."""
    expected, earlier = ExpectedSummaries(Texts()), _plan()
    plan = _plan(_want("k"), earlier=earlier)
    too_long = _plan(_want("k"), earlier=_plan(reserved_tokens=4001))
    choose = expected.choose_text(chosen.variant, "s")

    assert choose(too_long).plan is too_long
    assert choose(plan).plan is earlier
    assert choose(_plan(_want("k"), earlier=_plan(_want("j"), earlier=earlier))).plan is earlier
    expected.ask(chosen, plan, "s")
    assert choose(plan).plan is plan
    assert choose(_plan()).summary is None


def test_a_recorded_text_is_used_unless_a_digest_has_stood_in(chosen: PricedVariant) -> None:
    """What stands for a cut stays, so that the upstream's cache is not broken twice."""
    expected, plan = ExpectedSummaries(Texts()), _plan(_want("k"))
    expected.texts.keep("s", "k", SUMMARY)
    assert expected.choose_text(chosen.variant, "s")(plan) == Text(plan, SUMMARY)
    assert not expected.stands_in(plan, Text(plan, SUMMARY), "s")
    assert expected.stands_in(plan, Text(plan), "s")
    assert not expected.stands_in(plan, Text(plan), "s")
    assert expected.choose_text(chosen.variant, "s")(plan) == Text(plan)


def test_a_digest_that_no_model_would_have_written_stands_in_for_nothing(chosen: PricedVariant) -> None:
    plan = _plan(_want("k", asks_model=False))
    expected = ExpectedSummaries(Texts())
    assert expected.choose_text(chosen.variant, "s")(plan) == Text(plan)
    assert not expected.stands_in(plan, Text(plan), "s")
    assert not expected.stands_in(_plan(), Text(_plan()), "s")
