"""A client's request for a summary of its own conversation."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import (
    KeptStates,
    assistant,
    broken_transcripts,
    call,
    conversation,
    count,
    fill,
    result,
    screenshots,
    session,
    system,
    transcripts,
    user,
    valid_transcripts,
)
from support.client_words import IN_SYSTEM, IN_USER
from support.policies import POLICY

from trimtab.rules.conversation import Conversation, Message, Outcome, Role
from trimtab.rules.pipeline import order
from trimtab.rules.pipeline.order import apply, is_client_compaction, plan
from trimtab.rules.pipeline.plan import Plan
from trimtab.rules.policy import OverflowStrategy, Policy
from trimtab.rules.summary.request import Summary
from trimtab.rules.text.client_summaries import TRIGGER

ASK = user("You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff summary for another LLM.")
FIRST_CUT = 23
"""Steps of a session after which the cut stands."""
DUPLICATES = replace(POLICY, dedupe=True)


def run(before: Conversation, policy: Policy = POLICY, states: KeptStates | None = None) -> tuple[Plan, Outcome]:
    planned = plan(before, policy, count=count, states=states)
    summary = Summary("SUMMARY", by_model=True) if planned.request and planned.request.asks_model else None
    return planned, apply(planned, policy, count=count, summary=summary, states=states)


def asked(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The messages of the request before: all before the last answer of the model."""
    answers = [at for at, message in enumerate(messages) if message.role is Role.ASSISTANT]
    return messages[: answers[-1] if answers else 0]


def test_the_last_user_message_tells() -> None:
    for form in IN_USER:
        ask = user(form.sample)
        assert is_client_compaction(conversation(system(), *session(2), ask)), form
        assert not is_client_compaction(conversation(system(), ask, assistant("Here it is."), user("Go on.")))
        assert not is_client_compaction(conversation(user("Hello."), assistant(form.sample)))
        called = assistant(None, call("a"))
        assert not is_client_compaction(conversation(user("Hello."), called, result("a", form.sample)))


def test_an_item_tells_at_the_end() -> None:
    """Codex asks its server for a compaction so. Earlier items of that kind say nothing."""
    trigger = Message(Role.OTHER, wire_role=TRIGGER)
    assert is_client_compaction(conversation(*session(2), trigger))
    assert not is_client_compaction(conversation(*session(2), trigger, user("Go on.")))
    assert not is_client_compaction(conversation(*session(2), replace(trigger, wire_role="other")))


def test_a_system_prompt_counts_only_among_the_leading_messages() -> None:
    for form in IN_SYSTEM:
        told = system(form.sample)
        assert is_client_compaction(conversation(system("You are Claude Code."), told, user("# USER\nHello.")))
        assert not is_client_compaction(conversation(user("Hello."), told, user("Go on.")))
        assert not is_client_compaction(conversation(told, user("Hello."), assistant("Yes.")))
    assert not is_client_compaction(conversation())
    assert not is_client_compaction(conversation(system()))


@pytest.mark.parametrize("policy", [POLICY, replace(POLICY, dedupe=True), replace(POLICY, pin_instruction=True)])
@pytest.mark.parametrize("result_tokens", [40, 700])
def test_what_the_requests_before_sent_otherwise_is_known(policy: Policy, result_tokens: int) -> None:
    """A truncated result, a pointer or a pin breaks the past of a request that passes without them."""
    step = (assistant(None, call("a")), result("a", fill("a", result_tokens)))
    again = (assistant(None, call("b")), result("b", fill("a", result_tokens)))
    before = (user("Begin."), *step, *again)
    was_edited = bool(run(conversation(*before), replace(policy, context_window=40_000))[1].decisions)
    wide = replace(policy, context_window=40_000)
    planned = run(conversation(*before, assistant("Done."), ASK), wide)[0]
    assert planned.is_client_compaction
    assert planned.breaks_past is was_edited
    assert not run(conversation(user("Begin."), ASK), wide)[0].breaks_past


@pytest.mark.parametrize("words", [ASK, user("Write down all that matters.")])
def test_what_the_client_says_is_believed(words: Message) -> None:
    before = session(16, result_tokens=80)
    step = (assistant(None, call("last")), result("last", fill("last", 700)))
    asking = conversation(*before, *step, words)
    told = plan(asking, POLICY, count=count, tells_compaction=True)
    denied = plan(asking, POLICY, count=count, tells_compaction=False)
    assert told.is_client_compaction
    assert apply(told, POLICY, count=count).conversation is asking
    assert not denied.is_client_compaction
    assert apply(denied, POLICY, count=count).conversation is not asking
    assert plan(asking, POLICY, count=count) == (told if words is ASK else denied)


@given(
    transcripts(),
    st.sampled_from([POLICY, DUPLICATES, replace(POLICY, keep_images=2)]),
    st.integers(300, 6000),
    st.sampled_from([None, 100, 1000]),
)
def test_it_passes_unchanged_or_is_planned_as_any_other(messages, policy, size, max_tokens) -> None:
    """Nothing between the two: unchanged only if it fits and nothing stands, else the plan of any other request."""
    policy = replace(policy, context_window=size)
    before = conversation(*messages, ASK)
    planned = plan(before, policy, count=count, request_max_tokens=max_tokens)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order, "is_client_compaction", lambda _: False)
        as_any = plan(before, policy, count=count, request_max_tokens=max_tokens)
        earlier = plan(conversation(*asked(before.messages)), policy, count=count, request_max_tokens=max_tokens)
    if not planned.is_client_compaction:
        assert planned == as_any
        return
    assert planned.conversation is planned.original is before
    assert planned.decisions == ()
    assert planned.request is planned.prefetch is None
    assert before.tokens <= planned.fitting
    window = earlier.window
    assert (window.cuts, window.caps, window.prune_stop, window.images.at) == ((), (), 0, 0)


@pytest.mark.parametrize("steps", [FIRST_CUT - 1, FIRST_CUT])
def test_it_passes_until_a_cut_stands(steps: int) -> None:
    """All of these requests fit the window, and some come after the cut."""
    policy = replace(POLICY, overflow_strategy=OverflowStrategy.SUMMARIZE)
    before = (*session(steps, result_tokens=80), assistant("Done."), ASK)
    assert conversation(*before).tokens <= policy.context_window
    stands = run(conversation(*asked(before)), policy)[0].window.cut is not None
    assert run(conversation(*before), policy)[0].is_client_compaction is not stands
    assert stands is (steps >= FIRST_CUT)


def test_a_placeholder_that_stands_is_enough() -> None:
    pruning = replace(POLICY, overflow_strategy=OverflowStrategy.PRUNE)
    pruned = (*session(30), assistant("Done."), ASK)
    assert run(conversation(*asked(pruned)), pruning)[0].window.prune_stop > 0
    assert not run(conversation(*pruned), pruning)[0].is_client_compaction
    images = replace(POLICY, keep_images=1, context_window=20_000)
    shown = (*screenshots(4), assistant("Done."), ASK)
    assert not run(conversation(*shown), images)[0].is_client_compaction
    assert run(conversation(*shown), replace(images, keep_images=None))[0].is_client_compaction


def test_what_does_not_fit_is_planned_as_any_other() -> None:
    """The completion counts. A request that does not limit it leaves half of the reserve for the summary."""
    policy = replace(POLICY, context_window=4000, completion_reserve=1000)
    before = session(4, result_tokens=100)
    head = conversation(*before, ASK).tokens

    def passes(tokens: int, max_tokens: int | None) -> bool:
        step = (assistant(None), user(fill("long", tokens - head)))
        made = conversation(*before, *step, ASK)
        return plan(made, policy, count=count, request_max_tokens=max_tokens).is_client_compaction

    assert passes(3300, None)
    assert not passes(3700, None)
    assert passes(2800, 1000)
    assert not passes(3200, 1000)
    assert passes(3500, 100)
    assert not passes(4100, 100)


@given(
    chain_of=st.tuples(valid_transcripts(20), broken_transcripts(6), valid_transcripts(6)),
    policy=st.sampled_from([POLICY, DUPLICATES]),
    window=st.integers(600, 6000),
)
def test_the_request_after_it_continues_as_if_it_had_not_been(chain_of, policy, window) -> None:
    """Neither the session's state nor what is forwarded depends on whether the client asked in between."""
    policy = replace(policy, context_window=window)
    first, more, last = (user("Begin."), *chain_of[0]), chain_of[1], chain_of[2]
    states, without = KeptStates(), KeptStates()
    requests = [first, (*first, *more)]
    for messages in requests:
        assert run(conversation(*messages), policy, states) == run(conversation(*messages), policy, without)
    kept = {key: (state.last, state.hashes) for key, state in states.items()}
    planned, _ = run(conversation(*requests[-1], ASK), policy, states)
    if planned.is_client_compaction:
        assert {key: (state.last, state.hashes) for key, state in states.items()} == kept
    for goes_on in ((*requests[-1], *last), (*requests[-1], ASK, assistant("SUMMARY"), user("Go on."))):
        expected = run(conversation(*goes_on), policy)
        assert run(conversation(*goes_on), policy, states) == expected


def test_a_history_that_the_upstream_holds_is_never_cut() -> None:
    made = replace(conversation(*session(8), ASK), continues=True)
    assert plan(made, POLICY, count=count).is_client_compaction
