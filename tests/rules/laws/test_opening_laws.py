"""A client's own summary of an earlier session stays verbatim behind every cut."""

from dataclasses import replace

import pytest
from support.builders import assistant, call, conversation, count, fill, result, session, system, user, write_all
from support.checker import check_transcript
from support.policies import POLICY

from trimtab.rules.conversation import Message
from trimtab.rules.pipeline.order import apply, plan
from trimtab.rules.policy import SummaryRole
from trimtab.rules.summary.request import Summary
from trimtab.rules.text.markers import OPENING_TITLE

TOLD = "This session is being continued from a previous conversation that ran out of context. The key is K-17."
CODEX = (system(), user("# AGENTS.md: be careful."), user("Mend the build."), user(TOLD))
"""The summary follows other user messages."""
OPENCODE = (system(), user("What did we do so far?"), assistant(TOLD), user("Go on."))
"""The summary is an assistant message."""
STEPS = session(80)[2:]


def _send(
    messages: tuple[Message, ...], role: SummaryRole = SummaryRole.AUTO, *, by_model: bool = True
) -> tuple[Message, ...]:
    policy = replace(POLICY, summary_role=role)
    planned = plan(conversation(*messages), policy, count=count)
    assert planned.window.cut is not None
    assert all(TOLD not in message.text for message in (*planned.request.earlier, *planned.request.span))
    summary = Summary("All went well.", by_model=True) if by_model else None
    sent = apply(planned, policy, count=count, summary=summary).conversation
    assert sent.tokens <= planned.reserved_tokens
    return sent.messages


@pytest.mark.parametrize("beginning", [CODEX, OPENCODE])
@pytest.mark.parametrize("role", SummaryRole)
@pytest.mark.parametrize("by_model", [True, False])
def test_it_follows_the_task_statement(beginning: tuple[Message, ...], role: SummaryRole, *, by_model: bool) -> None:
    """Once, verbatim, below a title, in the message of the task statement, whoever said it."""
    messages = (*beginning, *STEPS)
    sent = _send(messages, role, by_model=by_model)
    assert sent[1].texts[:3] == (beginning[1].text, OPENING_TITLE, TOLD)
    assert sum(text.count(TOLD) for message in sent for text in message.texts) == 1
    if role is SummaryRole.AUTO:
        assert check_transcript(write_all(messages), write_all(sent)) == []


@pytest.mark.parametrize("beginning", [CODEX, OPENCODE])
def test_it_stays_the_same_as_the_transcript_grows(beginning: tuple[Message, ...]) -> None:
    """The forwarded prefix changes only if the cut moves."""
    places, before = set[int](), ()
    for stop in range(2, len(STEPS) + 1, 2):
        messages = (*beginning, *STEPS[:stop])
        planned = plan(conversation(*messages), POLICY, count=count)
        sent = apply(planned, POLICY, count=count, summary=Summary("Well.", by_model=True)).conversation.messages
        at = planned.window.cut.at if planned.window.cut else 0
        if at in places and before:
            assert sent[: len(before)] == before
        places.add(at)
        before = sent if planned.window.prune_stop <= at else ()
    assert len(places) > 2


def test_behind_a_tool_call_it_is_a_message_like_any_other() -> None:
    """And so is one that is longer than a quarter of the limit."""
    late = (system(), user("task"), assistant(None, call("a")), result("a"), user(TOLD), *STEPS)
    long = (system(), user("task"), user(TOLD + fill("more", 900)), *STEPS)
    for messages in (late, long):
        assert plan(conversation(*messages), POLICY, count=count).window.opening == -1


def test_the_first_user_message_is_the_task_statement_already() -> None:
    """It needs no title of ours."""
    planned = plan(conversation(system(), user(TOLD), *STEPS), POLICY, count=count)
    assert planned.window.cut.opening == -1
