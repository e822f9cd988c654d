"""The laws of long user messages: when they are short, what stays whole, and that no later message changes that."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.append_law import check_append_law, run
from support.builders import (
    KeptStates,
    assistant,
    call,
    conversation,
    count,
    fill,
    result,
    system,
    transcripts,
    user,
)
from support.policies import POLICY

from trimtab.rules.conversation import Message, Outcome, Role
from trimtab.rules.pipeline.exceeded import LimitExceededError
from trimtab.rules.pipeline.order import plan
from trimtab.rules.pipeline.plan import Plan
from trimtab.rules.pipeline.shortening import TRUNCATE_USERS
from trimtab.rules.policy import OnExceeded, OverflowStrategy, Policy
from trimtab.rules.text.markers import START

LIMIT = 64
LIMITED = replace(POLICY, max_message_tokens=LIMIT, truncate_users=True)
WIDE = replace(LIMITED, context_window=1_000_000)
LONG = fill("pasted", 400)


def rules_of(outcome: Outcome) -> list[str]:
    """The names of the decisions."""
    return [decision.rule for decision in outcome.decisions]


def is_short(message: Message) -> bool:
    """Whether a text of the message was shortened."""
    return message.edited and any(START in text for text in message.texts)


def turns(number: int, answer_tokens: int = 20) -> list[Message]:
    """A chat in which each user message is long."""
    messages = [system(), user("Begin."), assistant("Yes.")]
    for turn in range(number):
        messages += [user(f"{turn}: {LONG}"), assistant(fill(f"answer {turn}", answer_tokens))]
    return messages[:-1]


def agent(turns: int, steps: int, words: int = 400, result_tokens: int = 100) -> tuple[Message, ...]:
    """An agent's session of several user turns, each with a long message."""
    messages: list[Message] = [system(), user("Mend the build.")]
    for turn in range(turns):
        for step in range(steps):
            name = f"{turn}-{step}"
            messages += [assistant("look", call(name)), result(name, fill(name, result_tokens))]
        messages += [assistant("Done."), user(fill(f"next {turn}", words))]
    return tuple(messages)


def test_in_a_chat_each_is_short_as_soon_as_the_next_comes() -> None:
    """The newest stays whole. So a message changes once, and what is forwarded changes from the one before it on."""
    for stop in range(1, 8):
        messages = turns(stop)
        outcome = run(conversation(*messages), WIDE)[1]
        sent = [message for message in outcome.conversation.messages if message.role is Role.USER]
        assert [is_short(message) for message in sent] == [False, *[True] * (stop - 1), False]
        assert all(message.tokens <= LIMIT + 8 for message in sent[:-1])
        assert rules_of(outcome) == [TRUNCATE_USERS] * (stop > 1)


def test_without_the_key_they_stay() -> None:
    """It is off by default, and needs a limit."""
    messages = turns(4)
    for policy in (replace(WIDE, truncate_users=False), replace(WIDE, max_message_tokens=None)):
        outcome = run(conversation(*messages), policy)[1]
        assert not outcome.decisions


@pytest.mark.parametrize("behind", ["reminder", "result", "second"])
def test_the_whole_newest_turn_stays(behind: str) -> None:
    """A reminder after tool results, or a second message before the answer, makes a long message no older."""
    messages = [*turns(2)[:-1], user(LONG)]
    added = {
        "reminder": [assistant("look", call("a")), result("a", "seen"), user("Mind the time.")],
        "result": [assistant("look", call("a")), result("a", "seen")],
        "second": [user("What does it say?")],
    }[behind]
    outcome = run(conversation(*messages, *added), WIDE)[1]
    assert not is_short(outcome.conversation.messages[len(messages) - 1])


def test_after_a_long_turn_it_waits_for_the_next_cut() -> None:
    """Shortened at once, all that came after it would be read again, which costs more than it saves."""
    messages = (*agent(2, 20), assistant("Yes."))
    outcome = run(conversation(*messages), WIDE)[1]
    assert not outcome.decisions
    small = replace(LIMITED, context_window=4000)
    cut = next(
        (planned, sent)
        for stop in range(50, len(messages))
        for planned, sent in [run(conversation(*messages[:stop]), small)]
        if planned.window.cut is not None and planned.window.users_stop
    )
    for at, message in enumerate(cut[0].conversation.messages):
        if message.role is Role.USER and 1 < at < cut[0].window.users_stop:
            assert is_short(message)


def check_changes(messages: Sequence[Message], policy: Policy) -> int:
    """How often messages became short while a transcript grew; fails if one did for less than was read again."""
    changes, before, states = 0, run(conversation(), policy), KeptStates()
    for stop in range(1, len(messages) + 1):
        if messages[stop - 1].role not in {Role.USER, Role.TOOL}:
            continue  # no request ends here
        try:
            planned, outcome = run(conversation(*messages[:stop]), policy, states=states)
        except LimitExceededError:
            continue
        check_what_stays(planned, outcome)
        old, new = before[0].window, planned.window
        changes += old.users_stop < new.users_stop
        if old.users_stop < new.users_stop and old.cuts == new.cuts:
            check_price(before[1].conversation.messages, outcome.conversation.messages)
        before = planned, outcome
    return changes


def check_what_stays(planned: Plan, outcome: Outcome) -> None:
    """The plan's size is at least what is sent. The task and the messages from `users_stop` on are not short."""
    window = planned.window
    assert outcome.conversation.tokens <= max(planned.reserved_tokens, planned.original.tokens)
    for at, message in enumerate(planned.whole.messages):
        if message.role is Role.USER and (at == window.task or at >= window.users_stop):
            assert not message.edited


def check_price(before: Sequence[Message], after: Sequence[Message]) -> None:
    """What became short saved as much as had to be read again, of what the request before had sent."""
    first = next(at for at, (was, now) in enumerate(zip(before, after, strict=False)) if was.texts != now.texts)
    read_again = sum(message.tokens for message in after[first : len(before)])
    assert sum(message.tokens for message in before[first:]) >= 2 * read_again


@given(
    messages=transcripts(20),
    window=st.sampled_from([600, 1600, 4000]),
    strategy=st.sampled_from(OverflowStrategy),
    exceeded=st.sampled_from([OnExceeded.FORWARD, OnExceeded.TRUNCATE]),
)
def test_a_longer_transcript_forwards_the_same_beginning(
    messages: tuple[Message, ...], window: int, strategy: OverflowStrategy, exceeded: OnExceeded
) -> None:
    """Unless the cut moves, or long messages become short."""
    policy = replace(LIMITED, context_window=window, overflow_strategy=strategy, on_exceeded=exceeded)
    check_append_law(messages, policy)


@given(
    sizes=st.lists(st.tuples(st.integers(1, 900), st.integers(0, 4), st.integers(1, 300)), min_size=1, max_size=9),
    window=st.sampled_from([1600, 4000, 100_000]),
)
def test_they_become_short_at_a_cut_or_when_that_saves_as_much_as_is_read_again(
    sizes: list[tuple[int, int, int]], window: int
) -> None:
    """Turns of any size, with and without tool results."""
    messages = [system(), user("Begin."), assistant("Yes.")]
    for turn, (words, steps, tokens) in enumerate(sizes):
        messages.append(user(fill(f"turn {turn}", words)))
        for step in range(steps):
            name = f"{turn}-{step}"
            messages += [assistant("look", call(name)), result(name, fill(name, tokens))]
        messages.append(assistant(fill(f"answer {turn}", tokens)))
    check_changes(messages, replace(LIMITED, context_window=window))


@pytest.mark.parametrize(("turns", "steps", "words"), [(10, 1, 400), (8, 6, 300), (5, 12, 1500)])
def test_a_long_session_changes_rarely(turns: int, steps: int, words: int) -> None:
    """Over many turns and cuts, and never back."""
    messages = agent(turns, steps, words)
    changes = check_changes(messages, replace(LIMITED, context_window=8000))
    assert 0 < changes <= turns


@given(messages=transcripts(20), window=st.sampled_from([600, 1600, 4000]), data=st.data())
def test_any_replica_decides_the_same(messages: tuple[Message, ...], window: int, data: st.DataObject) -> None:
    """With the state of an earlier request, or without any."""
    policy, states = replace(LIMITED, context_window=window), KeptStates()
    stops = sorted(data.draw(st.sets(st.integers(1, len(messages) or 1), max_size=4)) | {len(messages)})
    for stop in stops:
        planned = plan(conversation(*messages[:stop]), policy, count=count, states=states)
        fresh = plan(conversation(*messages[:stop]), policy, count=count)
        assert planned.window == fresh.window
        assert planned.conversation == fresh.conversation
        assert planned.decisions == fresh.decisions


@pytest.mark.parametrize("words", [400, 3000])
def test_a_cut_that_is_put_off_leaves_them_whole(words: int) -> None:
    """What the cut makes short is forwarded as in the requests before it, and the decisions tell only what was done."""
    messages, policy = agent(4, 12, words), replace(LIMITED, context_window=8000)
    put_off, states = 0, KeptStates()
    for stop in range(2, len(messages)):
        planned, _ = run(conversation(*messages[:stop]), policy, states=states)
        late = planned.put_off()
        if late is None:
            continue
        put_off += planned.window.users_stop > late.window.users_stop
        short = [
            decision.messages if decision.tokens_before - decision.tokens_after else 0
            for decision in late.decisions
            if decision.rule == TRUNCATE_USERS
        ]
        edited = [at for at, message in enumerate(late.whole.messages) if message.role is Role.USER and message.edited]
        assert bool(edited) == bool(short)
        assert all(at < late.window.users_stop for at in edited)
        sizes = late.original.tokens - late.conversation.tokens
        assert sizes == sum(decision.saved_tokens for decision in late.decisions)
    assert put_off
