"""A cut for a server that reuses what has moved in its cache (`summary.role: last`), through the pipeline.

Law: of a chat, nothing new stands before what stays. Only the newest user message is read, with the summary in it.
"""

from dataclasses import replace
from itertools import pairwise

import pytest
from support.builders import FREE, assistant, conversation, count, fill, system, user
from support.tool_steps import step

from trimtab.rules.conversation import Message, Role
from trimtab.rules.pipeline.order import apply, plan
from trimtab.rules.pipeline.plan import Plan
from trimtab.rules.policy import OverflowStrategy, Policy, SummaryRole
from trimtab.rules.summary.request import Summary
from trimtab.rules.text.markers import KEPT_TITLE, SUMMARY_END, SUMMARY_START

POLICY = Policy(context_window=2000, completion_reserve=200, prices=FREE, summary_role=SummaryRole.LAST)
NOTE = Summary("The ships came in as they were expected, and one of them is late.", by_model=True)
TURNS = 60
READING = [one for number in range(9) for one in step("read", {"path": f"gate_{number}"}, fill(f"gate {number}", 200))]


def chat(turns: int, *, answer_tokens: int = 20, question_tokens: int = 60) -> list[Message]:
    messages = [system()]
    for number in range(turns):
        messages += [user(fill(f"question {number}", question_tokens)), assistant(fill(f"a{number}", answer_tokens))]
    return messages[:-1]


def forward(messages: list[Message], policy: Policy = POLICY) -> tuple[Plan, tuple[Message, ...]]:
    planned = plan(conversation(*messages), policy, count=count)
    return planned, apply(planned, policy, count=count, summary=NOTE).conversation.messages


def show(messages: tuple[Message, ...]) -> list[str]:
    return [f"{one.role}: {one.text.rpartition(SUMMARY_END)[2].strip()}" for one in messages]


def stays_in_order(after: list[str], before: list[str]) -> bool:
    left = iter(before)
    return all(one in left for one in after)


@pytest.mark.parametrize(("answer_tokens", "question_tokens"), [(90, 60), (20, 20)])
def test_nothing_new_stands_before_what_stays(answer_tokens: int, question_tokens: int) -> None:
    """Each request is messages of the one before, in their order, the answer, and a new message; roles alternate.

    Words from before the cut are in the new message only if the cut is in the midst of a turn.
    """
    session = chat(TURNS, answer_tokens=answer_tokens, question_tokens=question_tokens)
    requests = [session[:stop] for stop in range(2, len(session) + 1, 2)]
    sent = [forward(messages) for messages in requests]
    cuts = 0
    for (_, before), (planned, after), messages in zip(sent, sent[1:], requests[1:], strict=False):
        known = [*show(before), *show((messages[-2],))]
        assert stays_in_order(show(after)[:-1], known)
        cut = planned.window.cut
        if cut is not None and cut.made_at >= len(messages) - 1:
            cuts += 1
            assert after[-1].text.startswith(SUMMARY_START)
            assert after[-1].text.endswith(messages[-1].text)
            assert KEPT_TITLE not in after[-1].texts or messages[cut.at].role is not Role.USER
        else:
            assert after[: len(before)] == before
        assert all(one.role != two.role for one, two in pairwise(after))
        assert sum(SUMMARY_START in one.text for one in after) == (cut is not None)
        assert sum(one.tokens for one in after) <= planned.limit
    assert cuts >= 3


def test_the_words_that_stay_stand_before_the_question_and_are_marked() -> None:
    """A cut in the midst of a turn keeps the user's words, which come before the closing line of the summary."""
    session = [system(), user("Look after the harbour.")]
    session += [assistant("All berths are read."), user("The gate stays closed."), *READING[:8]]
    session += [assistant("The gate is closed."), user("What next?" + fill("more", 400))]
    planned, sent = forward(session, replace(POLICY, overflow_strategy=OverflowStrategy.SUMMARIZE))
    assert planned.window.cut is not None
    last = sent[-1]
    assert last.texts[0].startswith(SUMMARY_START)
    assert last.texts[-1] == session[-1].text
    assert last.texts[-2] == SUMMARY_END
    assert last.texts[1:3] == (KEPT_TITLE, "The gate stays closed.")
    assert last.taken_in == (session[3].raw,)


@pytest.mark.parametrize(
    "session",
    [
        pytest.param([system(), user("Go."), *READING], id="the newest is a result"),
        pytest.param(
            [system(), user("Go."), assistant(fill("long", 900)), *chat(20)[1:]], id="the first answer is too long"
        ),
    ],
)
def test_else_the_summary_follows_the_task_statement(session: list[Message]) -> None:
    planned, sent = forward(session)
    assert planned.window.cut is not None
    assert sent[1].role is Role.USER
    assert SUMMARY_START in sent[1].text


def test_a_user_who_writes_before_the_answer_moves_no_summary() -> None:
    """The request with the results has the summary already: one behind them would change what was forwarded."""
    session, cuts = [system(), user("Go.")], 0
    for number in range(12):
        session += step("read", {"path": f"gate_{number}"}, fill(f"gate {number}", 400))
        planned, before = forward(session)
        again, after = forward([*session, user("What next?")])
        if planned.window.cut is not None and planned.window.cut == again.window.cut:
            cuts += planned.window.cut.made_at == len(session)
            assert after[: len(before)] == before
    assert cuts >= 3


def test_a_summary_behind_the_part_to_summarise_forbids_to_ask_behind_that_part() -> None:
    session = chat(TURNS)
    planned, _ = next(found for found in map(forward, (session[:n] for n in range(2, 120, 2))) if found[0].request)
    forwarded = apply(planned, POLICY, count=count, summary=NOTE).conversation
    cut = planned.window.cut
    assert planned.find_prefix(forwarded, cut.at) is None
