"""Which results get a pin."""

from dataclasses import replace

import pytest
from support.builders import assistant, call, count, fill, function_result, result, shown, system, user
from support.tool_steps import step

from rules.conversation import Message
from rules.pipeline.pins.fold import LONG_TOKENS, Pins
from rules.policy import Policy
from rules.results.work import Allowance, LargeWorkError, Work

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


def test_an_empty_result_gets_the_pin() -> None:
    """It is the last result of a step with long output."""
    assert list(find(user("Mend it."), assistant(None, *CALLS), result("a", LONG), result("b", ""))) == [4]


def test_without_a_goal_there_is_no_pin() -> None:
    assert find(assistant(None, CALLS[0]), result("a", LONG)) == {}


def test_the_leading_messages_decide_nothing() -> None:
    """They are not compared with the earlier transcript."""
    pins = Pins(2)
    messages = [system(), user("Mend it."), assistant(None, CALLS[0]), result("a", LONG)]
    assert pins.extend(messages, Policy(), Work(count)) == {}
    assert pins.size_bytes > 0


def test_large_texts_are_announced() -> None:
    """The caller may then do the work in a thread."""
    with pytest.raises(LargeWorkError):
        Pins(0).extend([user(LONG)], Policy(), replace(Work(count), allowance=Allowance(100)))
