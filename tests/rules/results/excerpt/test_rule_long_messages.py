"""Long messages of the assistant and of the system."""

from dataclasses import replace

import pytest
from support.builders import assistant, call, conversation, count, fill, result, system, user

from trimtab.rules.conversation import Message, Outcome
from trimtab.rules.pipeline.order import plan
from trimtab.rules.policy import Policy, PreserveSystem
from trimtab.rules.results.excerpt.rule import LongMessages, may_shorten, shorten_message
from trimtab.rules.results.work import Work

LIMIT = 100
POLICY = Policy(max_message_tokens=LIMIT)
LONG = fill("said", 400)


def shorten(*messages: Message, policy: Policy = POLICY) -> Outcome:
    """The outcome after one leading message."""
    long = LongMessages(1)
    long.extend(messages, policy, Work(count))
    return long.apply(conversation(*messages))


def test_head_and_tail_stay_with_a_marker() -> None:
    """The call stays, too. The decision tells what was saved."""
    messages = (system(LONG), user(LONG), assistant(LONG, call("a")), result("a", LONG), system(LONG))
    outcome = shorten(*messages)
    sent = outcome.conversation.messages
    assert [new is old for new, old in zip(sent, messages, strict=True)] == [True, True, False, True, False]
    (text,) = sent[2].texts
    assert text.startswith("said all of this")
    assert "[trimtab: omitted " in text
    assert count(text) <= LIMIT
    assert sent[2].tool_calls == messages[2].tool_calls
    (decision,) = outcome.decisions
    assert (decision.rule, decision.messages, decision.first_changed) == ("shorten", 2, 2)
    assert decision.saved_tokens == conversation(*messages).tokens - outcome.conversation.tokens


@pytest.mark.parametrize(
    ("message", "policy"),
    [
        (assistant(LONG), Policy()),
        (user(LONG), POLICY),
        (result("a", LONG), POLICY),
        (replace(assistant(LONG), has_fixed_texts=True), POLICY),
        (system(LONG), replace(POLICY, preserve_system=PreserveSystem.ALL)),
        (assistant("short", call("a", arguments=LONG)), POLICY),
    ],
    ids=["default", "user", "result", "fixed", "preserved", "arguments"],
)
def test_what_must_stay_stays(message: Message, policy: Policy) -> None:
    """The same object."""
    assert not may_shorten(message, policy) or shorten_message(message, LIMIT, Work(count)) is message
    before = conversation(system(), message)
    assert shorten(*before.messages, policy=policy).conversation.messages[1] is message


def test_several_texts_share_the_limit() -> None:
    """Unless each would get too little: then they all stay, because they would have to be joined."""
    parts = replace(assistant(LONG), texts=(LONG, "short", LONG), tokens=900)
    short = shorten_message(parts, LIMIT, Work(count))
    assert [text == "short" for text in short.texts] == [False, True, False]
    assert sum(map(count, short.texts)) <= LIMIT
    many = replace(parts, texts=(LONG,) * 9)
    assert shorten_message(many, LIMIT, Work(count)) is many


def test_a_short_chat_is_decided_in_the_same_way() -> None:
    """Although such a chat is otherwise left alone without a look at its texts."""
    messages = (system(), user("Tell me."), assistant(LONG), user("More."))
    planned = plan(conversation(*messages), replace(POLICY, context_window=128_000), count=count)
    assert not planned.is_empty
    assert [decision.rule for decision in planned.decisions] == ["shorten"]
    assert plan(conversation(*messages), Policy(), count=count).is_empty
