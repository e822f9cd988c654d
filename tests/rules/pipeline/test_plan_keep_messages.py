"""A plan that keeps the number of messages: every message stays; the results before a cut become placeholders."""

from support.builders import conversation, count, session, user
from support.policies import POLICY

from trimtab.rules.conversation import Role
from trimtab.rules.pipeline.order import apply, plan


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
