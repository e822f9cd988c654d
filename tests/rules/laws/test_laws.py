"""The laws of the rules, over whole transcripts: valid ones and broken ones.

1. Nothing to do: the same object. 2. Deterministic, idempotent, `raw` untouched. 3. A longer transcript changes no
earlier decision. 4. Total, and tokens never grow. 5. Every tool call has its result and the reverse.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from support import policies
from support.append_law import check_append_law, run
from support.builders import (
    FREE,
    assistant,
    call,
    conversation,
    count,
    fill,
    rereading,
    result,
    session,
    system,
    transcripts,
    user,
    write_all,
)
from support.checker import check_transcript
from support.policies import any_policies
from support.results import tidy_tool_results, truncate_tool_results

from trimtab.rules.conversation import Conversation, Message, Outcome
from trimtab.rules.pipeline.exceeded import LimitExceededError
from trimtab.rules.policy import (
    Budget,
    OnExceeded,
    OverflowStrategy,
    Policy,
    Prices,
    SummaryRole,
    Tidying,
    ToolRule,
    Treatment,
    Truncation,
)
from trimtab.rules.results.dedupe import dedupe_tool_results
from trimtab.rules.results.pairing import find_unpaired, pair_tool_calls
from trimtab.rules.results.work import Work
from trimtab.rules.text.markers import ACKNOWLEDGEMENT, NO_RESULT, RESULT_HEADER
from trimtab.rules.tokens.messages import MESSAGE_TOKENS, ROLE_TOKENS
from trimtab.rules.window.prune import prune_tool_results

POLICY = replace(policies.POLICY, context_window=2400, protect_turns=1, prices=Prices())
BY_TOOL = replace(
    POLICY,
    tools=(
        ToolRule("run", Treatment(Budget(90), Truncation.HEAD_TAIL, Tidying(json=False), exempt_arguments=("* 3 *",))),
        ToolRule("", Treatment(Budget(150), is_exempt=True)),
        ToolRule("*", Treatment(Budget(150, 800), tidying=Tidying(tables=False))),
    ),
)


def _pair(given_conversation: Conversation) -> Outcome:
    return pair_tool_calls(given_conversation, count=count)


def _truncate(given_conversation: Conversation) -> Outcome:
    return _shorten(given_conversation, replace(POLICY, result_budget=Budget(100)))


def _truncate_bytes(given_conversation: Conversation) -> Outcome:
    return _shorten(given_conversation, replace(POLICY, result_budget=Budget(1000, 600)))


def _truncate_by_tool(given_conversation: Conversation) -> Outcome:
    return _shorten(given_conversation, BY_TOOL)


def _shorten(given_conversation: Conversation, policy: Policy) -> Outcome:
    return truncate_tool_results(given_conversation, policy=policy, work=Work(count))


def _tidy(given_conversation: Conversation) -> Outcome:
    return tidy_tool_results(given_conversation, policy=replace(POLICY, tidying=Tidying()), work=Work(count))


def _tidy_by_tool(given_conversation: Conversation) -> Outcome:
    return tidy_tool_results(given_conversation, policy=BY_TOOL, work=Work(count))


def _prune(given_conversation: Conversation) -> Outcome:
    return prune_tool_results(given_conversation, start=0, stop=len(given_conversation.messages), count=count)


def _dedupe(given_conversation: Conversation) -> Outcome:
    return dedupe_tool_results(given_conversation, Policy(), start=0, work=Work(count))


def _compact(given_conversation: Conversation) -> Outcome:
    return run(given_conversation, POLICY)[1]


LOOK_BACK = [_tidy, _tidy_by_tool, _truncate, _truncate_bytes, _truncate_by_tool, _prune, _dedupe]
RULES = pytest.mark.parametrize("rule", [_pair, *LOOK_BACK])
ALL_RULES = pytest.mark.parametrize("rule", [_pair, *LOOK_BACK, _compact])
Rule = Callable[[Conversation], Outcome]


@ALL_RULES
@given(messages=transcripts())
def test_nothing_to_do_is_the_same_object(rule: Rule, messages: tuple[Message, ...]) -> None:
    """A rule without a decision returns the same object. A rule with a decision has changed something."""
    before = conversation(*messages)
    outcome = rule(before)
    assert (outcome.conversation is before) == (not outcome.decisions)
    assert (outcome.conversation == before) == (not outcome.decisions)


@ALL_RULES
@given(messages=transcripts())
def test_rules_are_deterministic_and_never_mutate(rule: Rule, messages: tuple[Message, ...]) -> None:
    """The same transcript has the same outcome. Every message of the client keeps its bytes and its digest."""
    copies = tuple(replace(message) for message in messages)
    outcome = rule(conversation(*messages))
    assert outcome == rule(conversation(*copies))
    assert messages == copies
    raws = {message.raw for message in messages} | {b""}
    assert all(message.raw in raws for message in outcome.conversation.messages)


@ALL_RULES
@given(messages=transcripts())
def test_every_message_knows_where_the_client_said_it(rule: Rule, messages: tuple[Message, ...]) -> None:
    """An origin names the client's own message, even if it was moved. A message that a rule made has none."""
    after = rule(conversation(*messages)).conversation
    for message, origin in zip(after.messages, after.origins, strict=True):
        assert (origin is None) == (message.raw == b"")
        assert origin is None or message.raw == messages[origin.start].raw


@RULES
@given(messages=transcripts())
def test_rules_are_idempotent(rule: Rule, messages: tuple[Message, ...]) -> None:
    once = rule(conversation(*messages)).conversation
    assert rule(once).conversation is once


@ALL_RULES
@given(messages=transcripts())
def test_tokens_never_grow(rule: Rule, messages: tuple[Message, ...]) -> None:
    """Except for one short message for each call or result without another. The decisions tell what is gone."""
    before = conversation(*messages, fixed_tokens=7)
    outcome = rule(before)
    after = outcome.conversation
    unpaired = find_unpaired(messages) if rule in {_pair, _compact} else None
    calls, results = (len(unpaired.calls), len(unpaired.results)) if unpaired else (0, 0)
    frame = MESSAGE_TOKENS + ROLE_TOKENS
    added = calls * (frame + count(NO_RESULT)) + results * (frame + count(RESULT_HEADER) + count(ACKNOWLEDGEMENT))
    assert after.tokens <= before.tokens + added
    assert after.fixed_tokens == 7
    assert sum(decision.saved_tokens for decision in outcome.decisions) == before.tokens - after.tokens


@pytest.mark.parametrize("rule", LOOK_BACK)
@given(messages=transcripts(), more=transcripts(4))
def test_rules_that_look_only_back_keep_their_prefix(
    rule: Rule, messages: tuple[Message, ...], more: tuple[Message, ...]
) -> None:
    short = rule(conversation(*messages)).conversation.messages
    assert rule(conversation(*messages, *more)).conversation.messages[: len(short)] == short


@settings(max_examples=max(30, settings.default.max_examples))
@given(messages=transcripts(16), policy=any_policies())
def test_a_longer_transcript_forwards_the_same_prefix(messages: tuple[Message, ...], policy: Policy) -> None:
    """What was forwarded is forwarded again byte for byte, unless the cut moves or a call has no result yet.

    A message that the model has answered stays shortened. Only messages after its last answer may change.
    """
    check_append_law(messages, policy)


def test_a_long_session_forwards_the_same_prefix() -> None:
    assert check_append_law(session(60), POLICY, every=5) >= 1
    assert check_append_law(rereading(60), replace(POLICY, prices=FREE), every=5) >= 2


@pytest.mark.parametrize("strategy", [OverflowStrategy.AUTO_COMPACT, OverflowStrategy.PRUNE])
def test_steps_that_are_too_long_are_forwarded_so_again(strategy: OverflowStrategy) -> None:
    """Every step is larger than the window. Sometimes the user's message after it is, too."""
    messages: list[Message] = [system(), user(fill("task", 3000))]
    for number in range(6):
        calls = [call(f"{number}-{rank}") for rank in range(4)]
        messages += [assistant("look", *calls), *(result(one.id, fill(one.id, 280)) for one in calls)]
        messages += [user(fill("words", 400 * (number % 3)))] if number % 2 else []
        messages += [assistant("I see.")] * (number % 3)
    policy = replace(POLICY, context_window=1200, overflow_strategy=strategy, on_exceeded=OnExceeded.TRUNCATE)
    assert check_append_law(tuple(messages), policy) >= 4


@given(messages=transcripts(), policy=any_policies())
def test_whatever_is_forwarded_is_valid(messages: tuple[Message, ...], policy: Policy) -> None:
    """A strict upstream accepts the result for any transcript, and the client misses nothing."""
    policy = replace(policy, summary_role=SummaryRole.AUTO, pin_instruction=False, max_message_tokens=None)
    try:
        outcome = run(conversation(*messages), policy)[1]
    except LimitExceededError:
        assert policy.on_exceeded is not OnExceeded.FORWARD
        return
    shrunk = any(decision.rule == "exceeded" for decision in outcome.decisions)
    sent = write_all(outcome.conversation.messages)
    assert check_transcript(write_all(messages), sent, last_may_shrink=shrunk) == []
