"""The vocabulary: steps, heads, sums."""

from itertools import pairwise

from hypothesis import given
from support.builders import assistant, call, conversation, function_result, result, session, system, transcripts, user

from rules.conversation import Decision, Message, Step, count_leading, split_steps, starts_step


def test_a_step_is_a_message_with_the_results_that_follow_it() -> None:
    """Calls and their results are one step; any other message is a step of its own."""
    messages = [system(), user(), assistant("a", call("1"), call("2")), result("1"), result("2"), assistant("b")]
    assert split_steps(messages) == (Step(0, 1), Step(1, 2), Step(2, 5), Step(5, 6))


def test_a_result_at_the_front_is_a_step() -> None:
    """What begins with a result still has no gap; nothing has no steps."""
    assert split_steps([result("1"), user()]) == (Step(0, 1), Step(1, 2))
    assert split_steps([]) == ()


@given(messages=transcripts())
def test_steps_cover_the_transcript(messages: tuple[Message, ...]) -> None:
    """Steps stand side by side from the first message to the last."""
    steps = split_steps(messages)
    assert [step.start for step in steps[:1]] == [0] * bool(messages)
    assert [step.stop for step in steps[-1:]] == [len(messages)] * bool(messages)
    assert all(left.stop == right.start and left.start < left.stop for left, right in pairwise(steps))


def test_only_results_do_not_start_a_step() -> None:
    """A tool result, of either kind, belongs to the step before it."""
    assert [starts_step(message) for message in (user(), assistant("a"), system(), result("1"), function_result())] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_only_system_and_developer_messages_lead() -> None:
    """The leading messages end where another role begins, whatever comes later."""
    assert count_leading([system(), system(role="developer"), user(), system()]) == 2
    assert count_leading([user(), system()]) == 0
    assert count_leading([system()]) == 1


def test_tokens_are_those_of_all_messages_and_of_what_stands_outside() -> None:
    """A conversation costs its messages and its fixed tokens."""
    messages = session(2)
    assert conversation(*messages, fixed_tokens=11).tokens == 11 + sum(message.tokens for message in messages)


def test_text_joins_the_segments() -> None:
    """Several segments read as lines of one text."""
    assert result("1", "a", "b").text == "a\nb"


def test_saved_tokens_may_be_negative() -> None:
    """A decision that had to add tokens says so."""
    assert Decision("pairing", "one call answered", 10, 16, 1, 2).saved_tokens == -6
