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
from trimtab.rules.window.kept import REMOVALS

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
