"""The state of a transcript saves time, and changes nothing else."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from support.builders import (
    FREE,
    IMAGE,
    KeptStates,
    assistant,
    call,
    conversation,
    count,
    listing,
    read_media,
    rereading,
    result,
    session,
    system,
    transcripts,
    user,
    valid_transcripts,
)

from trimtab.rules.conversation import Message, Outcome, Role
from trimtab.rules.pipeline import transcript_state
from trimtab.rules.pipeline.order import apply, plan
from trimtab.rules.pipeline.plan import Plan
from trimtab.rules.pipeline.transcript_state import MAX_GROWTH, TranscriptState, find_cold, name_state, take_state
from trimtab.rules.policy import Budget, OnExceeded, OverflowStrategy, Policy, ToolRule, Treatment
from trimtab.rules.prefix import hash_prefixes
from trimtab.rules.results import pairing
from trimtab.rules.results import work as results_work
from trimtab.rules.results.dedupe import View
from trimtab.rules.results.work import Allowance, LargeWorkError, ResultKey, Shortened, Work
from trimtab.rules.summary import splice
from trimtab.rules.window.state import ColdCut

POLICY = Policy(
    context_window=100_000,
    completion_reserve=0,
    on_exceeded=OnExceeded.FORWARD,
    result_budget=Budget(120),
    protect_turns=0,
    keep_user_tokens=200,
    summary_max_tokens=200,
    summary_min_steps=3,
    prices=FREE,
)
SPARE = Treatment(Budget(60), exempt_arguments=("a/b.py",))
POLICIES = (
    POLICY,
    replace(POLICY, context_window=2400),
    replace(POLICY, context_window=1200, overflow_strategy=OverflowStrategy.PRUNE),
    replace(POLICY, result_budget=Budget(60)),
    replace(POLICY, tidying=None),
    replace(POLICY, dedupe=False),
    replace(POLICY, tools=(ToolRule("r*", SPARE),)),
    replace(POLICY, tools=(ToolRule("x*", SPARE),)),
    replace(POLICY, tools=(ToolRule("*", structs.replace(SPARE, dedupe=False, exempt_arguments=())),)),
    replace(POLICY, context_window=1600, pin_instruction=True, max_message_tokens=64, truncate_users=True),
)
POLICY_CHANGES = st.sampled_from(POLICIES)


@dataclass
class Kept:
    """Everything that may be kept from one request to the next."""

    results: dict[ResultKey, Shortened] = field(default_factory=dict)
    states: KeptStates = field(default_factory=KeptStates)


def run(messages: Sequence[Message], policy: Policy, kept: Kept | None = None) -> tuple[Plan, Outcome]:
    before = conversation(*messages)
    if kept is None:
        planned = plan(before, policy, count=count)
        return planned, apply(planned, policy, count=count)
    work = Work(count, kept.results)
    planned = plan(before, policy, count=count, work=work, states=kept.states)
    return planned, apply(planned, policy, count=count, work=work, states=kept.states)


def check(messages: Sequence[Message], policy: Policy, kept: Kept) -> None:
    """The result is the same with and without what was kept, and has the bytes of this very request."""
    planned, outcome = run(messages, policy, kept)
    assert (planned, outcome) == run(messages, policy)
    assert outcome.decisions or outcome.conversation is planned.original
    assert {one.raw for one in outcome.conversation.messages if one.raw} <= {one.raw for one in messages}


@given(
    trunk=transcripts(16),
    branches=st.lists(st.tuples(st.integers(0, 40), transcripts(8), POLICY_CHANGES), min_size=2, max_size=5),
)
def test_what_was_kept_changes_nothing(
    trunk: tuple[Message, ...], branches: list[tuple[int, tuple[Message, ...], Policy]]
) -> None:
    """Transcripts become longer, are rewound and branch in any order, with policies that change."""
    kept = Kept()
    head = (system(), user("Mend the build."))
    for stop, branch, policy in branches:
        messages = (*head, *trunk[:stop], *branch)
        for end in (len(messages) // 2, len(messages), len(messages) - 1, len(messages)):
            check(messages[:end], policy, kept)


@pytest.mark.parametrize("policy", POLICIES[1:3], ids=["summaries", "prune"])
def test_a_growing_session_is_as_it_would_be_anew(policy: Policy) -> None:
    """The cut moves request by request, and with it the first result that is compared."""
    kept, messages = Kept(), rereading(25)
    for stop in range(2, len(messages) + 1, 2):
        check(messages[:stop], policy, kept)


def test_a_cold_cut_is_known_by_what_is_before_it() -> None:
    hashes = hash_prefixes(session(3))
    assert find_cold(hashes, {hashes[3]: ColdCut.CUT, b"another's": ColdCut.CUT}) == {3: ColdCut.CUT}


CHANGES: dict[str, Callable[[Message], Message]] = {
    "tokens": lambda message: replace(message, tokens=message.tokens + 900),
    "error": lambda message: replace(message, is_error=not message.is_error),
    "texts": lambda message: replace(message, texts=(listing(9),)),
    "media": lambda message: replace(message, media=(read_media({"image": IMAGE.decode()}),)),
    "calls": lambda message: replace(message, tool_calls=message.tool_calls and (call("other", "run"),)),
    "role": lambda message: replace(message, role=Role.USER),
    "bytes": lambda message: replace(message, raw=b" " + message.raw),
}


@given(
    messages=st.one_of(transcripts(), st.just(rereading(12))),
    index=st.integers(0, 40),
    change=st.sampled_from(sorted(CHANGES)),
    policy=POLICY_CHANGES,
)
def test_another_message_of_the_same_digest_is_another(
    messages: tuple[Message, ...], index: int, change: str, policy: Policy
) -> None:
    """A digest does not include a message's tokens or its error mark. In this test, digests are also wrong."""
    messages = (user("Mend the build."), *messages)
    index = min(index, len(messages) - 1)
    other = (*messages[:index], CHANGES[change](messages[index]), *messages[index + 1 :])
    kept = Kept()
    for transcript in (messages, other, messages):
        # The outcomes for single results are cached by digest, and this test is not about them.
        kept.results.clear()
        check(transcript, policy, kept)


@given(messages=valid_transcripts(), policy=POLICY_CHANGES)
def test_a_volatile_head_keeps_what_was_found(messages: tuple[Message, ...], policy: Policy) -> None:
    """The system prompt has another time of day, and one more message of this kind comes."""
    kept, body = Kept(), (user("Mend the build."), *messages, *rereading(4)[2:])
    for heads in (["9:00"], ["9:01"], ["9:02", "More."], ["9:03", "More."]):
        check((*map(system, heads), *body), policy, kept)


def test_what_was_not_allowed_is_worked_out_next_time() -> None:
    kept, messages = Kept(), rereading(20)
    for stop in range(2, len(messages) + 1, 4):
        before = conversation(*messages[:stop])
        for max_chars in (0, 100, 1000):
            work = Work(count, kept.results, Allowance(max_chars))
            try:
                plan(before, POLICY, count=count, work=work, states=kept.states)
            except LargeWorkError:
                continue
        check(messages[:stop], POLICY, kept)


def test_a_comparison_that_was_not_allowed_is_made_next_time() -> None:
    """It may end in the middle. The rest of the state stays."""
    kept, messages, policy = Kept(), rereading(8), replace(POLICY, result_budget=Budget(4000))
    run(messages[:8], policy, kept)
    work = Work(count, kept.results)
    planned = plan(conversation(*messages), policy, count=count, work=work, states=kept.states)
    (state,) = kept.states.values()
    with pytest.raises(LargeWorkError):
        apply(planned, policy, count=count, work=structs.replace(work, allowance=Allowance(0)), states=kept.states)
    check(messages, policy, kept)
    assert list(kept.states.values()) == [state]


def test_a_plan_is_carried_out_whoever_has_the_state_now() -> None:
    """Between the plan and its application come longer requests, requests with the same end, or none."""
    kept, messages = Kept(), rereading(20)
    other = (*messages[:5], result("c1", listing(9)), *messages[6:])
    assert len(other) == len(messages)
    for between in ((), (messages,), ((*messages, user("Go on.")),), (other,), (messages[:-2],)):
        kept.states.clear()
        check(messages[:-4], POLICY, kept)
        work = Work(count, kept.results)
        planned = plan(conversation(*messages), POLICY, count=count, work=work, states=kept.states)
        for transcript in between:
            plan(conversation(*transcript), POLICY, count=count, work=work, states=kept.states)
        outcome = apply(planned, POLICY, count=count, work=work, states=kept.states)
        assert (planned, outcome) == run(messages, POLICY)
        for transcript in (*between, messages):
            check(transcript, POLICY, kept)


def test_a_grown_transcript_costs_its_new_messages_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """For two new messages, one result is read. For none, none is read; for a rewound transcript, all are."""
    looked: dict[str, list[Any]] = {"edit": [], "compare": []}
    edit_one, add_result = results_work.edit_one, View._add_result

    def watch_edits(message: Message, *rest: Any) -> Message:
        looked["edit"].append(message)
        return edit_one(message, *rest)

    def watch_results(self: View, index: int, *rest: Any) -> None:
        looked["compare"].append(index)
        add_result(self, index, *rest)

    monkeypatch.setattr(results_work, "edit_one", watch_edits)
    monkeypatch.setattr(View, "_add_result", watch_results)
    kept, messages, costs = Kept(), session(50, result_tokens=100), []
    for stop in (60, 62, 62, 102, 58):
        before = {name: len(seen) for name, seen in looked.items()}
        run(messages[:stop], POLICY, kept)
        costs.append(tuple(len(seen) - before[name] for name, seen in looked.items()))
    assert costs == [(29, 29), (1, 1), (0, 0), (20, 20), (28, 28)]
    assert len(kept.states) == 2


def test_a_state_is_taken_for_its_own_beginning_alone() -> None:
    """The transcript must not have grown by too much, and must have the same policy and counter."""
    messages, work = session(60), Work(count)
    cheaper = replace(POLICY, low_water=0.3)
    for asked, policy, asking, is_found in (
        (messages[: 9 + MAX_GROWTH - 1], POLICY, work, True),
        (messages[: 9 + MAX_GROWTH], POLICY, work, False),
        (messages[:9], replace(POLICY), work, True),
        (messages[:9], cheaper, work, False),
        (messages[:9], POLICY, structs.replace(work, counter=1), False),
        (messages[:8], POLICY, work, False),
        (messages[1:9], POLICY, work, False),
        ((*messages[:4], user(), *messages[5:9]), POLICY, work, False),
    ):
        states = KeptStates()
        state = take_state(states, messages[:9], name_state(messages[:9], POLICY, work))
        state.edit(conversation(*messages[:9]), POLICY, work)
        states[name_state(messages[:9], POLICY, work)] = state
        assert (take_state(states, asked, name_state(asked, policy, asking)) is state) is is_found


@pytest.mark.parametrize("differs_at", [1, 3])
def test_a_session_is_not_lost_to_one_that_ended_the_same(differs_at: int) -> None:
    """Two sessions say the same, but for their task or one early answer. The second goes on from its own state."""
    messages, states, work = session(12), KeptStates(), Work(count)
    for name in "ab":
        own = (*messages[:differs_at], replace(messages[differs_at], digest=name.encode()), *messages[differs_at + 1 :])
        for stop in range(6, len(own) + 1, 2):
            state = take_state(states, own[:stop], name_state(own[:stop], POLICY, work))
            assert bool(state.hashes) is (stop > 6)
            state.edit(conversation(*own[:stop]), POLICY, work)
            states[name_state(own[:stop], POLICY, work)] = state


def _keep(states: KeptStates, messages: Sequence[Message], known: TranscriptState) -> TranscriptState:
    known.edit(conversation(*messages), POLICY, Work(count))
    states[name_state(messages, POLICY, Work(count))] = known
    return known


def test_the_longest_known_beginning_is_taken() -> None:
    messages, states = session(10), KeptStates()
    key, new = name_state(messages[:20], POLICY, Work(count)), name_state(messages[:2], POLICY, Work(count))
    made = [_keep(states, messages[:stop], take_state(None, messages, new)) for stop in (1, 6, 12, 9)]
    assert [take_state(states, messages[:20], key) for _ in made] == [made[2], made[3], made[1], made[0]]


def test_sessions_of_one_script_keep_their_states() -> None:
    """They run side by side, with the same text in the same places. Only the model's answers differ."""
    states, head = KeptStates(), (system(), user("Mend the build."))
    sessions = [
        (*head, *(turn for number in range(5) for turn in (assistant(f"{name} {number}"), user("Go on."))))
        for name in "abc"
    ]
    for stop in range(4, 13, 2):
        for messages in (one[:stop] for one in sessions):
            known = take_state(states, messages, name_state(messages, POLICY, Work(count)))
            assert bool(known.hashes) is (stop > 4)
            _keep(states, messages, known)


@pytest.mark.parametrize("results", ["a", "bab"], ids=["open", "repeated"])
def test_a_session_with_a_step_that_was_repaired_keeps_its_state(results: str) -> None:
    """Its state has the step as it is forwarded, so the client's own messages do not begin with what it has seen."""
    steps, kept = rereading(6), Kept()
    odd = (assistant("both", call("a"), call("b")), *(result(each, f"result {each}") for each in results))
    messages = (*steps[:4], *odd, *steps[4:])
    for stop in range(4 + len(odd), len(messages) + 1, 2):
        check(messages[:stop], POLICY, kept)
        assert len(kept.states) == 1


def test_only_new_messages_are_asked_whether_they_are_paired(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the leading ones, which may be others than before. A long session would else be walked at each request."""
    looked: list[int] = []
    ask: Callable[..., bool] = pairing.is_paired
    monkeypatch.setattr(pairing, "is_paired", lambda messages: looked.append(len(messages)) or ask(messages))
    kept, messages = Kept(), rereading(40)
    for stop in range(4, len(messages) + 1, 2):
        run(messages[:stop], POLICY, kept)
        assert (stop, sum(looked)) == (stop, 3 if stop > 4 else 4)
        looked.clear()


def test_what_stands_before_a_standing_cut_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that continues the transcript has the same summary and text in its place, and makes neither again."""
    made: list[str] = []

    def count_calls(module: ModuleType, name: str) -> None:
        call: Callable[..., Any] = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *args: made.append(name) or call(*args))

    count_calls(transcript_state, "request_summary")
    count_calls(splice, "_stand_for")
    messages, policy, kept = session(70), replace(POLICY, context_window=2400), Kept()
    cuts = [len(run(messages[:stop], policy, kept)[0].window.cuts) for stop in range(8, len(messages) + 1, 2)]
    assert 1 < cuts[-1] < len(cuts) / 3
    assert (made.count("request_summary"), made.count("_stand_for")) == (cuts[-1], cuts[-1])
