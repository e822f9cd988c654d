"""User messages over the limit, as they are when they are short."""

from dataclasses import replace

from support.builders import assistant, conversation, count, fill, result, system, user

from trimtab.rules.pipeline.order import plan
from trimtab.rules.pipeline.shortening import LongUsers
from trimtab.rules.policy import Policy
from trimtab.rules.results.work import Work
from trimtab.rules.text.markers import ASK_PART

POLICY = Policy(max_message_tokens=100, truncate_users=True)
LONG = fill("pasted", 400)
SUMMARY = f"This session is being continued from a previous conversation that ran out of context. {LONG}"
TALK = (
    system(LONG),
    user(LONG),
    assistant(LONG),
    user(LONG),
    result("a", LONG),
    user("short"),
    user(SUMMARY),
    replace(user(LONG), has_fixed_texts=True),
    user(f"Read this: {LONG}"),
)


def test_only_later_user_messages_over_the_limit_are_listed() -> None:
    """Not the task, a client's own summary, or a message whose texts are fixed. Nothing without the key."""
    users = LongUsers()
    users.extend(TALK, 1, POLICY, Work(count))
    assert list(users.short) == [3, 8]
    assert users.tokens == {at: short.tokens for at, short in users.short.items()}
    assert all(count(short.text) <= 100 and ASK_PART in short.text for short in users.short.values())
    off = LongUsers()
    off.extend(TALK, 1, replace(POLICY, truncate_users=False), Work(count))
    assert not off.short


def test_those_before_the_place_are_short() -> None:
    """The decision tells what was saved. With nothing to do, the conversation is the same object."""
    users, talk = LongUsers(), conversation(*TALK)
    users.extend(TALK[:5], 1, POLICY, Work(count))
    first = users.short[3]
    users.extend(TALK, 1, POLICY, Work(count))
    assert users.short[3] is first
    assert users.apply(talk, 3).conversation is talk
    outcome = users.apply(talk, 8)
    assert [new is old for new, old in zip(outcome.conversation.messages, TALK, strict=True)] == [
        at != 3 for at in range(9)
    ]
    (decision,) = outcome.decisions
    assert (decision.rule, decision.messages, decision.first_changed) == ("truncate_users", 1, 3)
    assert decision.saved_tokens == talk.tokens - outcome.conversation.tokens


def test_a_plan_shortens_them_once_a_later_turn_has_begun() -> None:
    messages = (system(), user("Task."), user(LONG), assistant("Yes."), user("Next."))
    plans = [plan(conversation(*messages[:stop]), POLICY, count=count) for stop in range(2, 6)]
    assert [planned.window.users_stop for planned in plans] == [0, 0, 0, 4]
