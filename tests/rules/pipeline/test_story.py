"""The sentences about a request and about each decision; tests/rules/laws/test_story_laws.py has their laws."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from support.builders import (
    assistant,
    call,
    conversation,
    count,
    fill,
    rereading,
    result,
    screenshots,
    session,
    system,
    user,
)
from support.golden import check_golden
from support.policies import POLICY
from support.told_sessions import told_sessions

from trimtab.rules.conversation import Conversation, Decision, Message, Outcome
from trimtab.rules.pipeline.changes import OUTSIDE, Fate
from trimtab.rules.pipeline.exceeded import LimitExceededError
from trimtab.rules.pipeline.order import apply, plan
from trimtab.rules.pipeline.story import (
    Sentence,
    say_places,
    say_tools,
    tell_decision,
    tell_story,
)
from trimtab.rules.policy import Budget, OnExceeded, OverflowStrategy, Policy, Tidying
from trimtab.rules.window.state import ColdCut

WIDE = replace(POLICY, context_window=100_000)


def tell(whole: Conversation, policy: Policy, *, ratio: float = 1.0) -> tuple[Sentence, ...]:
    planned = plan(whole, policy, count=count)
    return tell_story(planned, apply(planned, policy, count=count), ratio=ratio).sentences


def test_a_request_that_was_left_alone_has_one_sentence() -> None:
    [told] = tell(conversation(*session(3)), WIDE)
    assert told.text.startswith("Nothing was changed: ")
    assert "The limit is 100,000 tokens." in told.text
    assert (told.rule, told.messages, told.saved_tokens) == ("", (), 0)


def test_a_summary_that_the_client_asks_for_is_told() -> None:
    asks = user("Create a detailed summary of the conversation so far.")
    planned = plan(conversation(*session(3), asks), WIDE, count=count)
    planned = replace(planned, is_client_compaction=True)
    [told] = tell_story(planned, Outcome(planned.original)).sentences
    assert "The client asks for a summary of its own" in told.text


def test_the_first_sentence_tells_what_made_it_act() -> None:
    """Over the limit, at high water, at the soft limit, at a cold cache, or in spite of room."""
    long = conversation(*session(40))
    assert "does not fit without trimtab" in tell(long, POLICY)[0].text
    assert "reached high water" in tell(long, replace(POLICY, context_window=4100))[0].text
    assert "soft limit of 1,000 tokens" in tell(long, replace(WIDE, compact_at_tokens=1000))[0].text
    one = conversation(user(), assistant(None, call("a", "bash")), result("a", fill("a", 900)))
    assert "There is room left" in tell(one, WIDE)[0].text
    planned = plan(long, POLICY, count=count)
    cut = planned.window.cuts[-1]
    cold = replace(planned, cold={cut.made_at: ColdCut.CUT})
    assert "cache was cold" in tell_story(cold, apply(planned, POLICY, count=count)).sentences[0].text


def test_a_cut_that_is_put_off_is_told() -> None:
    planned = plan(conversation(*session(40)), POLICY, count=count).put_off()
    assert planned is not None
    outcome = apply(planned, POLICY, count=count)
    assert "A cut is due" in tell_story(planned, outcome).sentences[0].text


def test_repairs_are_told_one_by_one() -> None:
    messages = (
        user(),
        assistant(None, call("a"), call("b")),
        user("Wait."),
        result("a", "late"),
        assistant("Done."),
        user("And?"),
        result("x", "Who asked?"),
    )
    _, told = tell(conversation(*messages), WIDE)
    assert "1 call without a result got the result `aborted`" in told.text
    assert "1 result without a call was dropped (message 6)" in told.text
    assert "1 result was moved right behind its call (message 3)" in told.text


def test_results_that_became_a_message_of_the_user_are_told() -> None:
    lost = (result("x", "Who asked?"), result("y", "Nobody."))
    _, told = tell(conversation(system(), *lost, assistant("Done."), user(), result("z", "late")), WIDE)
    assert told.text.endswith(
        ": 1 result without a call was dropped (message 5);"
        " 2 results without a call were written as a message of the user (messages 1-2)."
    )


def test_a_decision_that_is_not_the_plans_is_told_plainly() -> None:
    planned = plan(conversation(*session(3)), WIDE, count=count)
    dropped = Decision("drop_tools", "3 declarations of tools", 500, 400, 0, 0)
    first, told = tell_story(planned, Outcome(planned.original, (dropped,))).sentences
    assert f"sent {planned.original.tokens + 100:,} tokens" in first.text
    assert (told.text, told.saved_tokens) == ("drop_tools: 3 declarations of tools, which saved 100 tokens.", 100)


@pytest.mark.parametrize(
    ("elements", "said"),
    [
        ([], ""),
        ([12], "message 12"),
        ([14, 12, *range(20, 32)], "messages 12, 14 and 20-31"),
        ([4, 5], "messages 4-5"),
        ([OUTSIDE, 0], "message 0"),
        ([OUTSIDE], ""),
        ([3, 3], "message 3"),
    ],
)
def test_places_are_joined_to_spans(elements: list[int], said: str) -> None:
    """Neighbours become a span; what is outside the list has no number."""
    assert say_places(elements) == said


def test_a_sentence_names_only_so_many_places() -> None:
    said = say_places([*range(0, 40, 2), 100, 101])
    assert said == "messages 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22 and 10 more"


def test_the_most_frequent_tools_are_named() -> None:
    assert say_tools(["read", "bash", "read"]) == "read and bash"
    assert say_tools(["b", "a"]) == say_tools(["a", "b"]) == "a and b"
    assert say_tools(list("abcdef")) == "a, b, c, d and 2 other tools"
    assert say_tools([]) == ""


def test_a_name_that_looks_like_none_is_not_said() -> None:
    """It could be text of the conversation, or move a terminal's cursor."""
    assert say_tools(["my secret is 42", "bash"]) == "bash and 1 other tool"
    assert say_tools(["\x1b[2J"]) == ""


def test_each_decision_of_a_cut_has_one_sentence_if_only_its_figures_are_known() -> None:
    decision = Decision("summarise", "cut before message 40", 9_000, 3_000, 38, 2)
    assert tell_decision(decision) == (
        "A summary that a model wrote stands for 38 messages (from message 2 on), which saved 6,000 tokens."
    )
    repair = Decision("pairing", "1 calls answered, 0 results dropped, 0 results moved", 100, 106, 1, 7)
    assert tell_decision(repair) == (
        "Upstreams want exactly one result right after each call: 1 calls answered, 0 results dropped, 0 results moved."
    )


# The stories of whole requests, as they are: each sentence, and what became of each message.

SESSIONS = {
    **{name: (system(), *told_sessions()[name][:24]) for name in ("agent", "commands", "desk", "talk")},
    "rereading": rereading(30),
    "screenshots": screenshots(30),
    "long": (system(), user("word " * 6000), *rereading(3)[2:]),
}
EDITS = replace(POLICY, tidying=Tidying(), dedupe=True, result_budget=Budget(150), context_window=100_000)
POLICIES = {
    "edits": EDITS,
    "cut": POLICY,
    "edits and cut": replace(EDITS, context_window=2400, pin_instruction=True, keep_images=4),
    "prune": replace(POLICY, overflow_strategy=OverflowStrategy.PRUNE, protect_turns=1),
    "turns": replace(POLICY, max_turns=2, max_message_tokens=100),
    "truncate": replace(POLICY, context_window=1200, on_exceeded=OnExceeded.TRUNCATE),
    "refuse": replace(POLICY, context_window=900, on_exceeded=OnExceeded.ERROR),
}


def _tell(messages: Sequence[Message], policy: Policy) -> str:
    planned = plan(conversation(*messages, fixed_tokens=70), policy, count=count)
    try:
        outcome = apply(planned, policy, count=count)
    except LimitExceededError as error:
        rest = error.remainder
        return (
            f"refused: {error.tokens} of {error.limit}, {rest.excess_tokens} too many, {rest.head_tokens} in the head"
        )
    story = tell_story(planned, outcome, ratio=1.1)
    sentences = [f"{one.text} [{one.rule} {one.saved_tokens} {one.messages}]" for one in story.sentences]
    gone = [f"gone: {one.at} {one.tokens_before}" for one in story.changes if one.fate is Fate.REMOVED]
    changes = [
        f"{one.at} {one.role} {one.tool} {one.fate} {one.rules} {one.tokens_before}->{one.tokens_after}"
        for one in story.changes
        if one.fate is not Fate.REMOVED
    ]
    return "\n".join([*sentences, *gone[:1], *gone[-1:], *changes])


@pytest.mark.parametrize("name", SESSIONS)
def test_a_story_is_as_it_was(name: str) -> None:
    check_golden(f"stories/{name}", {title: _tell(SESSIONS[name], policy) for title, policy in POLICIES.items()})
