"""The sums of one way of compacting: costs by arm, and sessions."""

from typing import Any

import orjson
import pytest
from msgspec import structs
from msgspec.structs import replace
from support.recordings import make_figures, make_recording
from support.sessions import make_session

from trimtab.proxy.account.recordings.format import Counted, RecordedCall
from trimtab.proxy.catalogue.prices import DEFAULT, PriceList, PriceSource, PriceTier, Tokens
from trimtab.proxy.cli.records.sums import Figures, Pricing, RequestFigures, SessionSums, VariantSums, add_up
from trimtab.proxy.cli.records.variants import compact_again, read
from trimtab.proxy.compaction.engine import Compaction, Variant
from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.config.policy import PolicyConfig
from trimtab.rules.conversation import Decision
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


CUT = make_figures(
    "m", "chat", 200, "compacted", Sections(100, 0, 0, 900, 50), Sections(100, 200, 0, 300, 50), 800,
    (Decision("prune", "", 1050, 850, 3, 2), Decision("digest", "", 850, 600, 3, 2),
     Decision("pin", "", 600, 650, 1, 5)),
    prompt_tokens=640, cached_tokens=128, completion_tokens=7, prefix_kept=0.5,
    cost=2_000_000_000, without_cost=3_000_000_000,
)  # fmt: skip
REFUSED = make_figures("m", "chat", 400, "refused", Sections(900), limit_tokens=800, error="context_length_exceeded")
PASSED = make_figures("other", "models", 200, "passed")


def _sum(*told: RequestFigures) -> Figures:
    figures = Figures()
    for one in told:
        figures.add(one)
    return figures


def _describe(figures: Figures, label: str) -> dict[str, Any]:
    return next(model for model in figures.describe() if model["name"] == label)


def test_the_figures_of_a_model_add_up() -> None:
    """A rule that adds tokens is told apart from those that save; a refused request sends nothing."""
    figures = _sum(CUT, CUT, REFUSED)
    model = _describe(figures, "m")

    assert (model["requests"], model["answered"], model["refused"], model["over_limit"]) == (3, 2, 1, 3)
    assert (model["original_tokens"], model["sent_tokens"]) == (2 * 1050, 2 * 650)
    assert model["saved_tokens"] == {"prune": 400, "digest": 500}
    assert model["added_tokens"] == {"pin": 100}
    assert model["cuts"] == {"prune": 2, "digest": 2}
    assert model["sections"]["sent"] == {"system": 200, "summary": 400, "memory": 0, "recent": 600, "current": 100}
    assert (model["cached_tokens"], model["completion_tokens"]) == (256, {"upstream": 14})
    assert (model["prefix_kept"], model["booked_usd"], model["booked_without_usd"]) == (0.5, 4.0, 6.0)
    assert model["outcomes"] == {"compacted": 2, "refused": 1}


def test_what_is_not_known_is_null() -> None:
    """It is not zero."""
    model = _describe(_sum(PASSED), "other")
    assert (model["prefix_kept"], model["booked_usd"], model["original_tokens"]) == (None, None, 0)


def test_summaries_count_for_their_model() -> None:
    figures = _sum(CUT)
    figures.add_summary(RecordedCall("m", "", "written", 0.0, 900, 60, cost=1_000_000_000))
    figures.add_summary(RecordedCall("m", "", "failed", 0.0, 0, 0))
    model = _describe(figures, "m")
    assert (model["summaries"], model["booked_summaries_usd"]) == (2, 1.0)
    assert model["summary_results"] == {"written": 1, "failed": 1}
    assert model["summary_tokens"] == {"prompt": 900, "completion": 60}


def test_models_with_long_prompts_come_first() -> None:
    assert [model["name"] for model in _sum(PASSED, CUT).describe()] == ["m", "other"]


def test_the_total_is_the_sum_of_all_models() -> None:
    """Shares are not added up, and what no model knows stays unknown."""
    figures = _sum(CUT, PASSED, REFUSED)
    total = add_up(figures.describe())
    assert (total["requests"], total["original_tokens"], total["booked_usd"]) == (3, 1050, 2.0)
    assert total["saved_tokens"] == {"prune": 200, "digest": 250}
    assert total["booked_summaries_usd"] is None
    assert "prefix_kept" not in total
    assert add_up([]) == {}


DECISION = Decision("tidy", "", 9, 5, 1, 0)


def test_only_what_was_counted_is_told() -> None:
    """A request may have a prompt that the metrics did not count, and decisions that were not sent."""
    recording = make_recording()
    event = structs.replace(
        recording.event, original_sections=(1, 2, 3, 4, 5), sent_sections=(1, 0, 0, 0, 0), label="m"
    )
    sent = RequestFigures.of(replace(recording, event=event, counted=Counted(True, True, (DECISION,))))  # noqa: FBT003
    uncounted = RequestFigures.of(replace(recording, event=event))

    assert (sent.original_tokens, sent.sent_tokens, sent.counted.decisions, sent.event.label) == (
        15,
        1,
        (DECISION,),
        "m",
    )
    assert (uncounted.original_tokens, uncounted.sent_tokens) == (0, 0)


def test_it_says_who_counted_the_completion() -> None:
    event = structs.replace(make_recording().event, is_estimated=True, completion_tokens=3)
    assert RequestFigures.of(replace(make_recording(), event=event)).completion_source == "estimated"
    assert RequestFigures.of(make_recording()).completion_source == "upstream"
