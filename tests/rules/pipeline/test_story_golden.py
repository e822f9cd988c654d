"""The stories of whole requests, as they are: each sentence, and what became of each message."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from support.builders import conversation, count, rereading, screenshots, system, user
from support.golden import check_golden
from support.policies import POLICY
from support.told_sessions import told_sessions

from trimtab.rules.conversation import Message
from trimtab.rules.pipeline.changes import Fate
from trimtab.rules.pipeline.exceeded import LimitExceededError
from trimtab.rules.pipeline.order import apply, plan
from trimtab.rules.pipeline.story import tell_story
from trimtab.rules.policy import Budget, OnExceeded, OverflowStrategy, Policy, Tidying

SESSIONS = {
    **{name: (system(), *told_sessions()[name][:24]) for name in ("agent", "commands", "desk", "talk")},
    "rereading": rereading(30),
    "screenshots": screenshots(30),
    "long": (system(), user("word " * 6000), *rereading(3)[2:]),
}
EDITS = replace(POLICY, tidying=Tidying(), dedupe=True, result_budget=Budget(150), context_window=100_000)
POLICIES = {
    "edits": EDITS,
    "cut": POLICY,
    "edits and cut": replace(EDITS, context_window=2400, pin_instruction=True, keep_images=4),
    "prune": replace(POLICY, overflow_strategy=OverflowStrategy.PRUNE, protect_turns=1),
    "turns": replace(POLICY, max_turns=2, max_message_tokens=100),
    "truncate": replace(POLICY, context_window=1200, on_exceeded=OnExceeded.TRUNCATE),
    "refuse": replace(POLICY, context_window=900, on_exceeded=OnExceeded.ERROR),
}


def _tell(messages: Sequence[Message], policy: Policy) -> str:
    planned = plan(conversation(*messages, fixed_tokens=70), policy, count=count)
    try:
        outcome = apply(planned, policy, count=count)
    except LimitExceededError as error:
        rest = error.remainder
        assert rest is not None
        return (
            f"refused: {error.tokens} of {error.limit}, {rest.excess_tokens} too many, {rest.head_tokens} in the head"
        )
    story = tell_story(planned, outcome, ratio=1.1)
    sentences = [f"{one.text} [{one.rule} {one.saved_tokens} {one.messages}]" for one in story.sentences]
    gone = [f"gone: {one.at} {one.tokens_before}" for one in story.changes if one.fate is Fate.REMOVED]
    changes = [
        f"{one.at} {one.role} {one.tool} {one.fate} {one.rules} {one.tokens_before}->{one.tokens_after}"
        for one in story.changes
        if one.fate is not Fate.REMOVED
    ]
    return "\n".join([*sentences, *gone[:1], *gone[-1:], *changes])


@pytest.mark.parametrize("name", SESSIONS)
def test_a_story_is_as_it_was(name: str) -> None:
    """With policies that shorten, prune, cut or refuse."""
    check_golden(f"stories/{name}", {title: _tell(SESSIONS[name], policy) for title, policy in POLICIES.items()})
