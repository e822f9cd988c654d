"""The laws of system messages after the beginning: which of them a cut keeps, and what they may cost."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import assistant, conversation, count, fill, fold, measure, read, system, user, valid_transcripts
from support.policies import POLICY, with_any_waters

from trimtab.rules.conversation import Message, Role
from trimtab.rules.economy import Economy, find_budgets
from trimtab.rules.pipeline.order import apply, plan
from trimtab.rules.policy import Policy, PreserveSystem
from trimtab.rules.summary.request import Summary, make_digest
from trimtab.rules.window.cut_decision import Fold

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


@st.composite
def reminded(draw: st.DrawFn) -> tuple[Message, ...]:
    """A transcript with reminders between its messages, many of them equal."""
    kinds = st.integers(0, 4).map(lambda kind: system(fill(f"reminder {kind}", 10 + 25 * kind)))
    messages = list(draw(valid_transcripts(24)))
    for at in sorted(draw(st.lists(st.integers(0, len(messages)), max_size=30)), reverse=True):
        if at == len(messages) or messages[at].role is not Role.TOOL:
            messages.insert(at, draw(kinds))
    return (*HEAD, *messages)


@given(messages=reminded(), policy=with_any_waters(st.just(POLICY)))
def test_a_cut_keeps_the_newest_of_equal_reminders_within_a_quarter_of_low_water(
    messages: tuple[Message, ...], policy: Policy
) -> None:
    """No two kept ones are equal, none is equal to one behind the cut, and the leading ones stay outside of it."""
    room = measure(messages, policy, limit=LIMIT).tokens
    for cut in fold(messages, policy, limit=LIMIT).cuts:
        kept = [messages[index] for index in cut.kept_systems]
        behind = {one.digest for one in messages[cut.at : cut.made_at]}
        assert all(
            one.role is Role.SYSTEM and 0 < index < cut.at for one, index in zip(kept, cut.kept_systems, strict=True)
        )
        assert sum(one.tokens for one in kept) <= int(room * policy.low_water) // 4
        assert len({one.digest for one in kept}) == len(kept)
        assert behind.isdisjoint(one.digest for one in kept)


@given(messages=reminded(), policy=with_any_waters(st.just(POLICY)))
def test_what_is_kept_never_changes(messages: tuple[Message, ...], policy: Policy) -> None:
    """A transcript that grows keeps the cuts of before, with the same messages, except the last in the same place."""
    folded, before = Fold(measure(messages, policy, limit=LIMIT), policy), ()
    for message in messages:
        folded.add(message)
        cuts = folded.window.cuts
        if cuts[: len(before)] != before:
            assert cuts[:-1] == before[:-1]
            assert cuts[-1].at == before[-1].at
        before = cuts


@given(messages=reminded())
def test_all_are_kept_if_the_policy_says_so(messages: tuple[Message, ...]) -> None:
    """With `preserve_system: all`, every one before a cut stays, in its order."""
    policy = replace(POLICY, preserve_system=PreserveSystem.ALL)
    for cut in fold(messages, policy, limit=LIMIT).cuts:
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


@pytest.mark.parametrize("by_model", [True, False])
def test_sixty_reminders_do_not_take_the_place_of_the_conversation(*, by_model: bool) -> None:
    """The last three turns are forwarded verbatim at each request, and the prompt fits."""
    policy = SMALL
    talk = _talk(60)
    prefixes: list[Sequence[Message]] = []
    moves = 0
    for turn in range(2, 60):
        messages = (*HEAD, *talk[: 3 * turn + 2])
        planned = plan(conversation(*messages), policy, count=count)
        summary = Summary("All went well.", by_model=True) if by_model and planned.request else None
        sent = apply(planned, policy, count=count, summary=summary).conversation
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


def test_a_hostile_transcript_of_tiny_reminders_is_folded_quickly() -> None:
    """The tree answers in a logarithm of their number; looking at each of them would take hours."""
    tiny = [read({"role": "system", "content": f"{number}"}) for number in range(25_000)]
    policy = Policy(context_window=16_000)
    window = fold((*HEAD, *tiny), policy, limit=policy.limit_tokens())
    assert window.cuts
