"""A client's own summary of an earlier session stays verbatim behind every cut."""

from dataclasses import replace

import pytest
from support.builders import assistant, conversation, count, session, system, user, write_all
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


def _send(messages: tuple[Message, ...], role: SummaryRole) -> tuple[Message, ...]:
    policy = replace(POLICY, summary_role=role)
    planned = plan(conversation(*messages), policy, count=count)
    assert planned.window.cut is not None
    assert all(TOLD not in message.text for message in (*planned.request.earlier, *planned.request.span))
    sent = apply(planned, policy, count=count, summary=Summary("All went well.", by_model=True)).conversation
    assert sent.tokens <= planned.reserved_tokens
    return sent.messages


@pytest.mark.parametrize("beginning", [CODEX, OPENCODE])
@pytest.mark.parametrize("role", SummaryRole)
def test_it_follows_the_task_statement(beginning: tuple[Message, ...], role: SummaryRole) -> None:
    """Once, verbatim, below a title, in the message of the task statement, whoever said it."""
    messages = (*beginning, *STEPS)
    sent = _send(messages, role)
    assert sent[1].texts[:3] == (beginning[1].text, OPENING_TITLE, TOLD)
    assert sum(text.count(TOLD) for message in sent for text in message.texts) == 1
    if role is SummaryRole.AUTO:
        assert check_transcript(write_all(messages), write_all(sent)) == []
