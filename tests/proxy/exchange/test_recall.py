"""Figures and bounds of an exchange with several rounds. tests/end_to_end/test_recall.py has the rounds themselves."""

import gzip
from collections.abc import AsyncIterator
from types import SimpleNamespace

import orjson
import pytest
from support.journeys import MakeStages, Stages, read_session

from trimtab.proxy.account.outcome import Answered
from trimtab.proxy.catalogue.prices import Bill, Cost, PriceList, PriceTier, Tokens
from trimtab.proxy.exchange.answer import Learned
from trimtab.proxy.exchange.attempt import Passed
from trimtab.proxy.exchange.recall import (
    MAX_CALLS,
    MAX_TOKENS,
    STEP_BYTES,
    TOO_MANY,
    Talk,
    _read_whole,
    add_round,
    takes_calls,
)
from trimtab.proxy.memory import Memory
from trimtab.proxy.wire.answers.recall import MAX_ROUND_BYTES, NAME, RecallCall, Round
from trimtab.proxy.wire.chat.codec import CHAT

FIRST = Learned(Answered(100, 0, 10, ends_turn=False), bill=Bill(Tokens(100, 0, 0, 10), Tokens(100, 0, 0, 10)))


NO_PRICES = PriceList((PriceTier(0, 1.0, 0.1, 1.0, 4.0),), "default")


def test_all_rounds_are_in_the_bill() -> None:
    """What it would have cost without trimtab stays; the prompt's figures are those of the first round."""
    learned = add_round(FIRST, Answered(130, 100, 20, ends_turn=True), 90, NO_PRICES)
    assert learned.bill.tokens == Tokens(130, 100, 0, 30)
    assert learned.bill.without == Tokens(100, 0, 0, 10)
    assert (learned.answered.prompt_tokens, learned.answered.completion_tokens) == (100, 30)
    assert learned.answered.ends_turn
    assert (learned.recall_rounds, learned.recall_prompt_tokens) == (1, 130)
    again = add_round(learned, Answered(150, 130, 5), 90, NO_PRICES)
    assert (again.recall_rounds, again.recall_prompt_tokens, again.bill.tokens.completion) == (2, 280, 35)


def test_a_round_without_usage_is_estimated_and_a_cost_that_is_not_known_stays_unknown() -> None:
    learned = add_round(FIRST, Answered(completion_tokens=4, is_estimated=True), 90, NO_PRICES)
    assert (learned.bill.is_estimated, learned.bill.tokens.fresh) == (True, 190)
    priced = Learned(FIRST.answered, bill=Bill(Tokens(), Tokens(), Cost(5), Cost(5)))
    unknown = Bill(Tokens(30, 100, 0, 20), Tokens(), None, Cost(5))
    assert add_round(priced, Answered(130, 100, 20), 90, NO_PRICES).bill == unknown
    assert add_round(Learned(FIRST.answered), Answered(130), 90, NO_PRICES).bill is None
    assert not takes_calls(Passed("off"))


@pytest.fixture
async def talk(make_stages: MakeStages) -> Talk:
    """One of a session, of which nothing was answered yet."""
    stages: Stages = await make_stages("defaults.recall=tool")
    attempt = await stages.attempt(read_session(4))
    ready = SimpleNamespace(codec=CHAT, reply=SimpleNamespace(request=None), arrival=attempt.call.arrival)
    return Talk(stages.services, ready, attempt, lambda _: None, tuple)  # type: ignore[arg-type]


async def test_the_calls_of_a_round_share_half_of_what_the_window_has_left(talk: Talk) -> None:
    """Each has a bound of its own; those beyond a number are not answered. What a round says and finds is taken off."""
    asked, compacted = list[int](), talk._attempt.compacted
    assert talk._left == compacted.limit_tokens - compacted.sent_tokens
    talk._lookup = SimpleNamespace(find=lambda *each: asked.append(each[-1]) or "found")  # type: ignore[assignment]
    call, found_tokens = RecallCall("c", "q"), talk._compactor.count("found")
    talk._left = 1000
    assert await talk._find(Round((b"x" * 400,), (call,) * 2, ())) == ["found"] * 2
    assert asked == [250, 250]
    assert talk._left == 1000 - 100 - 2 * found_tokens
    talk._left = 1_000_000
    assert await talk._find(Round((), (call,) * (MAX_CALLS + 1), ())) == ["found"] * MAX_CALLS + [TOO_MANY]
    assert asked[2:] == [MAX_TOKENS] * MAX_CALLS


async def test_memory_is_taken_by_steps_as_an_answer_grows_and_none_beyond_the_bound(talk: Talk) -> None:
    memory = Memory(10 * STEP_BYTES)
    account = talk._account = memory.open("a tenant")
    for size_bytes, held_bytes in ((1, STEP_BYTES), (STEP_BYTES, STEP_BYTES), (4 * STEP_BYTES, 4 * STEP_BYTES)):
        assert talk._has_room(size_bytes)
        assert account.held_bytes == held_bytes
    assert not talk._has_room(20 * STEP_BYTES)
    assert account.held_bytes == 4 * STEP_BYTES


async def test_an_answer_in_one_piece_is_read_up_to_a_bound(talk: Talk) -> None:
    """Also if it is compressed: more than that passes as it is."""
    read = list[bytes]()

    async def send() -> AsyncIterator[bytes]:
        for _ in range(20):
            read.append(b" " * (MAX_ROUND_BYTES // 4))
            yield read[-1]

    answer = SimpleNamespace(content=SimpleNamespace(iter_any=send))
    body, is_whole = await _read_whole(answer, b"", lambda _: True)  # type: ignore[arg-type]
    assert (len(body), is_whole, len(read)) == (sum(map(len, read)), False, 5)
    call = {"id": "c", "type": "function", "function": {"name": NAME, "arguments": '{"query": "a"}'}}
    message = {"role": "assistant", "content": "", "tool_calls": [call]}
    for padding, is_read in ((0, True), (MAX_ROUND_BYTES, False)):
        told = orjson.dumps({"choices": [{"index": 0, "message": message}], "padding": " " * padding})
        assert (talk._sift_whole(gzip.compress(told), ("gzip",))[1] is not None) is is_read
