"""Pins: which results get one, what it says, and how it is appended."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from support.builders import (
    assistant,
    call,
    conversation,
    count,
    fill,
    function_result,
    result,
    session,
    shown,
    system,
    user,
)
from support.tool_steps import step

from trimtab.rules.conversation import Message
from trimtab.rules.pipeline.appended import GOAL_CHARS, LONG_TOKENS, Pin, Pins, find_goal, fit_pins, pin_results
from trimtab.rules.policy import Policy
from trimtab.rules.results.work import Allowance, LargeWorkError, Work
from trimtab.rules.text.markers import START
from trimtab.rules.window.room import Cap

LONG = fill("out", LONG_TOKENS)
CALLS = (call("a"), call("b"))
TODO = step("TodoWrite", {"todos": [{"content": "Run it", "status": "in_progress"}]})


def find(*messages: Message) -> dict[int, str]:
    """The pins by the index of their results; the system message is the first."""
    pins = Pins(1).extend([system(), *messages], Policy(pin_instruction=True), Work(count))
    assert all(pin.at == at and pin.tokens == count(f"\n{pin.line}") for at, pin in pins.items())
    return {at: pin.line for at, pin in pins.items()}


def test_a_long_step_gets_one_pin_behind_its_last_result() -> None:
    """The results count together. The goal is the newest before the step, and the list is known up to the step."""
    half = fill("out", LONG_TOKENS // 2)
    steps = [assistant(None, *CALLS), result("a", half), result("b", half)]
    line = '[trimtab: reminder of the user\'s goal: "Mend it."'
    assert find(user("Mend it."), *steps) == {4: f"{line}]"}
    assert find(user("Mend it."), *TODO, *steps) == {6: f'{line}; open item of the task list: "Run it"]'}
    assert find(user("Mend it."), *steps, *TODO, user("Now test it.")) == {4: f"{line}]"}
    assert list(find(user("Mend it."), assistant(None, *CALLS), result("a", LONG), result("b", ""))) == [4]
    assert find(user("Go."), user("Mend it."), user("<system-reminder>x</system-reminder>"), *steps).popitem()[1] == (
        f"{line}]"
    )


@pytest.mark.parametrize(
    "messages",
    [
        [assistant(None, CALLS[0]), result("a", LONG[: len(LONG) // 2])],
        [assistant(None, *CALLS), result("a", LONG)],
        [assistant(None, *CALLS), result("a", LONG), replace(result("b", "aborted"), raw=b"")],
        [assistant(None, CALLS[0]), shown("a", b'{"type":"image"}')],
        [result("a", LONG)],
        [assistant("x"), function_result(LONG)],
    ],
    ids=["short", "open", "aborted", "image", "orphan", "legacy"],
)
def test_other_steps_get_none(messages: list[Message]) -> None:
    """Short ones, ones with a call that the client has not answered, and results without a text."""
    assert find(user("Mend it."), *messages) == {}


def test_without_a_goal_there_is_no_pin() -> None:
    assert find(assistant(None, CALLS[0]), result("a", LONG)) == {}


PIN = Pin(2, "[pin]", 5)
MESSAGES = (user(), assistant(None, call("a")), result("a", "one", "two"), user("And now?"))


def test_the_last_text_ends_with_the_pin() -> None:
    """The decision tells the tokens that were added. All else is the same."""
    before = conversation(*MESSAGES)
    outcome = pin_results(before, [PIN], shift=0)
    sent = outcome.conversation.messages
    assert sent[2].texts == ("one", "two\n[pin]")
    assert [sent[at] is MESSAGES[at] for at in range(4)] == [True, True, False, True]
    (decision,) = outcome.decisions
    assert (decision.rule, decision.saved_tokens, decision.messages, decision.first_changed) == ("pin", -5, 1, 2)
    assert outcome.conversation.tokens == before.tokens + 5


def test_a_pin_that_is_there_already_is_not_repeated() -> None:
    once = pin_results(conversation(*MESSAGES), [PIN], shift=0).conversation
    assert pin_results(once, [PIN], shift=0).conversation is once
    empty = conversation(*MESSAGES[:2], replace(MESSAGES[2], texts=()))
    assert pin_results(empty, [PIN], shift=0).conversation is empty


def test_a_capped_result_keeps_its_pin_if_there_is_room() -> None:
    messages = (*MESSAGES[:2], result("a", "word " * 400))
    pins = {2: PIN}
    assert fit_pins([Cap(2, 60)], pins, messages) == ([Cap(2, 55)], pins)
    assert fit_pins([Cap(2, 42)], pins, messages) == ([Cap(2, 42)], {})
    assert fit_pins([Cap(0, 42)], pins, messages) == ([Cap(0, 42)], pins)


MEMORY = ("relevant_context",)


@pytest.mark.parametrize(
    ("text", "goal"),
    [
        ("Mend the\n  build.", "Mend the build."),
        ("<relevant_context>He likes tea.</relevant_context>\nMend it.", "Mend it."),
        ("Mend it.<system-reminder>Be brief.</system-reminder>", "Mend it."),
        ("<environment_context>\n<cwd>/r</cwd>\n</environment_context>", ""),
        ("[tool: read_file] def f(): pass", ""),
        ("Tool result for call_1:\nok", ""),
        ("<tool_response>ok</tool_response>", ""),
        ("Observation: 3 files", ""),
        ("Tools are rusty; order new ones.", "Tools are rusty; order new ones."),
        ("This session is being continued from a previous conversation that ran out of context. Summary:", ""),
        ("?!", ""),
        ("", ""),
        ("\n" * 2000 + "Mend it.", "Mend it."),
    ],
)
def test_only_the_users_own_words_are_a_goal(text: str, goal: str) -> None:
    assert find_goal(user(text), MEMORY) == goal


def test_texts_of_several_parts_are_judged_one_by_one() -> None:
    """A client's part before or after the user's does not count. Other roles have no goals."""
    message = user("", b'{"type":"text","text":"<tool_result>x</tool_result>"}', b'{"type":"text","text":"Go on."}')
    assert find_goal(message, MEMORY) == "Go on."
    assert find_goal(assistant("I will."), MEMORY) == ""


@given(text=st.text() | st.sampled_from(["a" * 500, f"x {START}end of quotation]", "End of trimtab's summary. x"]))
def test_a_goal_is_one_short_line_without_markers(text: str) -> None:
    goal = find_goal(user(text), MEMORY)
    assert len(goal) <= GOAL_CHARS + 1
    assert len(goal.splitlines()) <= 1
    assert START not in goal


def test_each_message_is_read_once() -> None:
    pins, read, messages = Pins(1), list[int](), session(3)
    pins._add = lambda index, *_: read.append(index)  # type: ignore[method-assign]
    for stop in (4, 2, len(messages), len(messages)):
        pins.extend(messages[:stop], Policy(), Work(count))
    assert read == [*range(1, len(messages))]


@pytest.mark.parametrize("messages", [[user(LONG)], [assistant(None, CALLS[0]), result("a", LONG)]])
def test_large_texts_are_announced(messages: list[Message]) -> None:
    """The caller may then do the work in a thread."""
    with pytest.raises(LargeWorkError):
        Pins(0).extend(messages, Policy(), structs.replace(Work(count), allowance=Allowance(100)))
