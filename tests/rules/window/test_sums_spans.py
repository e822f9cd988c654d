"""Calls that a server answers in a later message."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import FREE, assistant, call, fill, fold, result, system, user

from trimtab.rules.conversation import Message, Role, Served
from trimtab.rules.policy import Policy
from trimtab.rules.window.sums import Spans, Sums

Messages = list[Message]


def _serve(message: Message, opens: str = "", closes: str = "", goes_on: str = "") -> Message:
    return replace(message, served=Served(tuple(opens), tuple(closes), tuple(goes_on)))


def _bind(messages: Messages) -> list[bool]:
    spans = Spans()
    return [spans.add(message) for message in messages]


A = assistant("a")


@pytest.mark.parametrize(
    ("messages", "bound"),
    [
        ([_serve(A, opens="1"), user(), _serve(A, closes="1"), user()], "0110"),
        ([_serve(A, opens="1"), result("c"), A, result("c"), _serve(A, closes="1"), A], "011110"),
        ([_serve(A, opens="1"), _serve(A, closes="1", opens="2"), _serve(A, closes="2"), A], "0110"),
        ([_serve(A, opens="12"), _serve(A, closes="2"), _serve(A, closes="1"), A], "0110"),
        ([_serve(A, closes="1"), A], "00"),
        ([_serve(A, opens="1"), user(), A, _serve(A, closes="1")], "0100"),
        ([_serve(A, opens="1"), user(), _serve(A, goes_on="1"), result("c"), _serve(A, closes="1"), A], "011110"),
        ([_serve(A, opens="1"), system("note"), A, _serve(A, closes="1"), A], "01110"),
    ],
)
def test_everything_up_to_the_result_belongs_to_the_call(messages: Messages, bound: str) -> None:
    """Until the model, after words of the user, no longer speaks of the call."""
    assert "".join(str(int(one)) for one in _bind(messages)) == bound


def _session(spans: list[tuple[int, int]], tokens: int) -> Messages:
    """Units of the server's calls with rounds of the client's calls in between, and words of the user after each."""
    messages = [system(), user("task")]
    for number, (rounds, nested) in enumerate(spans):
        key = chr(0x100 + number)
        for turn in range(rounds):
            asked = assistant("so", call(f"c{number}-{turn}"))
            inner = chr(0x1000 + number * 50 + turn) if nested else ""
            messages.append(_serve(asked, opens=(key if turn == 0 else "") + inner, goes_on=key if turn else ""))
            messages.append(result(f"c{number}-{turn}", fill("out", tokens)))
            if inner:
                messages.append(_serve(assistant("inner"), closes=inner, goes_on=key))
        messages.append(_serve(assistant("sum"), closes=key if rounds else ""))
        messages.append(user(f"next {number}"))
    return messages


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 1)), max_size=24),
    st.integers(10, 120),
    st.sampled_from([None, 3]),
)
def test_no_cut_parts_a_call_from_its_result(spans: list[tuple[int, int]], tokens: int, max_turns: int | None) -> None:
    """Neither the cut in effect nor the next one, nor a kept step, at any length of the transcript."""
    messages = _session(spans, tokens)
    policy = Policy(context_window=4000, completion_reserve=0, prices=FREE, max_turns=max_turns)
    for stop in range(2, len(messages) + 1):
        window = fold(messages[:stop], policy, limit=3000)
        bound = _bind(messages[:stop])
        places = [cut.at for cut in window.cuts] + [
            place for cut in window.cuts for step in cut.kept_steps for place in step
        ]
        places += [] if window.next_cut is None else [window.next_cut]
        assert not any(bound[place] for place in places if place < stop)


def test_long_sessions_of_such_units_are_cut() -> None:
    """The units are removed one by one, as any steps are."""
    messages = _session([(3, 0)] * 30, 100)
    window = fold(messages, Policy(context_window=4000, completion_reserve=0, prices=FREE), limit=3000)
    assert window.cuts


def test_a_call_that_is_never_answered_does_not_keep_everything() -> None:
    """Once the unit is longer than the room, it is given up."""
    messages = [system(), user("task"), _serve(assistant("so"), opens="1")]
    for number in range(120):
        messages += [assistant(fill("step", 20), call(f"c{number}")), result(f"c{number}", fill("out", 60))]
    window = fold(messages, Policy(context_window=4000, completion_reserve=0, prices=FREE), limit=3000)
    assert window.cuts


@pytest.mark.parametrize("excess", [0, 1])
def test_a_unit_is_one_step_as_long_as_it_alone_fits(excess: int) -> None:
    """However much there is before it."""
    unit = (_serve(assistant("so"), opens="1"), user(fill("x", 50)), _serve(A, closes="1"))
    sums = Sums(0, longest=sum(message.tokens for message in unit) - excess)
    for message in (user("task"), assistant(fill("before", 500)), *unit):
        sums.add(message)
    assert sums.steps(2, 5) == 1 + excess


def test_a_call_and_a_result_of_unknown_kinds_belong_together() -> None:
    """At the beginning, too, where there is no answer of the model yet."""
    unknown = Message(Role.OTHER, ("step",))
    sums = Sums(0)
    for message in (user("task"), _serve(unknown, opens="1"), _serve(unknown, closes="1")):
        sums.add(message)
    assert sums.open_step == 1
