"""The sentences about the request and about each decision."""

import re
from dataclasses import replace

import pytest
from support.builders import assistant, call, conversation, count, fill, result, session, user
from support.policies import POLICY

from rules.conversation import Conversation, Decision, Outcome
from rules.pipeline.apply import apply
from rules.pipeline.make_plan import plan
from rules.pipeline.story.sentences import tell_all
from rules.pipeline.story.tell import tell_story
from rules.pipeline.story.values import Sentence
from rules.policy import Policy
from rules.window.state import ColdCut

WIDE = replace(POLICY, context_window=100_000)


def tell(whole: Conversation, policy: Policy, *, ratio: float = 1.0) -> tuple[Sentence, ...]:
    """The sentences of a request."""
    planned = plan(whole, policy, count=count)
    return tell_story(planned, apply(planned, policy, count=count), ratio=ratio).sentences


def test_a_request_that_was_left_alone_has_one_sentence() -> None:
    """It says so."""
    [told] = tell(conversation(*session(3)), WIDE)
    assert told.text.startswith("Nothing was changed: ")
    assert "The limit is 100,000 tokens." in told.text
    assert (told.rule, told.messages, told.saved_tokens) == ("", (), 0)


def test_a_summary_that_the_client_asks_for_is_told() -> None:
    """Such a request passes unchanged."""
    asks = user("Create a detailed summary of the conversation so far.")
    planned = plan(conversation(*session(3), asks), WIDE, count=count)
    planned = replace(planned, is_client_compaction=True)
    [told] = tell_all(planned, Outcome(planned.original), (), 1.0)
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
    """Its summary is not written yet."""
    planned = plan(conversation(*session(40)), POLICY, count=count).put_off()
    assert planned is not None
    outcome = apply(planned, POLICY, count=count)
    assert "A cut is due" in tell_story(planned, outcome).sentences[0].text


def test_figures_are_in_the_models_own_tokens() -> None:
    """The decisions' figures are that already."""
    whole = conversation(*session(40))
    plain, scaled = tell(whole, POLICY), tell(whole, POLICY, ratio=2.0)
    assert scaled[0].saved_tokens == 2 * plain[0].saved_tokens
    assert f"{2 * whole.tokens:,} tokens" in scaled[0].text
    gone, twice = (
        [int(n.replace(",", "")) for n in re.findall(r"of ([\d,]+) token", t[1].text)] for t in (plain, scaled)
    )
    assert twice == pytest.approx([2 * tokens for tokens in gone])


def test_results_are_named_with_tool_and_place() -> None:
    """One sentence for each decision."""
    whole = conversation(user(), assistant(None, call("a", "bash")), result("a", fill("a", 900)))
    _, told = tell(whole, WIDE)
    assert told.text.startswith("1 tool result of bash (message 2) was longer than its tool may fill")
    assert f"which saved {told.saved_tokens:,} tokens" in told.text
    assert (told.rule, told.messages) == ("truncate", (2,))


def test_pruned_results_are_named() -> None:
    """Calls stay."""
    told = tell(conversation(*session(20, result_tokens=290)), replace(POLICY, context_window=5950))[1]
    assert told.rule == "prune"
    assert told.messages == tuple(range(3, told.messages[-1] + 1, 2))
    assert told.text.startswith(f"{len(told.messages)} tool results of run (messages 3, 5, ")


def test_repairs_are_told_one_by_one() -> None:
    """What was added, dropped and moved."""
    messages = (
        user(),
        assistant(None, call("a"), call("b")),
        user("Wait."),
        result("a", "late"),
        assistant("Done."),
        result("x", "Who asked?"),
    )
    _, told = tell(conversation(*messages), WIDE)
    assert "1 call without a result got the result `aborted`" in told.text
    assert "1 result without a call was dropped (message 5)" in told.text
    assert "1 result was moved right behind its call (message 3)" in told.text


def test_a_decision_that_is_not_the_plans_is_told_plainly() -> None:
    """What it took out of the request counts as sent by the client."""
    planned = plan(conversation(*session(3)), WIDE, count=count)
    dropped = Decision("drop_tools", "3 declarations of tools", 500, 400, 0, 0)
    first, told = tell_story(planned, Outcome(planned.original, (dropped,))).sentences
    assert f"sent {planned.original.tokens + 100:,} tokens" in first.text
    assert (told.text, told.saved_tokens) == ("drop_tools: 3 declarations of tools.", 100)
