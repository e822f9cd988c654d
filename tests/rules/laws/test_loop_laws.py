"""An agent that reads again what was just removed: the result is kept, and the loop ends."""

from dataclasses import replace

from hypothesis import event, example, given, settings
from hypothesis import strategies as st
from support.builders import (
    KeptStates,
    assistant,
    call,
    conversation,
    count,
    fill,
    fold,
    measure,
    result,
    system,
    user,
    write_all,
)
from support.checker import check_transcript
from support.policies import POLICY

from trimtab.rules.conversation import Message, Outcome
from trimtab.rules.pipeline.order import apply, plan
from trimtab.rules.pipeline.plan import Plan
from trimtab.rules.policy import Budget, OverflowStrategy, Policy
from trimtab.rules.summary.request import Summary
from trimtab.rules.window.cut_decision import Fold
from trimtab.rules.window.kept import REMOVALS
from trimtab.rules.window.room import Marks

LIMIT = POLICY.limit_tokens()


def _read(number: int, path: str, tokens: int) -> list[Message]:
    return [
        assistant(f"I read {path}.", call(f"c{number}", "read", f'{{"path":"{path}"}}')),
        result(f"c{number}", fill(f"{path} is", tokens)),
    ]


def _forward(messages: list[Message], policy: Policy, states: KeptStates) -> tuple[Plan, Outcome]:
    planned = plan(conversation(*messages), policy, count=count, states=states)
    summary = Summary("All went well.", by_model=True) if planned.request and planned.request.asks_model else None
    return planned, apply(planned, policy, count=count, summary=summary, states=states)


def _play(policy: Policy, steps: int = 180) -> tuple[list[Message], int]:
    """An agent that needs one file whenever it does not see it, and else works on; its messages and its reads."""
    messages, reads, states = [system(), user("Mend the build.")], 0, KeptStates()
    for number in range(steps):
        planned, outcome = _forward(messages, policy, states)
        assert check_transcript(write_all(messages), write_all(outcome.conversation.messages)) == []
        assert outcome.conversation.tokens <= planned.reserved_tokens
        sees = any("needed is" in message.text for message in outcome.conversation.messages)
        reads += not sees
        messages += _read(number, f"other {number}", 100) if sees else _read(number, "needed", 150)
    return messages, reads


def test_the_loop_ends() -> None:
    """Three times the agent reads again what was removed. Then the result stays, over many cuts."""
    messages, reads = _play(POLICY)
    window = fold(messages, POLICY, limit=LIMIT)
    assert len(window.cuts) > 5
    assert reads == 4
    (step,) = window.cuts[-1].kept_steps
    assert messages[step[0]].tool_calls[0].arguments == '{"path":"needed"}'
    assert step[1] == step[0] + 2


def test_a_session_without_loops_keeps_no_step() -> None:
    """However often a call is repeated while its result is there."""
    messages = [system(), user("Mend the build.")]
    for number in range(200):
        messages += _read(number, f"file {number // 3}", 100)
    window = fold(messages, POLICY, limit=LIMIT)
    assert len(window.cuts) > 3
    assert not any(cut.kept_steps for cut in window.cuts)
    assert window.spared == ()


def test_the_size_of_what_is_kept_is_in_the_fold() -> None:
    """The fold never exceeds its room, and earlier cuts do not change."""
    messages, _ = _play(POLICY, 100)
    room = measure(messages, POLICY, limit=LIMIT)
    folded, before = Fold(room, POLICY), ()
    for message in messages:
        folded.add(message)
        assert folded._forwarded <= room.tokens
        assert folded.window.cuts[: len(before)] == before
        before = folded.window.cuts


def test_a_result_that_is_too_long_is_not_kept() -> None:
    """What stays has half of the gap between the waters; a longer step is removed, whatever is repeated."""
    policy = replace(POLICY, result_budget=Budget(900))
    marks = _measure_marks(policy)
    for excess, stays in ((-60, True), (1, False)):
        messages = [system(), user("Mend the build.")]
        for number in range(60):
            path = "needed" if number % 6 == 0 else f"other {number}"
            messages += _read(number, path, (marks.high - marks.low) // 2 + excess if path == "needed" else 150)
        window = fold(messages, policy, limit=LIMIT)
        assert len(window.cuts) > 3
        assert any(cut.kept_steps for cut in window.cuts) == stays
        assert any(cut.unfit >= 0 for cut in window.cuts) != stays


ROWS_TOO_LONG = st.lists(st.sampled_from([220, 150, 30]), min_size=60, max_size=80)


@settings(max_examples=10)
@given(rows=ROWS_TOO_LONG, prunes=st.sampled_from(["prune", "summarize", "auto_compact"]))
def test_an_agent_is_told_that_a_result_is_too_long(rows: list[int], prunes: str) -> None:
    """From the third time on, whatever stands for the result says so. The agent then reads a part, and goes on."""
    policy = replace(POLICY, result_budget=Budget(900), overflow_strategy=OverflowStrategy(prunes))
    messages, reads, states = [system(), user("Mend the build.")], 0, KeptStates()
    before: tuple[object, tuple[Message, ...]] = (None, ())
    for number, tokens in enumerate(rows):
        planned, outcome = _forward(messages, policy, states)
        sent, window = outcome.conversation.messages, planned.window
        assert check_transcript(write_all(messages), write_all(sent)) == []
        assert outcome.conversation.tokens <= planned.reserved_tokens
        decided = window.cuts, window.prune_stop
        assert decided != before[0] or sent[: len(before[1])] == before[1]
        before = decided, sent
        told = "\n".join(message.text for message in sent)
        is_told = "too long to keep; call the tool for a smaller part]" in told
        if "needed is" in told or is_told:
            assert reads > REMOVALS or not is_told
            messages += _read(number, f"other {number}", tokens)
        else:
            messages += _read(number, "needed", 700)
            reads += 1
    assert reads <= REMOVALS + 1
    event(f"reads {reads}")


ROWS = st.lists(
    st.tuples(st.sampled_from(["read", "read", "user", "system", "think"]), st.sampled_from([220, 150, 30])),
    min_size=40,
    max_size=60,
)


@settings(max_examples=20)
@given(rows=ROWS, needed_tokens=st.integers(60, 600), prunes=st.sampled_from(["prune", "summarize", "auto_compact"]))
@example(rows=[("read", 220)] * 80, needed_tokens=500, prunes="auto_compact")
@example(rows=[("read", 220)] * 80, needed_tokens=500, prunes="prune")
def test_a_needed_result_stays_from_the_third_time_on(
    rows: list[tuple[str, int]], needed_tokens: int, prunes: str
) -> None:
    """An agent reads a file whenever it does not see it. After the fourth reading it always sees it, verbatim.

    Every transcript that is forwarded is valid, fits, and begins as the one before unless the cut has moved.
    """
    policy = replace(POLICY, result_budget=Budget(700), overflow_strategy=OverflowStrategy(prunes))
    messages, reads, states = [system(), user("Mend the build.")], 0, KeptStates()
    before: tuple[object, tuple[Message, ...]] = (None, ())
    for number, (kind, tokens) in enumerate(rows):
        planned, outcome = _forward(messages, policy, states)
        sent, window = outcome.conversation.messages, planned.window
        assert outcome.conversation.tokens <= LIMIT
        assert check_transcript(write_all(messages), write_all(sent)) == []
        decided = window.cuts, window.prune_stop
        assert decided != before[0] or sent[: len(before[1])] == before[1]
        before = decided, sent
        needed = fill("needed is", needed_tokens)
        sees = any(message.texts == (needed,) for message in sent)
        assert sees or reads <= REMOVALS
        if not sees:
            messages += _read(number, "needed", needed_tokens)
            reads += 1
        said = fill(f"{kind} {number}", tokens)
        match kind:
            case "read":
                messages += _read(number + 1000, f"other {number}", tokens)
            case "user":
                messages.append(user(said))
            case "system":
                messages.append(system(said[:200]))
            case _:
                messages.append(assistant(said))
    event(f"reads {reads}")


def _measure_marks(policy: Policy) -> Marks:
    room = measure([system(), user("Mend the build.")], policy, limit=LIMIT)
    return Marks.measure(room.tokens, room.soft, policy)
