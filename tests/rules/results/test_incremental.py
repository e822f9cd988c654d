"""What was found of a transcript before: it saves time, and changes nothing else."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import (
    FREE,
    IMAGE,
    DictMemo,
    ResultMemo,
    assistant,
    call,
    conversation,
    count,
    function_result,
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

from rules.conversation import Message, Outcome, Role, ToolCall
from rules.pipeline.plan import Plan, apply, plan
from rules.policy import OnExceeded, OverflowStrategy, Policy
from rules.results import dedupe
from rules.results import edit as results
from rules.results.dedupe import Memos, View, dedupe_tool_results
from rules.results.edit import Allowance, Edits, LargeWorkError, Work
from rules.results.incremental import MAX_GROWTH, keep_seen, take_seen, weigh_message
from rules.treatment import Budget, ToolRule, Treatment
from rules.window.replay import Fold

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
    replace(POLICY, tools=(ToolRule("*", replace(SPARE, dedupe=False, exempt_arguments=())),)),
)
POLICY_CHANGES = st.sampled_from(POLICIES)


@dataclass
class Kept:
    """All that may be remembered from request to request."""

    results: ResultMemo = field(default_factory=ResultMemo)
    edits: DictMemo[Edits] = field(default_factory=DictMemo)
    folds: DictMemo[Fold] = field(default_factory=DictMemo)
    views: DictMemo[View] = field(default_factory=DictMemo)


def run(messages: Sequence[Message], policy: Policy, kept: Kept | None = None) -> tuple[Plan, Outcome]:
    """Plan and apply."""
    before = conversation(*messages)
    if kept is None:
        planned = plan(before, policy, count=count)
        return planned, apply(planned, policy, count=count)
    work = Work(count, kept.results, seen=kept.edits)
    planned = plan(before, policy, count=count, work=work, folds=kept.folds)
    return planned, apply(planned, policy, count=count, memos=Memos({}, {}, kept.views))


def check(messages: Sequence[Message], policy: Policy, kept: Kept) -> None:
    """The same comes out with what was kept and without; and what goes out has the bytes of this very request."""
    planned, outcome = run(messages, policy, kept)
    assert (planned, outcome) == run(messages, policy)
    assert outcome.decisions or outcome.conversation is planned.original
    assert {id(one.raw) for one in outcome.conversation.messages if one.raw} <= {id(one.raw) for one in messages}


@given(
    trunk=transcripts(16),
    branches=st.lists(st.tuples(st.integers(0, 40), transcripts(8), POLICY_CHANGES), min_size=2, max_size=5),
)
def test_what_was_kept_changes_nothing(
    trunk: tuple[Message, ...], branches: list[tuple[int, tuple[Message, ...], Policy]]
) -> None:
    """Longer transcripts, rewound ones and parallel branches, in any order, under policies that change."""
    kept = Kept()
    head = (system(), user("Mend the build."))
    for stop, branch, policy in branches:
        messages = (*head, *trunk[:stop], *branch)
        for end in (len(messages) // 2, len(messages), len(messages) - 1, len(messages)):
            check(messages[:end], policy, kept)


@pytest.mark.parametrize("policy", POLICIES[1:3], ids=["summaries", "prune"])
def test_a_growing_session_is_as_it_would_be_anew(policy: Policy) -> None:
    """Request by request, while the cut moves and with it the first result that is compared."""
    kept, messages = Kept(), rereading(40)
    for stop in range(2, len(messages) + 1, 2):
        check(messages[:stop], policy, kept)


def test_a_policy_that_changes_is_told_apart() -> None:
    """The same transcript under each policy, and then under each again."""
    kept, messages = Kept(), rereading(8)
    for policy in POLICIES * 2:
        check(messages, policy, kept)


def test_a_result_that_is_exempt_no_more_is_compared() -> None:
    """And the reverse, whatever the policy is: the answers are what counts."""
    memos, messages = Memos({}, {}, DictMemo()), conversation(*rereading(12, every=99))

    def compare(exempt: int, memos: Memos | None = None) -> Outcome:
        return dedupe_tool_results(messages, start=0, count=count, is_exempt=lambda index: index == exempt, memos=memos)

    for exempt in (9, 9, 11, 0):
        assert compare(exempt, memos) == compare(exempt)
    assert compare(9) != compare(11)


CHANGES: dict[str, Callable[[Message], Message]] = {
    "tokens": lambda message: replace(message, tokens=message.tokens + 900),
    "error": lambda message: replace(message, is_error=not message.is_error),
    "texts": lambda message: replace(message, texts=(listing(9),)),
    "media": lambda message: replace(message, media=(read_media({"image": IMAGE.decode()}),)),
    "calls": lambda message: replace(message, tool_calls=message.tool_calls and (call("other", "run"),)),
    "role": lambda message: replace(message, role="user"),
    "bytes": lambda message: replace(message, raw=bytes(bytearray(message.raw or b""))),
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
    """Digests leave out what a message costs and whether it is an error; here they are wrong besides."""
    messages = (user("Mend the build."), *messages)
    index = min(index, len(messages) - 1)
    other = (*messages[:index], CHANGES[change](messages[index]), *messages[index + 1 :])
    kept = Kept()
    for transcript in (messages, other, messages):
        # What became of single results is kept by their digests, and is not what this is about.
        kept.results.clear()
        check(transcript, policy, kept)


@given(messages=valid_transcripts(), policy=POLICY_CHANGES)
def test_a_volatile_head_keeps_what_was_found(messages: tuple[Message, ...], policy: Policy) -> None:
    """Another time of day in the system prompt, and one more such message."""
    kept, body = Kept(), (user("Mend the build."), *messages, *rereading(4)[2:])
    for heads in (["9:00"], ["9:01"], ["9:02", "More."], ["9:03", "More."]):
        check((*map(system, heads), *body), policy, kept)


def test_a_call_that_was_made_long_before_is_found() -> None:
    """A result of the legacy kind has the last call of its name, be that in what was seen before."""
    policy = replace(POLICY, tools=(ToolRule("run", SPARE),))  # exempt by the arguments of that call
    kept, text = Kept(), listing(1)
    made = assistant(None, call("c", "run"))
    messages = [
        user(),
        made,
        result("c", "done"),
        *(one for _ in range(4) for one in (assistant("on"), function_result(text))),
    ]
    for stop in range(1, len(messages) + 1):
        check(messages[:stop], policy, kept)


def test_what_was_not_allowed_is_worked_out_next_time() -> None:
    """Work that was broken off leaves nothing behind that is wrong."""
    kept, messages = Kept(), rereading(20)
    for stop in range(2, len(messages) + 1, 4):
        before = conversation(*messages[:stop])
        for max_chars in (0, 100, 1000):
            work = Work(count, kept.results, Allowance(max_chars), kept.edits)
            try:
                plan(before, POLICY, count=count, work=work, folds=kept.folds)
            except LargeWorkError:
                continue
        check(messages[:stop], POLICY, kept)


def test_a_grown_transcript_costs_its_new_messages_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two messages more: one result is looked at; none more: none; a rewound transcript, all."""
    looked: dict[str, list[Any]] = {"edit": [], "compare": []}
    recall, look_at = results._recall, View.look_at

    def watch_recall(messages: Sequence[Message], places: Sequence[Any], *rest: Any) -> Any:
        looked["edit"] += places
        return recall(messages, places, *rest)

    def watch_look(self: View, message: Message, *rest: Any) -> Any:
        looked["compare"].append(message)
        return look_at(self, message, *rest)

    monkeypatch.setattr(results, "_recall", watch_recall)
    monkeypatch.setattr(dedupe.View, "look_at", watch_look)
    kept, messages, costs = Kept(), session(50, result_tokens=100), []
    for stop in (60, 62, 62, 102, 58):
        before = {name: len(seen) for name, seen in looked.items()}
        run(messages[:stop], POLICY, kept)
        costs.append(tuple(len(seen) - before[name] for name, seen in looked.items()))
    assert costs == [(29, 29), (1, 1), (0, 0), (20, 20), (28, 28)]
    assert len(kept.edits.states) == len(kept.views.states) == 2


def test_a_state_is_taken_for_its_own_beginning_alone() -> None:
    """Behind `start`, and by a transcript that has not grown by too much."""
    memo: DictMemo[View] = DictMemo()
    messages = session(60)
    for context, stop, asked, growth in (
        (b"a", 9, b"a", MAX_GROWTH - 1),
        (b"a", 9, b"a", MAX_GROWTH),
        (b"a", 9, b"b", 1),
    ):
        memo.states.clear()
        view = View(2)
        view.messages = list(messages[2:stop])
        keep_seen(memo, context, view)
        found = take_seen(memo, asked, messages[: stop + growth], 2)
        assert (found is view) is (asked == context and growth < MAX_GROWTH)
    keep_seen(memo, b"empty", View(2))
    assert take_seen(memo, b"empty", messages[:2], 2) is None


def test_what_a_state_weighs_grows_with_what_it_holds() -> None:
    """Never less than the bytes of the messages in it and their texts."""
    kept, messages, weights = Kept(), rereading(40), []
    for stop in (20, 40, 80):
        run(messages[:stop], POLICY, kept)
        (edits,), (view,) = kept.edits.states.values(), kept.views.states.values()
        held = sum(len(one.raw or b"") + sum(map(len, one.texts)) for one in messages[2:stop])
        assert min(edits.size_bytes, view.size_bytes) > held
        weights.append((edits.size_bytes, view.size_bytes))
    assert weights == sorted(weights)
    assert weigh_message(Message(Role.USER, ("made here",))) > len("made here")
    # One character beyond the first plane makes four bytes of each.
    text = "a" * 10_000 + "\U0001f600"
    assert weigh_message(Message(Role.USER, (text,))) > 40_000
    assert weigh_message(Message(Role.ASSISTANT, tool_calls=(ToolCall("", "", text),))) > 40_000
