"""The laws of the rules, over whole transcripts: valid ones and broken ones.

1. Nothing to do: the same object. 2. Deterministic, idempotent, `raw` untouched. 3. A longer transcript changes no
earlier decision. 4. Total, and tokens never grow. 5. Every tool call has its result and the reverse.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import policies
from support.append_law import check_append_law, run
from support.builders import (
    FREE,
    assistant,
    broken_transcripts,
    call,
    conversation,
    count,
    fill,
    fold,
    function_result,
    rereading,
    result,
    session,
    system,
    transcripts,
    user,
    valid_transcripts,
    write_all,
)
from support.checker import check_pairing, check_transcript, check_users
from support.policies import with_any_waters
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
SUMMARY = "The build was mended in part; the tests are still to be run."


def policies() -> st.SearchStrategy[Policy]:
    """Policies for a small window, of every strategy, with the waters of every economy and with arbitrary ones."""
    drawn = st.builds(
        replace,
        st.just(POLICY),
        context_window=st.sampled_from([600, 1600, 2400, 4000]),
        overflow_strategy=st.sampled_from(OverflowStrategy),
        protect_turns=st.integers(0, 2),
        keep_user_tokens=st.sampled_from([0, 200]),
        summary_min_steps=st.sampled_from([1, 6]),
        prices=st.sampled_from([FREE, Prices()]),
        keep_images=st.sampled_from([None, 0, 2]),
        tidying=st.sampled_from([None, Tidying()]),
        tools=st.sampled_from([(), BY_TOOL.tools]),
    )
    return with_any_waters(drawn)


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
    """A rule has nothing to do on its own outcome."""
    once = rule(conversation(*messages)).conversation
    assert rule(once).conversation is once


@given(messages=transcripts(), policy=policies())
def test_a_pipeline_run_again_finds_what_needs_no_window_done(messages: tuple[Message, ...], policy: Policy) -> None:
    """On its own outcome the pipeline neither pairs nor truncates again."""
    once = run(conversation(*messages), policy)[1].conversation
    rules = {decision.rule for decision in run(once, policy)[1].decisions}
    assert not rules & {"pairing", "tidy", "truncate"}


@ALL_RULES
@given(messages=transcripts())
def test_tokens_never_grow(rule: Rule, messages: tuple[Message, ...]) -> None:
    """No outcome costs more than the original, except for one short message for each call or result without another."""
    before = conversation(*messages, fixed_tokens=7)
    after = rule(before).conversation
    unpaired = find_unpaired(messages) if rule in {_pair, _compact} else None
    calls, results = (len(unpaired.calls), len(unpaired.results)) if unpaired else (0, 0)
    frame = MESSAGE_TOKENS + ROLE_TOKENS
    added = calls * (frame + count(NO_RESULT)) + results * (frame + count(RESULT_HEADER) + count(ACKNOWLEDGEMENT))
    assert after.tokens <= before.tokens + added
    assert after.fixed_tokens == 7


@ALL_RULES
@given(messages=transcripts())
def test_decisions_tell_the_truth(rule: Rule, messages: tuple[Message, ...]) -> None:
    """The tokens that the decisions claim to have saved are the ones that are gone."""
    before = conversation(*messages)
    outcome = rule(before)
    saved = sum(decision.saved_tokens for decision in outcome.decisions)
    assert saved == before.tokens - outcome.conversation.tokens


@pytest.mark.parametrize("rule", LOOK_BACK)
@given(messages=transcripts(), more=transcripts(4))
def test_rules_that_look_only_back_keep_their_prefix(
    rule: Rule, messages: tuple[Message, ...], more: tuple[Message, ...]
) -> None:
    """Later messages do not change the outcome for a message."""
    short = rule(conversation(*messages)).conversation.messages
    assert rule(conversation(*messages, *more)).conversation.messages[: len(short)] == short


@given(messages=valid_transcripts(20), policy=policies(), role=st.sampled_from(SummaryRole))
def test_a_longer_valid_transcript_forwards_the_same_prefix(
    messages: tuple[Message, ...], policy: Policy, role: SummaryRole
) -> None:
    """What was forwarded is forwarded again byte for byte, unless the cut moves or a call has no result yet."""
    check_append_law(messages, replace(policy, summary_role=role))


@given(messages=broken_transcripts(12), policy=policies())
def test_a_longer_broken_transcript_forwards_the_same_prefix(messages: tuple[Message, ...], policy: Policy) -> None:
    """The law holds for any transcript, up to the last stretch that the model has not answered."""
    check_append_law(messages, policy)


def test_a_long_session_forwards_the_same_prefix() -> None:
    """The law holds over two hundred steps and many cuts."""
    assert check_append_law(session(100), POLICY, every=5) >= 2
    assert check_append_law(session(100), replace(POLICY, prices=FREE), every=5) >= 3
    assert check_append_law(rereading(100), replace(POLICY, prices=FREE), every=5) >= 3


@given(messages=transcripts(16), policy=policies(), window=st.sampled_from([400, 600, 900, 1600]))
def test_what_was_shortened_is_forwarded_so_again(messages: tuple[Message, ...], policy: Policy, window: int) -> None:
    """A message that the model has answered stays shortened. Only messages after its last answer may change."""
    check_append_law(messages, replace(policy, on_exceeded=OnExceeded.TRUNCATE, context_window=window))


@pytest.mark.parametrize("strategy", OverflowStrategy)
def test_steps_that_are_too_long_are_forwarded_so_again(strategy: OverflowStrategy) -> None:
    """Every step is larger than the window. Sometimes the user's message after it is, too."""
    messages: list[Message] = [system(), user(fill("task", 3000))]
    for number in range(8):
        calls = [call(f"{number}-{rank}") for rank in range(4)]
        messages += [assistant("look", *calls), *(result(one.id, fill(one.id, 280)) for one in calls)]
        messages += [user(fill("words", 400 * (number % 3)))] if number % 2 else []
        messages += [assistant("I see.")] * (number % 3)
    policy = replace(POLICY, context_window=1200, overflow_strategy=strategy, on_exceeded=OnExceeded.TRUNCATE)
    assert check_append_law(tuple(messages), policy) >= (0 if strategy is OverflowStrategy.ERROR else 5)


@given(messages=transcripts(), policy=policies(), on_exceeded=st.sampled_from(OnExceeded))
def test_whatever_is_forwarded_is_valid(messages: tuple[Message, ...], policy: Policy, on_exceeded: OnExceeded) -> None:
    """A strict upstream accepts the result for any transcript, and the client misses nothing."""
    _check_valid(messages, replace(policy, on_exceeded=on_exceeded))


@pytest.mark.parametrize("first", [result("a", fill("orphan", 2000)), function_result(fill("legacy", 2000))])
def test_a_transcript_may_begin_with_a_result(first: Message) -> None:
    """The fold does not fail if the first message is a large result."""
    messages = (first, user("Begin."))
    window = fold(messages, POLICY, fixed_tokens=40, limit=2000)
    assert [cut.at for cut in window.cuts] == [1]


@given(messages=broken_transcripts())
def test_pairing_alone_makes_pairs(messages: tuple[Message, ...]) -> None:
    """Every call has one result right after it, for any input, and no two messages of the user come together."""
    sent = pair_tool_calls(conversation(*messages), count=count).conversation.messages
    assert check_pairing(write_all(sent)) == []
    assert check_users(write_all(messages), write_all(sent)) == []


def _check_valid(messages: tuple[Message, ...], policy: Policy) -> None:
    try:
        outcome = run(conversation(*messages), policy)[1]
    except LimitExceededError:
        assert policy.on_exceeded is not OnExceeded.FORWARD
        return
    shrunk = any(decision.rule == "exceeded" for decision in outcome.decisions)
    sent = write_all(outcome.conversation.messages)
    assert check_transcript(write_all(messages), sent, last_may_shrink=shrunk) == []
