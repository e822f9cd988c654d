"""The sums of one way of compacting: costs by arm, and sessions."""

import orjson
import pytest
from msgspec import structs
from msgspec.structs import replace
from support.recordings import make_figures, make_recording
from support.sessions import make_session

from trimtab.proxy.account.recordings.format import Counted, RecordedCall
from trimtab.proxy.catalogue.prices import DEFAULT, PriceList, PriceSource, PriceTier, Tokens
from trimtab.proxy.cli.records.sums import Figures, Pricing, RequestFigures, VariantSums, add_up
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


def test_what_is_not_known_is_null() -> None:
    """It is not zero. A sum of it and of what is known is what is known."""
    figures = Figures()
    for one in (
        make_figures("other", "models", 200, "passed"),
        make_figures("m", "chat", 200, "unchanged", cost=10**9),
    ):
        figures.add(one)
    (model,) = [one for one in figures.describe() if one["name"] == "other"]
    assert (model["prefix_kept"], model["booked_usd"], model["original_tokens"]) == (None, None, 0)
    total = add_up(figures.describe())
    assert (total["requests"], total["booked_usd"], total["booked_summaries_usd"]) == (2, 1.0, None)
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
