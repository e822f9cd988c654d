"""Calls and their results."""

import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from support.builders import (
    IMAGE,
    IMAGE_LINE,
    assistant,
    call,
    conversation,
    count,
    function_result,
    result,
    shown,
    system,
    transcripts,
    user,
    valid_transcripts,
    write_all,
)
from support.checker import check_pairing
from support.steps import count_steps

from trimtab.rules.conversation import Decision, Message, Origin, Role, Shape
from trimtab.rules.results.pairing import MAX_NAMED, Unpaired, describe_unpaired, find_unpaired, pair_tool_calls
from trimtab.rules.text.markers import ACKNOWLEDGEMENT, NO_RESULT, RESULT_HEADER
from trimtab.rules.tokens.messages import count_message


def pair(*messages: Message) -> tuple[Message, ...]:
    return pair_tool_calls(conversation(*messages), count=count).conversation.messages


@given(messages=valid_transcripts())
def test_a_valid_transcript_stays(messages: tuple[Message, ...]) -> None:
    before = conversation(*messages)
    assert pair_tool_calls(before, count=count).conversation is before


def test_an_open_call_is_answered() -> None:
    """With its id, after the results that there are. A valid transcript stays."""
    head = (user(), assistant(None, call("1"), call("2")), result("2"))
    outcome = pair_tool_calls(conversation(*head, fixed_tokens=3), count=count)
    assert outcome.conversation.messages[:3] == head
    assert write_all(outcome.conversation.messages[3:]) == [{"role": "tool", "content": NO_RESULT, "tool_call_id": "1"}]
    tokens = conversation(*head, fixed_tokens=3).tokens
    reason = "1 calls answered, 0 results dropped, 0 results moved"
    assert outcome.decisions == (Decision("pairing", reason, tokens, tokens + 4 + count(NO_RESULT), 1, 3),)


def test_a_result_without_call_is_dropped() -> None:
    """Where the user's side says something else, and only behind an answer it becomes a message of the user."""
    ask, answer = assistant(None, call("1")), result("1")
    assert pair(user(), result("9"), ask, answer, result("1", "again"), result(None)) == (user(), ask, answer)
    late, ask, again = result("9", "late"), assistant(None, call("1")), assistant(None, call("2"))
    for before in ((user(),), (ask, result("1")), (user(), ask, result("1"))):
        assert pair(*before, late, result("9")) == pair(*before)
    assert pair(user(), ask, user("wait"), again, result("1", "late")) == pair(user(), ask, user("wait"), again)


def test_a_turn_of_results_without_a_call_becomes_a_message_of_the_user() -> None:
    """At the beginning too: a client that drops its oldest messages has dropped their calls. Nothing else says it."""
    rules, ask, answer, said = system("rules"), assistant(None, call("1")), result("1"), assistant("Done.")
    messages = (rules, result("8", "eight"), result("9", "nine"), ask, answer, said, result("7", "late"))
    outcome = pair_tool_calls(conversation(*messages), count=count)

    sent = outcome.conversation.messages
    first, late = ({"role": "user", "content": f"{RESULT_HEADER}{text}"} for text in ("eight\n\nnine", "late"))
    assert write_all(sent) == [*write_all([rules]), first, *write_all([ask, answer, said]), late]
    assert [message.role for message in (sent[1], sent[5])] == [Role.TOOL, Role.TOOL]  # so they are shortened as such
    assert sent[1].tokens == count_message(sent[1].as_said(), count)
    assert outcome.decisions[0].reason == (
        "0 calls answered, 0 results dropped, 0 results moved, 3 results written as text"
    )
    assert (outcome.decisions[0].first_changed, outcome.decisions[0].messages) == (1, 3)


def test_between_such_results_and_the_users_words_the_assistant_says_a_line() -> None:
    """Once for each turn, and only where roles must take turns and such a line can be written."""
    first = (system(), result("9", "nine"), system("note"))
    words = (user("one"), result("8", "dropped"), user("two"), assistant("so"))
    sent = pair(*first, *words)
    assert sent[:3] == pair(*first)
    said = write_all(sent[3:4])
    assert (said, sent[4:]) == ([{"role": "assistant", "content": ACKNOWLEDGEMENT}], (words[0], *words[2:]))

    asked = (user(), replace(assistant("so"), has_reasoning=True), result("9", "nine"), user("and?"))
    for shape in (Shape(alternates=False), Shape(seals_reasoning=True)):
        before = replace(conversation(*asked), shape=shape)
        assert len(pair_tool_calls(before, count=count).conversation.messages) == len(asked)
    assert len(pair(*asked)) == len(asked) + 1


def test_results_that_became_a_message_have_a_hash_of_their_own() -> None:
    """Or a session would get the summary of another one. Of an image a line stays."""
    digests = {pair(result("8", text), assistant("so"))[0].digest for text in ("a", "b", "")}
    assert len({*digests, pair(shown("8", IMAGE), assistant("so"))[0].digest}) == 4
    (made, _) = pair(shown("8", IMAGE), assistant("so"))
    assert (made.media, made.texts[-1]) == ((), IMAGE_LINE)


def test_a_result_goes_behind_the_nearest_call() -> None:
    """Messages in between come after it. Once the model has gone on, a late result answers no call."""
    ask, answer, note, words = assistant(None, call("1")), result("1"), system("note"), user("wait")
    outcome = pair_tool_calls(conversation(user(), ask, note, words, answer), count=count)
    assert outcome.conversation.messages == (user(), ask, answer, note, words)
    assert outcome.decisions[0].reason == "0 calls answered, 0 results dropped, 1 results moved"
    assert outcome.decisions[0].first_changed == 2
    far, near = assistant("far", call("1")), assistant("near", call("1"))
    first, second = result("1", "first"), result("1", "second")
    assert pair(user(), far, near, first, second) == (user(), far, second, near, first)
    ask = assistant(None, call("1"))
    early = (user(), ask, user("wait"), assistant("so be it"))
    assert pair(*early, result("1"))[:-1] == pair(*early)
    ask, words, answer = assistant(None, call("1")), assistant("words"), result("1")
    assert pair(user(), ask, words, answer) == (user(), ask, answer, words)
    early, later = assistant(None, call("1")), assistant(None, call("3"))
    assert pair(user(), early, user("wait"), later, result("1", "late"))[5].text == NO_RESULT


def test_results_without_an_id_stay_in_place() -> None:
    """If as many as calls are left stand behind them, or they name its tool. A call that is left gets an answer."""
    ask = assistant(None, call("1"), call("2"), call("3"))
    messages = (user(), ask, result("", "a"), result("2", "b"), result(None, "c"), assistant("so"))
    outcome = pair_tool_calls(conversation(*messages), count=count)
    assert outcome.decisions == ()
    assert write_all(outcome.conversation.messages) == write_all(messages)
    assert [message.answers for message in outcome.conversation.messages[2:5]] == ["1", "2", "3"]
    assert find_unpaired(messages) is None
    ask = assistant(None, call("1", "read"), call("2", "grep"), call("3", "grep"))
    found, other, text = result(None, "a", name="grep"), result("", "b", name="grep"), result(None, "c", name="read")
    outcome = pair_tool_calls(conversation(user(), ask, found, other, text), count=count)
    assert outcome.decisions == ()
    assert [message.answers for message in outcome.conversation.messages[2:]] == ["2", "3", "1"]
    sent = pair(user(), ask, found, text)
    assert [(message.answers, message.text) for message in sent[2:]] == [("2", "a"), ("1", "c"), ("3", NO_RESULT)]


def test_a_result_with_the_id_of_no_call_gets_that_of_its_call() -> None:
    """As the call has it, also if that is a number. Its text and all else stay."""
    ask, foreign = assistant(None, call("1"), call("2")), result("x", "a")
    outcome = pair_tool_calls(conversation(user(), ask, result("2", "b"), foreign), count=count)
    assert write_all(outcome.conversation.messages[3:]) == [{"role": "tool", "content": "a", "tool_call_id": "1"}]
    tokens = conversation(user(), ask, result("2", "b"), foreign).tokens
    reason = "0 calls answered, 0 results dropped, 0 results moved, 1 results renamed"
    assert outcome.decisions == (Decision("pairing", reason, tokens, tokens, 1, 3),)
    assert write_all(pair(user(), assistant(None, call("")), foreign)[2:]) == write_all([foreign])
    ask = replace(assistant(), tool_calls=(replace(call("1"), id_json=b"1"),))
    (made,) = pair(user(), ask)[2:]
    assert (made.answers, made.answers_json) == ("1", b"1")


def test_a_result_with_the_id_of_an_answered_call_answers_the_next_one() -> None:
    """Some clients write one id twice, or that of the turn before; also behind other messages."""
    ask, later = assistant(None, call("1"), call("2")), assistant(None, call("3"))
    answered = (user(), ask, result("1"), result("2"))
    sent = pair(user(), ask, result("1", "a"), result("1", "b"), result("1", "c"))
    assert [(message.answers, message.text) for message in sent[2:]] == [("1", "a"), ("2", "b")]
    assert [(message.answers, message.text) for message in pair(*answered, later, result("2", "x"))[5:]] == [("3", "x")]
    ask, known = assistant(None, call("3")), result("3", "known")
    assert [message.text for message in pair(user(), ask, user("wait"), result("x", "a"))[2:]] == ["a", "wait"]
    assert pair(user(), ask, result("x"), user("wait"), known) == (user(), ask, known, user("wait"))


def test_what_may_be_a_result_stays_and_answers_a_call() -> None:
    """In the legacy or an unknown role, unless it has calls of its own, or the calls were not read."""
    ask, other = assistant(None, call("1", "read"), call("2", "f")), Message(Role.OTHER, ("x",))
    for messages in ((user(), ask, function_result(), other), (user(), ask, other, function_result())):
        assert write_all(pair(*messages)) == write_all(messages)
    assert pair(user(), ask, other)[:3] == (user(), ask, other)
    assert [message.text for message in pair(user(), ask, other)[3:]] == [NO_RESULT]
    assert pair(user(), ask, user("wait"), other)[2].text == NO_RESULT
    ask, other = assistant(None, call("1")), Message(Role.OTHER, ("x",), tool_calls=(call("2"),))
    messages = (user(), ask, result("1"), other, result("2"), assistant("done"))
    assert pair(*messages) == messages
    assert pair(user(), ask, other, result("2"))[2].text == NO_RESULT
    ask = replace(assistant(), has_unread_calls=True)
    messages = (user(), ask, result("1"), result(None))
    assert pair(*messages) == messages
    assert pair(user(), ask, user("so"), result("1")) == (user(), ask, user("so"))


IDS = st.one_of(st.sampled_from(["a", "b", "", "c0", "c1"]), st.none())
STEPS = st.lists(st.lists(st.tuples(st.sampled_from(["a", "b", ""]), IDS, st.booleans()), min_size=1, max_size=4))


@given(steps=STEPS)
def test_no_text_is_lost_if_each_step_has_as_many_results_as_calls(
    steps: list[list[tuple[str, str | None, bool]]],
) -> None:
    """Unless an id says that a result is another call's. They keep their order, and those without an id their bytes."""
    messages = [user()]
    for number, step in enumerate(steps):
        calls = [call(f"{own}{number}", f"tool{at}") for at, (own, _, _) in enumerate(step)]
        messages.append(assistant("so", *calls))
        for at, (own, answers, is_own) in enumerate(step):
            answered = f"{own}{number}" if is_own else None if answers is None else f"?{answers}"
            messages.append(result(answered, f"{number} {at}", name=None if is_own else f"tool{at}"))
    before = conversation(*messages)
    outcome = pair_tool_calls(before, count=count)
    sent = outcome.conversation.messages
    assert [(message.text, message.raw) for message in sent] == [(message.text, message.raw) for message in messages]
    assert all(not message.edited or before.answers for message, before in zip(sent, messages, strict=True))
    assert check_pairing(write_all(sent)) == []


def test_pairing_is_linear_in_calls_however_they_are_ordered() -> None:
    """Results in reverse order and many calling messages in a row: twice as many calls take about twice the steps."""
    counts = []
    for number in (200, 400):
        calls = [call(str(index)) for index in range(number)]
        reverse = conversation(assistant(None, *calls), *(result(str(index), "x") for index in reversed(range(number))))
        callers = conversation(*(assistant(None, item) for item in calls))
        steps = [lambda before=before: pair_tool_calls(before, count=count) for before in (reverse, callers)]
        counts.append([count_steps(step) for step in steps])
    assert all(large < 2.2 * small for small, large in zip(*counts, strict=True))


@given(messages=transcripts())
def test_what_is_unpaired_is_what_a_repair_would_change(messages: tuple[Message, ...]) -> None:
    outcome, unpaired = pair_tool_calls(conversation(*messages), count=count), find_unpaired(messages)
    if not outcome.decisions:
        assert unpaired is None
        return
    answered, dropped, written = (
        int(found[1]) if (found := re.search(rf"(\d+) {what}", outcome.decisions[0].reason)) else 0
        for what in ("calls answered", "results dropped", "results written as text")
    )
    assert (answered, dropped + written) == (len(unpaired.calls), len(unpaired.results))
    assert unpaired.calls or unpaired.results or unpaired.misplaced or unpaired.misnamed
    repaired = find_unpaired(outcome.conversation.messages)
    assert repaired is None


def test_a_description_names_elements_and_no_text() -> None:
    """Each once for each kind of mistake; a unit of several by its first and last."""
    asks = assistant(None, call("1"), call("2"))
    messages = (user(), asks, result("2"), result("9"), user("wait"), result("1"), assistant(None, call("3")))

    assert find_unpaired(messages) == Unpaired(calls=(6,), results=(3,), misplaced=(5,))
    assert find_unpaired((user(), asks, result("2"), result("1"))) is None
    origins = [Origin(0, 1), Origin(1, 4), Origin(4, 5, 0), Origin(4, 5, 1), None]
    said = describe_unpaired(Unpaired(calls=(1, 1), results=(2, 3), misplaced=()), origins, "input")

    assert said.startswith(
        "The tool calls and results of this request are not paired: 2 calls have no result (input[1-3]);"
        " 2 results have no call (input[4]). Send exactly one result for each call"
    )
    one = describe_unpaired(Unpaired((), (), misplaced=(0,)), origins, "messages")
    assert "1 result is not right after its call (messages[0])." in one
    many = [Origin(number, number + 1) for number in range(MAX_NAMED + 2)]
    for more, end in (0, ""), (2, " and 2 more"):
        unpaired = Unpaired((), tuple(range(MAX_NAMED + more)), ())
        assert f"messages[{MAX_NAMED - 1}]{end})" in describe_unpaired(unpaired, many, "messages")
