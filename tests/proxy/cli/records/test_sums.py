"""The sums of one way of compacting: costs by arm, and sessions."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace
from support.recordings import make_figures, make_recording
from support.sessions import make_session

from trimtab.proxy.account.recordings.format import Counted, RecordedCall
from trimtab.proxy.catalogue.prices import DEFAULT, PriceList, PriceSource, PriceTier, Tokens
from trimtab.proxy.cli.records.sums import (
    Figures,
    Pricing,
    PromptCaches,
    RequestFigures,
    VariantSums,
    add_up,
    slide_window,
)
from trimtab.proxy.cli.records.variants import compact_again, read
from trimtab.proxy.compaction.engine import Compaction, Variant
from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.config.policy import PolicyConfig
from trimtab.rules.conversation import Conversation, Decision, Message, Role, starts_step, whole_elements
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


# What a request costs with trimtab, unchanged, and with a sliding window.


def test_a_price_in_dollars_is_for_a_million_tokens_any_other_in_prompt_tokens() -> None:
    """Where prompts are free, there is no price of one that a cost could be told in."""
    free = PriceList((PriceTier(0, 0.0, 0.0, 0.0, 3.0),), PriceSource.CONFIGURED, is_in_dollars=False)
    assert Pricing(DOLLARS).weigh(Tokens(1_000_000, 2_000_000, 400_000, 1_000_000)) == pytest.approx(2 + 1 + 1 + 8)
    assert Pricing(DEFAULT).weigh(Tokens(100, 1000, 0, 10)) == pytest.approx(100 + 0.1 * 1000 + 4 * 10)
    assert Pricing(free).weigh(Tokens(100, 0, 0, 10)) == 30


@pytest.mark.parametrize(("kept", "cached"), [(0, 0), (1023, 0), (1500, 1408), (9000, 2000)])
def test_a_cache_holds_whole_blocks_of_what_was_sent_before(kept: int, cached: int) -> None:
    """The rest is written where writing costs more, and else fresh."""
    assert Pricing(DOLLARS).imagine(2000, kept, 5) == Tokens(0, cached, 2000 - cached, 5)
    assert Pricing(DEFAULT).imagine(2000, kept, 5) == Tokens(2000 - cached, cached, 0, 5)


def test_a_prompt_that_grows_is_read_from_the_cache_until_its_lifetime_ends(compactors: Compactors) -> None:
    """The sliding window moves with each request, so that it finds next to nothing again."""
    arms, pricing = PromptCaches(), Pricing(DEFAULT, 300)
    for number, steps in enumerate((18, 19, 20)):
        spent = arms.send("s", _carry(compactors, steps), pricing, at=100 * number, completion_tokens=0)
    late = arms.send("s", _carry(compactors, 21), pricing, at=1000, completion_tokens=0)

    assert spent["nothing"].kept_share is not None
    assert spent["nothing"].kept_share > 0.9
    assert spent["sliding"].tokens.prompt <= POLICY.limit_tokens() < spent["nothing"].tokens.prompt
    assert spent["sliding"].tokens.cached < spent["trimtab"].tokens.cached < spent["nothing"].tokens.cached
    assert {one.tokens.cached for one in late.values()} == {0}


_ROLES = st.sampled_from([Role.USER, Role.ASSISTANT, Role.TOOL])


@given(st.lists(st.tuples(_ROLES, st.integers(1, 50)), min_size=1, max_size=12), st.integers(0, 400))
def test_a_window_keeps_the_task_and_the_newest_steps_that_fit(sizes: list[tuple[Role, int]], max_tokens: int) -> None:
    """What is kept behind the task begins with a step. It exceeds the maximum only if it is just the last step."""
    told = ((Role.SYSTEM, 5), (Role.USER, 5), *sizes)
    messages = tuple(Message(role, (f"{number}",), tokens=tokens) for number, (role, tokens) in enumerate(told))
    kept = slide_window(Conversation(messages, 10, whole_elements(len(messages))), max_tokens)
    tail = kept.messages[2:]
    assert kept.messages[:2] == messages[:2]
    assert tail == messages[-len(tail) :]
    assert starts_step(tail[0]) or len(tail) == len(sizes)
    assert len(kept.origins) == len(kept.messages)
    assert kept.tokens <= max_tokens or sum(map(starts_step, tail)) <= 1
