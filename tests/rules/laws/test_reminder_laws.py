"""The laws of system messages after the beginning: which of them a cut keeps, and what they may cost."""

from collections.abc import Sequence
from dataclasses import replace

from support.builders import assistant, conversation, count, fill, fold, system, user
from support.policies import POLICY

from trimtab.rules.conversation import Message, Role
from trimtab.rules.economy import Economy, find_budgets
from trimtab.rules.pipeline.order import apply, plan
from trimtab.rules.policy import Policy, PreserveSystem
from trimtab.rules.summary.request import make_digest

LIMIT = 2400
FITTED = find_budgets(Economy.BALANCED, 8000)
SMALL = Policy(
    context_window=8000,
    completion_reserve=1000,
    high_water=FITTED.high_water,
    low_water=FITTED.low_water,
    summary_max_tokens=FITTED.summary_tokens,
    anchor_share=FITTED.anchor_share,
)
"""What a small window has by default."""
HEAD = (system("You are careful."), user("Mend the build."))


def test_all_are_kept_if_the_policy_says_so() -> None:
    """With `preserve_system: all`, every one before a cut stays, in its order."""
    policy, messages = replace(POLICY, preserve_system=PreserveSystem.ALL), (*HEAD, *_talk(60))
    window = fold(messages, policy, limit=LIMIT)
    assert len(window.cuts) > 1
    for cut in window.cuts:
        assert list(cut.kept_systems) == [index for index in range(1, cut.at) if messages[index].role is Role.SYSTEM]


def test_one_that_later_messages_depend_on_is_always_kept() -> None:
    """An item that changes the tools, for example, stays in front of what uses them."""
    control = replace(system("tools: more"), stays=True)
    messages = (*HEAD, control, *_talk(60))
    window = fold(messages, POLICY, limit=LIMIT)
    assert len(window.cuts) > 1
    assert all(2 in cut.kept_systems for cut in window.cuts)


def _talk(turns: int) -> list[Message]:
    """Turns with a reminder each: mostly one of three equal ones, of 150 to 400 tokens."""
    messages: list[Message] = []
    for turn in range(turns):
        text = (
            fill(f"odd reminder {turn}", 200) if turn % 7 == 0 else fill(f"reminder {turn % 3}", 150 + 125 * (turn % 3))
        )
        messages += [user(f"Question {turn} of the user?"), system(text), assistant(f"Answer {turn} of the model.")]
    return messages


def test_sixty_reminders_do_not_take_the_place_of_the_conversation() -> None:
    """The last three turns are forwarded verbatim at each request, and the prompt fits."""
    policy = SMALL
    talk = _talk(60)
    prefixes: list[Sequence[Message]] = []
    moves = 0
    for turn in range(2, 60):
        messages = (*HEAD, *talk[: 3 * turn + 2])
        planned = plan(conversation(*messages), policy, count=count)
        sent = apply(planned, policy, count=count).conversation
        assert sent.tokens <= policy.limit_tokens()
        assert sent.messages[0] is messages[0]
        newest = messages[-8:]  # two turns and the open one
        assert sent.messages[-len(newest) :] == newest
        if prefixes and sent.messages[: len(prefixes[-1])] != prefixes[-1]:
            moves += 1
        prefixes.append(sent.messages)
    assert planned.window.cuts
    assert moves == len(planned.window.cuts) <= 12


def test_a_digest_lists_reminders_that_are_not_kept() -> None:
    """Each once, outside the quotation, since the client said it; those that are forwarded are not listed."""
    policy = SMALL
    talk = _talk(60)
    planned = plan(conversation(*HEAD, *talk), policy, count=count)
    assert planned.request is not None
    digest = make_digest(planned.request, count=count)
    listed = digest.partition("## Reminders from the client's program, oldest first\n")[2].partition("\n## ")[0]
    assert listed.count("\n") >= 1
    cut = planned.window.cut
    for index in cut.kept_systems:
        assert planned.conversation.messages[index].text[:20] not in listed
