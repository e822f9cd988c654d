"""The plan: what it asks for, what was forwarded before a cut, and what has no effect on either."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from support.builders import (
    FREE,
    KeptStates,
    Wire,
    assistant,
    call,
    conversation,
    count,
    fill,
    read,
    result,
    screenshots,
    session,
    split_steps,
    system,
    user,
    valid_transcripts,
    write,
)
from support.policies import POLICY

from trimtab.rules.conversation import Conversation, Message, Role
from trimtab.rules.pipeline.order import apply, plan
from trimtab.rules.pipeline.plan import Plan
from trimtab.rules.policy import OverflowStrategy, Policy, Prices, SummaryRole
from trimtab.rules.summary.request import Summary, request_summary
from trimtab.rules.window.prune import remove_images
from trimtab.rules.window.state import Window

SUMMARIZE = replace(POLICY, overflow_strategy=OverflowStrategy.SUMMARIZE)
DEAR = Prices(1, 0.001, 4)
"""Reading from the cache costs almost nothing, so no cut pays before the room is full."""
POLICIES = pytest.mark.parametrize(
    "policy",
    [replace(POLICY, prices=DEAR), replace(SUMMARIZE, prices=DEAR), replace(POLICY, prices=Prices(), high_water=0.9)],
)
HEAD = (system(), user("Begin."))
LONG = session(60, call_tokens=10, result_tokens=150)


def plan_of(messages: Sequence[Message], policy: Policy = POLICY) -> Plan:
    """The plan for a transcript."""
    return plan(conversation(*messages), policy, count=count)


def forward(planned: Plan, policy: Policy = POLICY) -> Conversation:
    """The messages that a plan forwards. Each summary is named by its key."""
    key = planned.request.key if planned.request else ""
    return apply(planned, policy, count=count, summary=Summary(f"Summary {key}.", by_model=True)).conversation


def grow(messages: Sequence[Message], policy: Policy) -> Iterator[tuple[Plan, Plan]]:
    """The plans before and after each step."""
    plans = [plan_of(messages[: step.stop], policy) for step in split_steps(messages)]
    return pairwise(plans)


def test_without_a_cut_nothing_is_put_off() -> None:
    """No earlier window exists."""
    assert plan_of(session(2)).put_off() is None


@pytest.mark.parametrize("role", SummaryRole)
@pytest.mark.parametrize("strategy", [OverflowStrategy.AUTO_COMPACT, OverflowStrategy.SUMMARIZE])
@pytest.mark.parametrize("messages", [LONG, session(40, call_tokens=4, result_tokens=290)])
def test_a_cut_put_off_forwards_what_was_forwarded(
    messages: tuple[Message, ...], strategy: OverflowStrategy, role: SummaryRole
) -> None:
    """First come the bytes of the previous request, then the new messages. So no upstream's cache is lost."""
    policy = replace(POLICY, overflow_strategy=strategy, summary_role=role)
    put_off = 0
    for before, after in grow(messages, policy):
        if before.window.cuts != after.window.cuts:
            earlier = after.put_off()
            assert earlier.request == before.request
            sent, new = forward(before, policy).messages, len(after.original.messages) - len(before.original.messages)
            assert forward(earlier, policy).messages == (*sent, *after.conversation.messages[-new:])
            put_off += 1
    assert put_off >= 2


def test_a_cut_put_off_asks_for_nothing_ahead() -> None:
    """The text that is wanted is that of the cut that was put off."""
    for _, after in grow(LONG, SUMMARIZE):
        earlier = after.put_off()
        assert earlier is None or earlier.prefetch is None


def test_a_summary_is_asked_for_ahead_under_the_key_of_its_cut() -> None:
    """Every cut that waited until the room was full was announced, with the same request that the cut makes."""
    made = 0
    for before, after in grow(LONG, replace(SUMMARIZE, prices=DEAR)):
        if before.window.cuts != after.window.cuts:
            assert before.prefetch == after.request is not None
            made += 1
    assert made >= 3


PRUNE = replace(POLICY, overflow_strategy=OverflowStrategy.PRUNE)


@pytest.mark.parametrize("policy", [POLICY, PRUNE, replace(PRUNE, dedupe=True, pin_instruction=True)])
@pytest.mark.parametrize("messages", [LONG, session(30, call_tokens=4, result_tokens=900), (*HEAD, *screenshots(40))])
def test_the_past_is_broken_from_the_first_request_on_that_forwards_a_message_otherwise(
    messages: tuple[Message, ...], policy: Policy
) -> None:
    """Not by what a rule does to a message from its first request on. And it stays broken."""
    is_broken = False
    for before, after in grow(messages, policy):
        sent, more = forward(before, policy).messages, forward(after, policy).messages
        is_broken = is_broken or more[: len(sent)] != sent
        assert after.breaks_past is is_broken
    assert is_broken


def test_a_cut_put_off_breaks_the_past_if_it_was_in_effect() -> None:
    """Its summary may be lost. If it is made just now, what was forwarded stays."""
    made, stood = 0, 0
    for before, after in grow(LONG, POLICY):
        earlier = after.put_off()
        if earlier is None:
            continue
        is_new, was_cut = before.window.cuts != after.window.cuts, bool(before.window.cuts)
        assert earlier.breaks_past is (was_cut or not is_new)
        made, stood = made + is_new, stood + (not is_new)
    assert made >= 2
    assert stood >= 2


def test_a_summary_that_was_not_asked_for_ahead_is_asked_for_behind_what_was_forwarded() -> None:
    """The cut is put off until its text is there. What is forwarded then has a prefix that ends at the cut."""
    made = 0
    for before, after in grow(LONG, SUMMARIZE):
        assert before.prefetch is None
        if before.window.cuts != after.window.cuts:
            earlier = after.put_off()
            at, sent = after.request.at, forward(earlier, SUMMARIZE)
            prefix = earlier.find_prefix(sent, at)
            assert (*(prefix.messages if prefix else ()), *after.conversation.messages[at:]) == sent.messages
            made += 1
    assert made >= 3


@POLICIES
def test_the_prefix_of_a_cut_is_what_is_forwarded_before_it(policy: Policy) -> None:
    """After the prefix is what the client sent from there on. The prefix itself is in the upstream's cache."""
    found = 0
    for _, after in grow(LONG, policy):
        at, sent = after.window.next_cut, forward(after, policy)
        if at is not None:
            prefix = after.find_prefix(sent, at)
            assert (*(prefix.messages if prefix else ()), *after.conversation.messages[at:]) == sent.messages
            found += 1
    assert found >= 2


def test_the_prefix_ends_at_its_own_place() -> None:
    """Equal messages may be one object, because the codec remembers them. Each position is still separate."""
    again = assistant("I will look again.")
    messages = (system(), user("task"), again, user("go"), again, user("on"), again)
    planned = plan_of(messages)
    for at in (2, 4, 6):
        prefix = planned.find_prefix(planned.conversation, at)
        assert prefix.messages == messages[:at]
        assert len(prefix.origins) == at


def test_a_prefix_may_end_where_an_image_was_removed() -> None:
    """The question for a summary follows the forwarded messages, whatever comes after them."""
    messages = screenshots(8, as_user=True)
    planned = plan_of(messages)
    sent = remove_images(planned.conversation, range(10)).conversation
    for at in (3, 5, 9):
        prefix = planned.find_prefix(sent, at)
        assert prefix.messages == sent.messages[:at]
    shortened = sent.edit([replace(message, texts=("other",)) for message in sent.messages])
    assert planned.find_prefix(shortened, 5) is None


def test_a_prefix_that_is_not_there_is_not_found() -> None:
    """If the message at the cut is not forwarded, no prefix ends there."""
    planned = plan_of(LONG)
    assert planned.find_prefix(conversation(*session(3)), 10) is None


@given(messages=valid_transcripts(), role=st.sampled_from(SummaryRole), policy=st.sampled_from([POLICY, SUMMARIZE]))
def test_no_more_is_forwarded_than_was_reserved(
    messages: tuple[Message, ...], role: SummaryRole, policy: Policy
) -> None:
    """The length of the summary and its role do not matter."""
    policy = replace(policy, summary_role=role, context_window=1600)
    planned = plan_of((*HEAD, *messages), policy)
    summary = Summary(fill("very long", 900), by_model=True)
    sent = apply(planned, policy, count=count, summary=summary).conversation
    assert sent.tokens <= planned.reserved_tokens
    if planned.window == Window(
        task=1, next_cut=planned.window.next_cut, prefetch_tokens=planned.window.prefetch_tokens
    ):
        assert sent.tokens == planned.reserved_tokens


def rewrite(message: Message) -> Message:
    """The same messages written differently: key order, content in parts, `cache_control` on the last one."""
    wire = write(message)
    if isinstance(wire["content"], str):
        part = {"cache_control": {"type": "ephemeral"}, "text": wire["content"], "type": "text"}
        wire = {**wire, "content": [part]}
    return read(Wire(reversed(wire.items())))


@given(marked=st.sets(st.integers(0, 121)), policy=st.sampled_from([POLICY, SUMMARIZE]))
def test_key_order_and_a_moved_cache_mark_move_nothing(marked: set[int], policy: Policy) -> None:
    """Neither the cut nor the keys of summaries depend on how the messages are written."""
    plain = plan_of(LONG, policy)
    moved = [rewrite(one) if index in marked else one for index, one in enumerate(LONG)]
    assert all(moved[index].raw != LONG[index].raw for index in marked)
    other = plan_of(moved, policy)
    assert other.window == plain.window
    assert other.hashes == plain.hashes
    assert (other.request.key, other.request.base) == (plain.request.key, plain.request.base)


@given(messages=valid_transcripts(), extra=st.integers(0, 30))
def test_a_timestamp_and_a_tool_more_rename_no_summary(messages: tuple[Message, ...], extra: int) -> None:
    """The head's size is rounded, and its text is in no key."""
    body = (user("Mend the build."), *messages, *LONG[2:40])
    morning = plan(conversation(system("9:00"), *body, fixed_tokens=1), POLICY, count=count)
    evening = plan(conversation(system("21:00:00 UTC"), *body, fixed_tokens=1 + extra), POLICY, count=count)
    assert (morning.window, morning.request, morning.prefetch) == (evening.window, evening.request, evening.prefetch)
    assert morning.request is not None


@given(
    high=st.sampled_from([0.7, 0.8, 0.9]),
    low=st.sampled_from([0.2, 0.3, 0.4]),
    prices=st.sampled_from([FREE, Prices()]),
    max_tokens=st.sampled_from([100, 200]),
)
def test_thresholds_rename_no_summary(high: float, low: float, prices: Prices, max_tokens: int) -> None:
    """Another policy makes other cuts. A cut that both policies make has one key, so its summary is found."""
    policy = replace(POLICY, high_water=high, low_water=low, prices=prices, summary_max_tokens=max_tokens)
    planned = plan_of(LONG, policy)
    for stop in range(4, len(LONG), 2):
        other = plan_of(LONG[:stop])
        for one in {cut.at for cut in other.window.cuts} & {cut.at for cut in planned.window.cuts}:
            names = {_name(found, one) for found in (planned, other)}
            assert len(names) == 1


def _name(planned: Plan, at: int) -> str:
    cuts = tuple(cut for cut in planned.window.cuts if cut.at <= at)
    found = request_summary(planned.conversation.messages, planned.hashes, structs.replace(planned.window, cuts=cuts))
    return found.key


@given(stops=st.lists(st.integers(1, len(LONG)), min_size=2, max_size=6), policy=st.sampled_from([POLICY, SUMMARIZE]))
def test_remembered_folds_change_no_plan(stops: list[int], policy: Policy) -> None:
    """Plans with and without kept states are equal, whatever came before. So they are equal after a restart, too."""
    known = KeptStates()
    for stop in stops:
        before = conversation(*LONG[:stop])
        assert plan(before, policy, count=count, states=known) == plan_of(LONG[:stop], policy)


def test_an_open_step_that_fills_up_is_put_off_to_what_stood_before_it() -> None:
    """A digest that is replaced while its step is open still knows the window without it."""
    calls = [call(f"{number}") for number in range(3)]
    results = [result(f"{number}", fill(f"out {number}", 290)) for number in range(3)]
    before = (*session(14, call_tokens=10, result_tokens=100), assistant(fill("look", 1400), *calls))
    plain = plan_of(before[:-1])
    assert plain.window.cut is None
    for stop in range(1, 4):
        planned = plan_of((*before, *results[:stop]))
        earlier = planned.put_off()
        assert earlier.window.cuts == ()


@POLICIES
def test_the_beginning_of_an_answer_moves_nothing(policy: Policy) -> None:
    """A client may write it (a prefill); the next request has the whole answer in its place."""
    messages, cuts = [*HEAD], set[int]()
    for number in range(54):
        alone, begun = plan_of(messages, policy), plan_of([*messages, assistant("{")], policy)
        assert begun.window == alone.window
        assert begun.here == alone.hashes[-1]
        forwarded = forward(begun, policy).messages
        assert forwarded[:-1] == forward(alone, policy).messages
        assert forwarded[-1].texts == ("{",)
        cuts.add(len(alone.window.cuts))
        messages += [assistant("{" + fill(str(number), 30 * (number % 4))), user(fill(f"{number}?", 40))]
    assert len(cuts) > 2


def test_a_long_beginning_of_an_answer_has_to_fit() -> None:
    messages = [*HEAD, *session(12, call_tokens=10, result_tokens=150)]
    begun = plan_of([*messages, assistant(fill("x", POLICY.context_window // 3))])
    assert begun.window != plan_of(messages).window


# A plan that keeps the number of messages: every message stays; the results before a cut become placeholders.


def test_the_number_of_messages_stays_and_results_before_the_cut_go() -> None:
    before = conversation(user("task"), *session(40, result_tokens=200)[2:])
    cut = plan(before, POLICY, count=count)
    outcome = apply(cut.keep_messages(), POLICY, count=count)
    after = outcome.conversation.messages
    changed = [at for at, (old, new) in enumerate(zip(before.messages, after, strict=True)) if old is not new]

    assert cut.window.cut is not None
    assert [message.role for message in after] == [message.role for message in before.messages]
    assert changed
    assert all(before.messages[at].role is Role.TOOL for at in changed)
    assert max(changed) < cut.window.cut.at
    assert outcome.conversation.tokens < before.tokens / 2


def test_without_a_cut_nothing_is_asked() -> None:
    before = conversation(user("task"), *session(2, result_tokens=20)[2:])
    planned = plan(before, POLICY, count=count).keep_messages()

    assert (planned.request, planned.prefetch) == (None, None)
    assert apply(planned, POLICY, count=count).conversation is before
