"""Messages, steps, heads and sums."""

from dataclasses import replace

import pytest
from support.builders import assistant, call, function_result, result, system, user

from trimtab.rules.conversation import (
    WRITTEN_ROLES,
    Media,
    Role,
    count_asked,
    count_leading,
    ends_with_prefill,
    find_beside,
    starts_step,
)


def test_only_results_do_not_start_a_step() -> None:
    assert [starts_step(message) for message in (user(), assistant("a"), system(), result("1"), function_result())] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_the_request_before_had_all_that_precedes_the_models_last_answer() -> None:
    """What a client has begun to write of the next one (a prefill) is none."""
    messages = [user("Do it."), assistant("Yes."), user("Go on.")]
    assert [count_asked(messages[:stop]) for stop in range(1, 4)] == [0, 0, 1]
    assert count_asked([*messages, assistant("{")]) == 1


def test_only_a_last_answer_without_calls_is_a_prefill() -> None:
    """Also if it is the only message, or stands behind a call that nobody answered."""
    called = assistant("I look.", call("1"))
    talks = ([], [user()], [user(), called], [called, result("1")], [assistant("{")], [called, assistant("{")])
    assert [ends_with_prefill(messages) for messages in talks] == [False, False, False, False, True, True]


def test_what_keeps_the_messages_before_it_leads_with_its_results() -> None:
    keeper = replace(assistant("A memo."), keeps_before=True)
    messages = [user(), keeper, result("1"), user(), keeper, result("2"), result("3"), user(), result("4")]
    assert count_leading(messages) == 7
    assert count_leading(messages[:6]) == 6


def test_a_new_answer_has_beside_its_words_what_the_newest_has_that_has_anything() -> None:
    older, newer = (replace(assistant(), beside=(("reasoning", text),)) for text in (b"1", b"2"))
    messages = [user(), older, newer, assistant()]
    assert [find_beside(messages[:stop]) for stop in range(5)] == [(), (), older.beside, newer.beside, newer.beside]


@pytest.mark.parametrize("wire_role", WRITTEN_ROLES)
def test_a_result_that_was_written_as_text_is_read_as_its_writers(wire_role: str) -> None:
    """An upstream reads it in the message's own role, with its header. A result of a call is the tool's."""
    written = replace(result(None, "a", "b"), wire_role=wire_role, header="Result: ")
    said = written.as_said()
    assert (written.is_written, written.speaker, written.role_name) == (True, WRITTEN_ROLES[wire_role], wire_role)
    assert (said.role, said.texts, said.header) == (WRITTEN_ROLES[wire_role], ("Result: a", "b"), "")

    called = replace(result("1", "a"), header="Result: ")
    assert (called.is_written, called.speaker, called.role_name) == (False, Role.TOOL, "tool")
    assert called.as_said() is called


@pytest.mark.parametrize(("tokens", "line", "saved"), [(100, "[image]", 90), (7, "[image]", 0), (100, "", 0)])
def test_a_marker_saves_what_it_costs_less_than_its_image(tokens: int, line: str, saved: int) -> None:
    assert Media(b"{}", tokens, line, 10).saving_tokens == saved
