"""An agent that reads again what was just removed: the result is kept, and the loop ends."""

import pytest
from support.builders import assistant, call, conversation, count, fill, fold, measure, result, system, user, write_all
from support.checker import check_transcript
from support.policies import POLICY

from rules.conversation import Message
from rules.pipeline.apply import apply
from rules.pipeline.make_plan import plan
from rules.policy import Policy
from rules.summary.request import Summary
from rules.window.cut_decision import Fold

LIMIT = POLICY.limit_tokens()


def _read(number: int, path: str, tokens: int) -> list[Message]:
    return [
        assistant(f"I read {path}.", call(f"c{number}", "read", f'{{"path":"{path}"}}')),
        result(f"c{number}", fill(f"{path} is", tokens)),
    ]


def _play(policy: Policy, steps: int = 400) -> tuple[list[Message], int]:
    """An agent that needs one file whenever it does not see it, and else works on; its messages and its reads."""
    messages, reads = [system(), user("Mend the build.")], 0
    for number in range(steps):
        planned = plan(conversation(*messages), policy, count=count)
        summary = Summary("All went well.", by_model=True) if planned.request else None
        outcome = apply(planned, policy, count=count, summary=summary)
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
    assert len(window.cuts) > 10
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
    messages, _ = _play(POLICY, 200)
    room = measure(messages, POLICY, limit=LIMIT)
    folded, before = Fold(room, POLICY), ()
    for message in messages:
        folded.add(message)
        assert folded._forwarded <= room.tokens
        assert folded.window.cuts[: len(before)] == before
        before = folded.window.cuts


@pytest.mark.parametrize("tokens", [290, 300])
def test_a_result_that_is_too_long_is_not_kept(tokens: int) -> None:
    """What stays has a quarter of low water; a longer step is removed, whatever is repeated."""
    messages = [system(), user("Mend the build.")]
    for number in range(300):
        messages += _read(number, f"file {number % 12}", tokens)
    window = fold(messages, POLICY, limit=LIMIT)
    assert len(window.cuts) > 3
    assert not any(cut.kept_steps for cut in window.cuts)
