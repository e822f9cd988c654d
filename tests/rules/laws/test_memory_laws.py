"""The laws of retrieved memory: when it is dropped, what stays of it, and that no later message changes that."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from support.builders import FREE, assistant, conversation, count, fill, system, user

from trimtab.rules.conversation import Message, Outcome
from trimtab.rules.pipeline.exceeded import LimitExceededError
from trimtab.rules.pipeline.order import apply, plan
from trimtab.rules.pipeline.plan import Plan
from trimtab.rules.policy import Policy, SectionShares
from trimtab.rules.summary.request import Summary
from trimtab.rules.text.client_summaries import find_memory

LIMIT = 7000
POLICY = Policy(
    context_window=9332,
    completion_reserve=2332,
    high_water=0.8,
    low_water=0.4,
    anchor_share=0.06,
    summary_max_tokens=400,
    summary_min_steps=3,
    prices=FREE,
)


def remember(tokens: int, label: str = "memory") -> str:
    """A block of retrieved memory. None for 0 tokens: a block that costs less than its marker is never dropped."""
    return f"<relevant_context>{fill(label, tokens)}</relevant_context>" if tokens else ""


def run(messages: Sequence[Message], policy: Policy = POLICY) -> tuple[Plan, Outcome]:
    """The decisions about a transcript, and the conversation that is forwarded."""
    planned = plan(conversation(*messages), policy, count=count)
    summary = Summary("What was done so far.", by_model=True) if planned.request else None
    return planned, apply(planned, policy, count=count, summary=summary)


def run_until_refused(messages: Sequence[Message], policy: Policy) -> Iterator[tuple[Plan, Outcome]]:
    """What is forwarded after each message from the second on, until the newest step alone exceeds the window."""
    for stop in range(2, len(messages) + 1):
        try:
            yield run(messages[:stop], policy)
        except LimitExceededError:
            return


def rules_of(outcome: Outcome) -> list[str]:
    return [decision.rule for decision in outcome.decisions]


def count_blocks(messages: Sequence[Message]) -> int:
    return sum(len(find_memory(text, POLICY.memory_tags)) for message in messages for text in message.texts)


def chat(turns: int, memory_tokens: int, answer_tokens: int = 20) -> list[Message]:
    """A chat in which each user message begins with retrieved memory."""
    messages = [system()]
    for number in range(turns):
        messages.append(user(f"{remember(memory_tokens, f'memory {number}')}\nQuestion {number}?"))
        messages.append(assistant(fill(f"answer {number}", answer_tokens)))
    return messages[:-1]


BLOCK = remember(7200)


@pytest.mark.parametrize(
    "messages",
    [
        [system(), user(f"{BLOCK}\nWhat now?")],
        [system(), user(f"First, {BLOCK}read this."), assistant("Yes."), user("What now?")],
        [system(), user("Begin."), assistant("Yes."), system(f"Note: {BLOCK}"), user("What now?")],
        [system(), user(f"a{remember(4000)}b"), assistant("Yes."), user(f"c{remember(7000)}d")],
    ],
)
def test_memory_goes_first_and_the_rest_stays(messages: list[Message]) -> None:
    """7,200 tokens of memory at a limit of 7,000: less than 500 are sent, with all words around the blocks."""
    assert POLICY.limit_tokens() == LIMIT
    planned, outcome = run(messages)
    assert rules_of(outcome) == ["memory"]
    assert outcome.conversation.tokens == planned.reserved_tokens < 500
    for before, after in zip(messages, outcome.conversation.messages, strict=True):
        text = before.text
        for start, stop in reversed(find_memory(text, POLICY.memory_tags)):
            text = f"{text[:start]}[trimtab: retrieved memory of {count(text[start:stop])} tokens removed]{text[stop:]}"
        assert after.text == text
        assert (after is before) == (not find_memory(before.text, POLICY.memory_tags))


def test_the_oldest_memory_goes_until_low_water() -> None:
    """The newest blocks stay, and with them the one that the question came with."""
    found = (run(chat(turns, 500)) for turns in range(2, 40))
    planned, outcome = next((planned, outcome) for planned, outcome in found if outcome.decisions)
    assert rules_of(outcome) == ["memory"]
    assert outcome.conversation.tokens <= planned.limit * POLICY.low_water
    kept = [count_blocks([message]) for message in outcome.conversation.messages if message.role == "user"]
    assert kept == sorted(kept)
    assert kept[0] == 0 < kept[-1]


@given(
    sizes=st.lists(st.tuples(st.sampled_from([0, 0, 30, 400, 2500]), st.integers(1, 700)), max_size=14),
    limit=st.sampled_from([600, 1500, 4000]),
    task=st.sampled_from([0, 300, 3000]),
    share=st.sampled_from([None, 0.05, 0.3]),
)
def test_no_message_changes_what_was_dropped_before_it(
    sizes: list[tuple[int, int]], limit: int, task: int, share: float | None
) -> None:
    """Memory that is gone stays gone, the prefix moves only with a decision, and the plan's size is the one sent."""
    policy = replace(POLICY, context_window=limit * 4 // 3, completion_reserve=limit)
    policy = policy if share is None else replace(policy, sections=SectionShares(memory=share, recent=0.3))
    messages = [system(), user(f"{remember(task)}Go.")]
    for number, (memory, words) in enumerate(sizes):
        said = fill(f"words {number}", words)
        messages.append(user(remember(memory) + said) if number % 2 else assistant(said))
    found = list(run_until_refused(messages, policy))
    for (before, sent), (after, later) in pairwise(found):
        assert after.window.memory_stop >= before.window.memory_stop
        assert later.conversation.tokens <= max(after.reserved_tokens, after.original.tokens)
        kept = [structs.replace(one.window, next_cut=None, prefetch_tokens=0) for one in (before, after)]
        if kept[0] == kept[1]:
            assert later.conversation.messages[: len(sent.conversation.messages)] == sent.conversation.messages
        if after.window.cut is not None:
            assert after.window.memory_stop >= after.window.cut.at or not count_blocks(messages[: after.window.cut.at])


def test_the_share_of_memory_is_kept() -> None:
    """Over its share, memory goes down to half of it, so that the cache does not break at each turn."""
    policy = replace(POLICY, context_window=128_000, completion_reserve=8000, sections=SectionShares(memory=0.02))
    share = int(policy.limit_tokens() * 0.02)
    stops = []
    for turns in range(1, 60):
        planned, outcome = run(chat(turns, 300), policy)
        assert sum(count(remember(300)) for _ in range(count_blocks(outcome.conversation.messages))) <= share * 1.1
        stops.append(planned.window.memory_stop)
    assert 2 < len(set(stops)) < 20


def test_a_cut_that_is_put_off_leaves_the_prefix_as_it_was() -> None:
    """While a summary is being written, the memory that the cut would drop is still forwarded. No rule tells of it."""
    messages = chat(30, 150, answer_tokens=300)
    before: tuple[Message, ...] = ()
    moments = 0
    for stop in range(2, len(messages) + 1, 2):
        planned, outcome = run(messages[:stop])
        put_off = planned.put_off()
        if put_off is not None and planned.window.cut is not None and planned.window.cut.made_at > stop - 2:
            waiting = apply(put_off, POLICY, count=count, summary=Summary("What was done so far.", by_model=True))
            assert waiting.conversation.messages[: len(before)] == before
            assert all(one.saved_tokens for one in put_off.decisions)
            moments += count_blocks(waiting.conversation.messages) > count_blocks(outcome.conversation.messages)
        before = outcome.conversation.messages
    assert moments


def test_the_newest_memory_stays_although_it_exceeds_its_share() -> None:
    policy = replace(POLICY, sections=SectionShares(memory=0.05))
    messages = [system(), user("Hello"), assistant("Hi"), user(f"{remember(1000)} What is it?")]
    planned, outcome = run(messages, policy)
    assert planned.window.memory_stop == 0
    assert outcome.conversation.messages == tuple(messages)
