"""The arms: what a model sees of the session in each."""

import pytest

from trimtab.proxy.cli.evaluate.rehearsal import NAMES, PAUSED, Rehearsal, make_arm, read_session, rehearse
from trimtab.proxy.compaction import load_compactor, read_messages
from trimtab.proxy.compaction.engine import Variant
from trimtab.rules.conversation import Role
from trimtab.rules.policy import Policy

ROOM = 1_000_000


@pytest.mark.parametrize("name", NAMES)
def test_every_arm_ends_with_a_line_of_the_assistant(rehearsal: Rehearsal, name: str) -> None:
    """So servers that require alternating roles accept the question. The client's last message stays."""
    arm = make_arm(name, rehearsal, rehearsal.apply({}).forwarded, ROOM)
    *before, last = arm.conversation.messages
    assert (last.role, last.texts) == (Role.ASSISTANT, (PAUSED,))
    assert before[-1].digest == rehearsal.last.planned.original.messages[-1].digest
    assert arm.problem is None


def test_arms_hold_all_what_is_forwarded_and_the_newest(rehearsal: Rehearsal) -> None:
    """Truncation keeps as many tokens as compaction, to within one step."""
    forwarded = rehearsal.apply({}).forwarded
    arms = {name: make_arm(name, rehearsal, forwarded, ROOM) for name in NAMES}
    assert arms["none"].conversation.messages[:-1] == rehearsal.last.planned.original.messages
    assert arms["digest"].conversation.messages[:-1] == forwarded.messages
    assert arms["trimtab"].tokens == arms["digest"].tokens == forwarded.tokens
    assert forwarded.tokens * 0.5 < arms["truncate"].tokens <= forwarded.tokens


def test_what_does_not_fit_the_window_says_so(rehearsal: Rehearsal) -> None:
    forwarded = rehearsal.apply({}).forwarded
    assert "does not fit" in (make_arm("none", rehearsal, forwarded, 14_000).problem or "")
    assert make_arm("trimtab", rehearsal, forwarded, 14_000).problem is None


def test_open_calls_are_answered_in_every_arm() -> None:
    """Strict servers accept even a session that ends in the middle of a call."""
    call = {"id": "1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    messages = [{"role": "user", "content": "go"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    variant = Variant(load_compactor("m", vocabulary="heuristic"), Policy())
    rehearsal = rehearse(read_session(read_messages(messages, model="m").body), variant)
    for name in NAMES:
        arm = make_arm(name, rehearsal, rehearsal.apply({}).forwarded, ROOM)
        roles = [message.role for message in arm.conversation.messages]
        assert roles == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]


def test_a_session_that_ends_with_an_answer_stays_as_it_is() -> None:
    """Else two messages of the assistant would be adjacent."""
    messages = [{"role": "user", "content": "go"}, {"role": "assistant", "content": "done"}]
    variant = Variant(load_compactor("m", vocabulary="heuristic"), Policy())
    rehearsal = rehearse(read_session(read_messages(messages, model="m").body), variant)
    arm = make_arm("none", rehearsal, rehearsal.apply({}).forwarded, ROOM)
    assert [message.text for message in arm.conversation.messages] == ["go", "done"]
