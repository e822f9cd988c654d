"""Calls and their results."""

import sys

import pytest
from hypothesis import given
from support.builders import (
    assistant,
    call,
    conversation,
    count,
    function_result,
    result,
    system,
    transcripts,
    user,
    valid_transcripts,
    write_all,
)

from rules.conversation import Decision, Message, Origin
from rules.results.pairing import MAX_NAMED, Unpaired, describe_unpaired, find_unpaired, pair_tool_calls
from rules.text.markers import NO_RESULT


def pair(*messages: Message) -> tuple[Message, ...]:
    """The messages after pairing."""
    return pair_tool_calls(conversation(*messages), count=count).conversation.messages


@given(messages=valid_transcripts())
def test_a_valid_transcript_stays(messages: tuple[Message, ...]) -> None:
    """A valid transcript is returned as the same object."""
    before = conversation(*messages)
    assert pair_tool_calls(before, count=count).conversation is before


def test_an_open_call_is_answered() -> None:
    """A call without a result gets one that says so, with the call's id, after the results that there are."""
    head = (user(), assistant(None, call("1"), call("2")), result("2"))
    outcome = pair_tool_calls(conversation(*head, fixed_tokens=3), count=count)
    assert outcome.conversation.messages[:3] == head
    assert write_all(outcome.conversation.messages[3:]) == [{"role": "tool", "content": NO_RESULT, "tool_call_id": "1"}]
    tokens = conversation(*head, fixed_tokens=3).tokens
    reason = "1 calls answered, 0 results dropped, 0 results moved"
    assert outcome.decisions == (Decision("pairing", reason, tokens, tokens + 4 + count(NO_RESULT), 1, 3),)


def test_a_result_without_call_is_dropped() -> None:
    """Results without a call are dropped. A second result for the same call is dropped, too."""
    ask, answer = assistant(None, call("1")), result("1")
    assert pair(user(), result("9"), ask, answer, result("1", "again"), result(None)) == (user(), ask, answer)


def test_a_result_moves_behind_its_call() -> None:
    """A message that the client put between a call and its result comes after them, system messages too."""
    ask, answer, note, words = assistant(None, call("1")), result("1"), system("note"), user("wait")
    outcome = pair_tool_calls(conversation(user(), ask, note, words, answer), count=count)
    assert outcome.conversation.messages == (user(), ask, answer, note, words)
    assert outcome.decisions[0].reason == "0 calls answered, 0 results dropped, 1 results moved"
    assert outcome.decisions[0].first_changed == 2


def test_results_keep_their_order() -> None:
    """Parallel calls may be answered in any order."""
    messages = (user(), assistant(None, call("1"), call("2")), result("2"), result("1"))
    assert pair(*messages) == messages


def test_results_go_to_the_nearest_call() -> None:
    """If two assistant messages use the same id, the nearer call takes the first result."""
    far, near = assistant("far", call("1")), assistant("near", call("1"))
    first, second = result("1", "first"), result("1", "second")
    assert pair(user(), far, near, first, second) == (user(), far, second, near, first)


def test_one_message_may_use_an_id_twice() -> None:
    """Two calls with the same id in one message get two results."""
    ask = assistant(None, call("1"), call("1"))
    assert [message.text for message in pair(ask, result("1", "a"), result("1", "b"))] == ["", "a", "b"]
    assert [message.text for message in pair(ask, result("1", "a"))] == ["", "a", NO_RESULT]


def test_empty_ids_pair() -> None:
    """A result with an empty id, or without an id, answers a call with an empty id."""
    ask = assistant(None, call(""))
    assert pair(ask, result(None)) == (ask, result(None))
    assert pair(ask, result("")) == (ask, result(""))


def test_an_answered_stretch_is_closed() -> None:
    """Once the model has gone on, a late result is dropped, so the forwarded prefix does not change."""
    ask = assistant(None, call("1"))
    early = (user(), ask, user("wait"), assistant("so be it"))
    assert pair(*early, result("1")) == pair(*early)


def test_an_assistant_message_behind_another_closes_nothing() -> None:
    """Some clients write the text and the calls of one answer as two messages."""
    ask, words, answer = assistant(None, call("1")), assistant("words"), result("1")
    assert pair(user(), ask, words, answer) == (user(), ask, answer, words)


@pytest.mark.parametrize("messages", [(), (result("1"),), (result("1"), result(None))])
def test_nothing_is_not_made_of_something(messages: tuple[Message, ...]) -> None:
    """A transcript of results alone stays. An empty one would be no better; the upstream decides."""
    before = conversation(*messages)
    assert pair_tool_calls(before, count=count).conversation is before


def test_results_of_the_legacy_kind_stay() -> None:
    """The result of a legacy function call has no id and stays in its position."""
    messages = (user(), function_result(), assistant("a"))
    assert pair(*messages) == messages


def test_pairing_is_linear_in_calls_however_they_are_ordered() -> None:
    """Results in reverse order and many calling messages in a row: twice as many calls take about twice the steps."""
    steps = [_count_steps(number) for number in (2000, 4000)]
    assert all(large < 2.1 * small for small, large in zip(*steps, strict=True))


def _count_steps(number: int) -> list[int]:
    """Calls and returns of functions while `number` calls are paired: results in reverse order, and calls alone."""
    calls = [call(str(index)) for index in range(number)]
    reverse = conversation(assistant(None, *calls), *(result(str(index), "x") for index in reversed(range(number))))
    callers = conversation(*(assistant(None, item) for item in calls))
    counts = []
    for before in (reverse, callers):
        steps: list[None] = []
        sys.setprofile(lambda *_, told=steps: told.append(None))
        try:
            pair_tool_calls(before, count=count)
        finally:
            sys.setprofile(None)
        counts.append(len(steps))
    return counts


@given(messages=transcripts())
def test_what_is_unpaired_is_what_a_repair_would_change(messages: tuple[Message, ...]) -> None:
    """The numbers of calls and results are those of the repair. Only orphans alone are not repaired."""
    outcome, unpaired = pair_tool_calls(conversation(*messages), count=count), find_unpaired(messages)
    if not outcome.decisions:
        assert unpaired is None or len(unpaired.results) == len(messages)
        return
    assert unpaired is not None
    reason = outcome.decisions[0].reason
    assert reason.startswith(f"{len(unpaired.calls)} calls answered, {len(unpaired.results)} results dropped, ")
    assert unpaired.calls or unpaired.results or unpaired.misplaced
    repaired = find_unpaired(outcome.conversation.messages)
    assert repaired is None


def test_each_kind_of_mistake_has_its_indexes() -> None:
    """A call without a result, a result without a call, and a result that comes too late."""
    asks = assistant(None, call("1"), call("2"))
    messages = (user(), asks, result("2"), result("9"), user("wait"), result("1"), assistant(None, call("3")))

    assert find_unpaired(messages) == Unpaired(calls=(6,), results=(3,), misplaced=(5,))
    assert find_unpaired((user(), asks, result("2"), result("1"))) is None


def test_a_description_names_elements_and_no_text() -> None:
    """An element is named once for each kind; a unit of several elements by its first and last."""
    origins = [Origin(0, 1), Origin(1, 4), Origin(4, 5, 0), Origin(4, 5, 1), None]
    said = describe_unpaired(Unpaired(calls=(1, 1), results=(2, 3), misplaced=()), origins, "input")

    assert said.startswith(
        "The tool calls and results of this request are not paired: 2 calls have no result (input[1-3]);"
        " 2 results have no call (input[4]). Send exactly one result for each call"
    )
    one = describe_unpaired(Unpaired((), (), misplaced=(0,)), origins, "messages")
    assert "1 result is not right after its call (messages[0])." in one
    many = [Origin(number, number + 1) for number in range(MAX_NAMED + 2)]
    assert f"messages[{MAX_NAMED - 1}] and 2 more)" in describe_unpaired(
        Unpaired((), tuple(range(len(many))), ()), many, "messages"
    )
