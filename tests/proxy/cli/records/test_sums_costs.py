"""What a request costs with trimtab, unchanged, and with a sliding window."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sessions import make_session

from trimtab.proxy.catalogue.prices import DEFAULT, PriceList, PriceSource, PriceTier, Tokens
from trimtab.proxy.cli.records.sums import Pricing, PromptCaches, slide_window
from trimtab.proxy.cli.records.variants import compact_again, read
from trimtab.proxy.compaction.engine import Compaction, Variant
from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.config.policy import PolicyConfig
from trimtab.proxy.wire.codec import Request
from trimtab.rules.conversation import Conversation, Message, Role, starts_step, whole_elements
from trimtab.rules.policy import Policy

POLICY = Policy(context_window=8000, completion_reserve=1000, high_water=0.8, low_water=0.4)
DOLLARS = PriceList((PriceTier(0, 2.0, 0.5, 2.5, 8.0),), PriceSource.CONFIGURED, is_in_dollars=True)


def _read(compactors: Compactors, steps: int, words: int = 400) -> Request:
    session = make_session(steps, result_words=words)
    return read(
        compactors, orjson.dumps({"model": "m", "messages": session["messages"][:-1], "tools": session["tools"]})
    )


def _carry(compactors: Compactors, steps: int) -> Compaction:
    compactor = compactors.choose(PolicyConfig(), "m")
    return compact_again(compactors, _read(compactors, steps), Variant(compactor, POLICY))


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
