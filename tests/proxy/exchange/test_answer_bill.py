"""The bill of an answer, without a socket; tests/end_to_end/test_figures_agree.py has whole sessions."""

from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from msgspec import structs
from support.journeys import MakeStages, arrive, make_reply, read_session

from trimtab.proxy.account.outcome import Answered
from trimtab.proxy.account.prompt_cache import MIN_CACHED_TOKENS
from trimtab.proxy.catalogue.prices import Tokens
from trimtab.proxy.exchange.answer import Learned, Observed, draw_bill, learn_from_left, observe
from trimtab.proxy.exchange.attempt import Passed
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.messages.codec import COUNT_TOKENS

USD = "prices={unit: usd, input: 1, cached_input: 0.1, cache_write: 1.25, output: 4}"
PRUNES = "defaults.overflow_strategy=prune"
TOLD = Answered(5000, 2048, 7)
UNTOLD = Answered(completion_tokens=7, is_estimated=True)
MISSED = Answered(5000, 0, 7)
LONG_SECONDS = 100_000.0


async def test_what_passed_unchanged_costs_the_same_without_trimtab(make_stages: MakeStages) -> None:
    stages = await make_stages(USD)
    bill = draw_bill(stages.services, stages.route(), Passed("passed"), TOLD, Observed())
    assert bill.tokens == bill.without == Tokens.of(5000, 2048, 0, 7)
    assert bill.cost == bill.without_cost
    assert bill.cost.total == 2952 * 1000 + 2048 * 100 + 7 * 4000
    assert draw_bill(stages.services, stages.route(), Passed("passed"), UNTOLD, Observed()) is None


async def test_without_an_end_there_is_no_bill_and_without_a_price_no_money(make_stages: MakeStages) -> None:
    for settings in ((USD,), ()):
        stages = await make_stages(*settings)
        attempt = await stages.attempt(read_session(4))
        bills = [
            draw_bill(stages.services, stages.route(), attempt, answered, Observed())
            for answered in (Answered(), Answered(5000), TOLD)
        ]
        assert bills[:2] == [None, None]
        assert bills[2].tokens.prompt == 5000
        assert (bills[2].cost is None, bills[2].without_cost is None) == (not settings, not settings)


async def test_without_usage_the_tokens_are_trimtabs_and_said_to_be(make_stages: MakeStages) -> None:
    stages = await make_stages(USD, PRUNES)
    bills = []
    for steps, kept in ((40, None), (41, 0.9)):
        attempt = await stages.attempt(read_session(steps))
        assert attempt.outcome == "compacted"
        answered = Answered(completion_tokens=7, is_estimated=True)
        observed = structs.replace(await observe(stages.services, attempt, answered), prefix_kept=kept)
        bills.append(draw_bill(stages.services, stages.route(), attempt, answered, observed))
        assert bills[-1].tokens.prompt == attempt.compacted.sent_tokens
        assert bills[-1].without.prompt == attempt.compacted.original_tokens
    assert all(bill.is_estimated and not bill.tokens.fresh for bill in bills)
    assert bills[0].tokens.cached == bills[0].without.cached == 0
    assert bills[1].tokens.cached % 128 == 0 < bills[1].tokens.cached
    assert bills[1].tokens.cached < bills[1].without.cached <= bills[0].without.prompt  # a cache has no more of it


async def test_a_prompt_whose_client_left_before_any_answer_is_booked_and_teaches_nothing(
    make_stages: MakeStages,
) -> None:
    """Unless the upstream has not got it whole, or only counts."""
    stages = await make_stages(USD)
    attempt = await stages.attempt(read_session(4))
    for is_unanswered, codec, is_booked in ((True, CHAT, True), (False, CHAT, False), (True, COUNT_TOKENS, False)):
        learned, sending = list[Learned](), SimpleNamespace(is_unanswered=is_unanswered)
        ready = SimpleNamespace(arrival=arrive(), route=stages.route(), codec=codec, request=Mock())
        await learn_from_left(stages.services, ready, attempt, sending, None, learned.append)  # type: ignore[arg-type]
        bills = [one.bill for one in learned if one.bill is not None]
        assert [(bill.tokens.prompt, bill.is_estimated) for bill in bills] == (
            [(attempt.compacted.sent_tokens, True)] * is_booked
        )
    assert not stages.services.models.list_known()


@pytest.mark.parametrize("kind", ["text/event-stream", "application/json"])
async def test_an_answer_whose_client_left_at_its_head_does_not_end_the_turn(
    kind: str, make_stages: MakeStages
) -> None:
    """So nothing is written for a next request."""
    stages = await make_stages(USD)
    attempt, learned = await stages.attempt(read_session(4)), list[Learned]()
    ready = SimpleNamespace(
        arrival=arrive(), route=stages.route(), codec=CHAT, request=None, reply=make_reply(), trace=None, sent_at=0.0
    )
    answer = SimpleNamespace(status=200, content_type=kind, headers={})
    await learn_from_left(stages.services, ready, attempt, Mock(), answer, learned.append)  # type: ignore[arg-type]
    assert [(one.answered.ends_turn, one.answered.completion_tokens) for one in learned] == [(False, 0)]


@pytest.mark.parametrize(
    ("prices", "steps"), [(USD, 1), ("prices={unit: usd, input: 1, cached_input: 0.1, output: 4}", 40)]
)
async def test_a_small_prompt_or_one_whose_writing_costs_nothing_is_not_said_to_be_written(
    prices: str, steps: int, make_stages: MakeStages
) -> None:
    stages = await make_stages(prices)
    attempt = await stages.attempt(read_session(steps))
    assert (attempt.compacted.sent_tokens < MIN_CACHED_TOKENS) is (steps == 1)
    answered = Answered(completion_tokens=7, is_estimated=True)
    bill = draw_bill(
        stages.services, stages.route(), attempt, answered, await observe(stages.services, attempt, answered)
    )
    assert bill.tokens == Tokens.of(attempt.compacted.sent_tokens, 0, 0, 7)


async def test_of_a_continued_conversation_only_what_was_removed_is_added(make_stages: MakeStages) -> None:
    """The upstream holds the rest, which trimtab has never seen."""
    for settings, steps, outcome in (((PRUNES,), 40, "compacted"), ((), 3, "unchanged")):
        stages = await make_stages(USD, *settings)
        attempt = await stages.attempt(read_session(steps))
        assert attempt.outcome == outcome
        planned = attempt.chosen.planned
        continued = structs.replace(planned, original=replace(planned.original, continues=True))
        attempt = structs.replace(attempt, chosen=structs.replace(attempt.chosen, planned=continued))
        bill = draw_bill(stages.services, stages.route(), attempt, Answered(90_000, 2048, 7), Observed())
        removed = attempt.compacted.original_tokens - attempt.compacted.sent_tokens
        assert (removed > 0) is (outcome == "compacted")
        assert bill.without.prompt - bill.tokens.prompt == removed
        assert bill.without.cached == bill.tokens.cached == 2048
        assert bill.without_cost.total - bill.cost.total == removed * 1000


async def test_a_request_that_passes_unchanged_costs_what_the_changed_ones_before_it_have_left(
    make_stages: MakeStages,
) -> None:
    """The upstream's cache has what was sent for the session before, not what the client wrote."""
    stages = await make_stages(USD, "defaults.context_window=200000")
    for steps, is_changed in ((40, False), (41, False), (42, True)):
        attempt = await stages.attempt(read_session(steps))
        assert attempt.outcome == "unchanged"
        observed = structs.replace(await observe(stages.services, attempt, MISSED), prefix_kept=0.0)
        now = structs.replace(observed.seen.now, is_changed=is_changed)
        observed = structs.replace(observed, seen=structs.replace(observed.seen, now=now))
        bill = draw_bill(stages.services, stages.route(), attempt, MISSED, observed)
        assert (bill.without.cached > bill.tokens.cached) is is_changed


async def test_after_a_long_pause_the_clients_own_prompt_is_not_cached_either(make_stages: MakeStages) -> None:
    """Nor is ours, if the upstream reports nothing; and what it reports then teaches nothing of its cache."""
    stages = await make_stages(USD, PRUNES, "upstream.base_url=https://api.openai.com/v1")
    now = [0.0]
    stages.services.previous.clock = lambda: now[0]
    cached = []
    for steps, seconds, kept, answered in (
        (40, 0.0, None, MISSED),
        (41, 60.0, 0.0, MISSED),
        (42, LONG_SECONDS, 0.0, MISSED),
        (43, LONG_SECONDS, 0.9, MISSED),
        (44, 60.0, 0.0, MISSED),
        (45, LONG_SECONDS, 0.9, UNTOLD),
    ):
        now[0] += seconds
        attempt = await stages.attempt(read_session(steps))
        observed = structs.replace(await observe(stages.services, attempt, answered), prefix_kept=kept)
        bill = draw_bill(stages.services, stages.route(), attempt, answered, observed)
        cached.append(bill.without.cached > 0)
        assert not bill.tokens.cached
    assert cached == [False, True, False, False, True, False]
