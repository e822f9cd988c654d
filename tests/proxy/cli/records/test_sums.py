"""The sums of one way of compacting: costs by arm, and sessions."""

import orjson
import pytest
from support.recordings import make_figures
from support.sessions import make_session

from trimtab.proxy.account.recordings.format import RecordedCall
from trimtab.proxy.catalogue.prices import DEFAULT, PriceList, PriceSource, PriceTier, Tokens
from trimtab.proxy.cli.records.sums import Pricing, RequestFigures, SessionSums, VariantSums
from trimtab.proxy.cli.records.variants import compact_again, read
from trimtab.proxy.compaction.engine import Compaction, Variant
from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.config.policy import PolicyConfig
from trimtab.rules.policy import Policy
from trimtab.rules.tokens.sections import Sections

POLICY = Policy(context_window=8000, completion_reserve=1000, high_water=0.8, low_water=0.4)
PAID = Pricing(DEFAULT)
DOLLARS = PriceList((PriceTier(0, 2.0, 0.5, 2.5, 8.0),), PriceSource.CONFIGURED, is_in_dollars=True)


def _carry(compactors: Compactors, steps: int) -> Compaction:
    session = make_session(steps)
    body = orjson.dumps({"model": "m", "messages": session["messages"][:-1], "tools": session["tools"]})
    return compact_again(compactors, read(compactors, body), Variant(compactors.choose(PolicyConfig(), "m"), POLICY))


def _tell(carried: Compaction) -> RequestFigures:
    compacted = carried.compacted
    return make_figures(
        "m", "chat", 200, carried.outcome, compacted.original_sections, compacted.sent_sections, compacted.limit_tokens
    )


def test_a_session_is_long_if_one_of_its_requests_was(compactors: Compactors) -> None:
    """Its cut is counted once, however many requests are forwarded with it."""
    side = VariantSums("recorded")
    for steps in (3, 30, 31):
        carried = _carry(compactors, steps)
        side.add(_tell(carried), carried, PAID, session="long", at=0)
    short = _carry(compactors, 2)
    side.add(_tell(short), short, PAID, session="short", at=0)

    told = side.describe()
    (model,) = told["models"]
    assert (model["sessions"], model["sessions_over_window"], model["over_window"]) == (2, 1, 2)
    assert model["moved_cuts"] == 1
    assert told["sessions"]["number"] == 2
    assert [one["name"] for one in told["sessions"]["longest"]] == ["long", "short"]
    assert model["costs"]["input_tokens"]["trimtab"] < model["costs"]["input_tokens"]["nothing"]
    assert side.sum_costs()["trimtab"] == pytest.approx(model["costs"]["input_tokens"]["trimtab"])


def test_what_was_not_sent_costs_nothing_in_any_arm(compactors: Compactors) -> None:
    side, carried = VariantSums("recorded"), _carry(compactors, 3)
    side.add(
        make_figures("m", "chat", 400, "refused", Sections(9), error="context_length_exceeded"),
        carried,
        PAID,
        session="s",
        at=0,
    )
    told = side.describe()
    assert told["models"][0]["costs"] == {}
    assert told["sessions"]["longest"][0]["refused"] == 1


def test_a_request_that_was_not_planned_is_counted_without_a_session() -> None:
    side = VariantSums("log")
    side.add(make_figures("m", "chat", 200, "unchanged", Sections(9), Sections(9)), None, None, session="", at=0)
    told = side.describe()
    assert (told["total"]["sent_tokens"], told["sessions"]["number"]) == (9, 0)


def test_summaries_cost_what_their_models_tokens_cost(compactors: Compactors) -> None:
    """In dollars where the price is known in dollars."""
    side, carried = VariantSums("recorded"), _carry(compactors, 3)
    side.add(_tell(carried), carried, Pricing(DOLLARS), session="s", at=0)
    side.add_summary(RecordedCall("m", "", "written", 0.0, 500_000, 0, Tokens(500_000)))
    side.book("m", Pricing(DOLLARS), Tokens(1_000_000))
    costs = side.describe()["models"][0]["costs"]["usd"]
    assert costs["summaries"] == pytest.approx(1.0)
    assert costs["trimtab"] == pytest.approx(2.0 + costs["nothing"])


def test_a_summary_belongs_to_the_session_that_asks_for_it(compactors: Compactors) -> None:
    """Its cost can make a session a loss. If its session is not known, the cost is in the sum of the model only."""
    side, carried = VariantSums("new"), _carry(compactors, 3)
    side.add(_tell(carried), carried, Pricing(DOLLARS), session="s", at=0)
    side.add_summary(RecordedCall("m", "", "expected", 0.0, 500_000, 0, Tokens(500_000)), "")
    assert side.describe()["sessions"]["dearest"] == []
    side.add_summary(RecordedCall("m", "", "expected", 0.0, 500_000, 0, Tokens(500_000)), "s")
    (dearest,) = side.describe()["sessions"]["dearest"]
    assert dearest["costs"]["summaries"] == pytest.approx(1.0)
    assert side.describe()["models"][0]["costs"]["usd"]["summaries"] == pytest.approx(2.0)


def test_a_session_that_costs_more_than_nothing_is_named() -> None:
    """A loss is shown as a loss."""
    side = VariantSums("recorded")
    for name, cost in (("saves", 1.0), ("loses", 6.0)):
        sums = side.sessions[name] = SessionSums(name, "m", "usd")
        sums.costs.update(trimtab=cost, nothing=4.0)
    assert [one["name"] for one in side.describe()["sessions"]["dearest"]] == ["loses"]
    assert sums.loss == pytest.approx(0.5)
    assert SessionSums("new", "m", "usd").loss == 0.0
