"""The laws of long user messages: when they are short, what stays whole, and that no later message changes that."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.append_law import run
from support.builders import (
    KeptStates,
    assistant,
    call,
    conversation,
    fill,
    result,
    system,
    user,
)
from support.policies import POLICY

from trimtab.rules.conversation import Message, Outcome, Role
from trimtab.rules.pipeline.exceeded import LimitExceededError
from trimtab.rules.pipeline.plan import Plan
from trimtab.rules.pipeline.shortening import TRUNCATE_USERS
from trimtab.rules.policy import Policy
from trimtab.rules.text.markers import START

LIMIT = 64
LIMITED = replace(POLICY, max_message_tokens=LIMIT, truncate_users=True)
WIDE = replace(LIMITED, context_window=1_000_000)
LONG = fill("pasted", 400)


def rules_of(outcome: Outcome) -> list[str]:
    return [decision.rule for decision in outcome.decisions]


def is_short(message: Message) -> bool:
    return message.edited and any(START in text for text in message.texts)


def turns(number: int, answer_tokens: int = 20) -> list[Message]:
    messages = [system(), user("Begin."), assistant("Yes.")]
    for turn in range(number):
        messages += [user(f"{turn}: {LONG}"), assistant(fill(f"answer {turn}", answer_tokens))]
    return messages[:-1]


def test_in_a_chat_each_is_short_as_soon_as_the_next_comes() -> None:
    """The newest stays whole. So a message changes once, and what is forwarded changes from the one before it on."""
    for stop in range(1, 8):
        messages = turns(stop)
        outcome = run(conversation(*messages), WIDE)[1]
        sent = [message for message in outcome.conversation.messages if message.role is Role.USER]
        assert [is_short(message) for message in sent] == [False, *[True] * (stop - 1), False]
        assert all(message.tokens <= LIMIT + 8 for message in sent[:-1])
        assert rules_of(outcome) == [TRUNCATE_USERS] * (stop > 1)


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
    sizes=st.lists(st.tuples(st.integers(1, 900), st.integers(0, 4), st.integers(1, 300)), min_size=1, max_size=9),
    window=st.sampled_from([1600, 4000, 100_000]),
)
def test_they_become_short_at_a_cut_or_when_that_saves_as_much_as_is_read_again(
    sizes: list[tuple[int, int, int]], window: int
) -> None:
    messages = [system(), user("Begin."), assistant("Yes.")]
    for turn, (words, steps, tokens) in enumerate(sizes):
        messages.append(user(fill(f"turn {turn}", words)))
        for step in range(steps):
            name = f"{turn}-{step}"
            messages += [assistant("look", call(name)), result(name, fill(name, tokens))]
        messages.append(assistant(fill(f"answer {turn}", tokens)))
    check_changes(messages, replace(LIMITED, context_window=window))


def test_behind_a_cut_the_long_messages_of_earlier_turns_are_short() -> None:
    """Shortened before it, all that came after them would be read again, which costs more than it saves."""
    messages, policy = [system(), user("Begin.")], replace(LIMITED, context_window=4000)
    for turn in range(2):
        messages += [assistant("Yes."), user(f"{turn}: {LONG}")]
        for number in range(20):
            messages += [assistant("look", call(f"{turn}-{number}")), result(f"{turn}-{number}", fill("out", 80))]
    assert not run(conversation(*messages, assistant("Yes.")), WIDE)[1].decisions
    planned = next(
        planned
        for stop in range(50, len(messages))
        for planned, _ in [run(conversation(*messages[:stop]), policy)]
        if planned.window.cut is not None and planned.window.users_stop
    )
    told = [one for one in planned.conversation.messages[2 : planned.window.users_stop] if one.role is Role.USER]
    assert told
    assert all(map(is_short, told))
