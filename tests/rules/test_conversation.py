"""Messages, steps, heads and sums."""

from dataclasses import replace

import pytest
from support.builders import assistant, conversation, function_result, result, session, system, user

from trimtab.rules.conversation import (
    WRITTEN_ROLES,
    Decision,
    Media,
    Role,
    count_asked,
    count_leading,
    find_beside,
    starts_step,
)


def test_only_results_do_not_start_a_step() -> None:
    """A tool result, of either kind, belongs to the step before it."""
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


def test_only_system_and_developer_messages_lead() -> None:
    """The leading messages end where another role begins, whatever comes later."""
    assert count_leading([system(), system(role="developer"), user(), system()]) == 2
    assert count_leading([user(), system()]) == 0
    assert count_leading([system()]) == 1


def test_what_keeps_the_messages_before_it_leads_with_its_results() -> None:
    """The last such message counts."""
    keeper = replace(assistant("A memo."), keeps_before=True)
    messages = [user(), keeper, result("1"), user(), keeper, result("2"), result("3"), user(), result("4")]
    assert count_leading(messages) == 7
    assert count_leading(messages[:6]) == 6


def test_a_new_answer_has_beside_its_words_what_the_newest_has_that_has_anything() -> None:
    older, newer = (replace(assistant(), beside=(("reasoning", text),)) for text in (b"1", b"2"))
    messages = [user(), older, newer, assistant()]
    assert [find_beside(messages[:stop]) for stop in range(5)] == [(), (), older.beside, newer.beside, newer.beside]


def test_tokens_are_those_of_all_messages_and_of_what_stands_outside() -> None:
    """A conversation costs its messages and its fixed tokens."""
    messages = session(2)
    assert conversation(*messages, fixed_tokens=11).tokens == 11 + sum(message.tokens for message in messages)


def test_text_joins_the_segments() -> None:
    """Several segments are joined as lines of one text."""
    assert result("1", "a", "b").text == "a\nb"


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
    """Nothing if the part is no image, or is smaller."""
    assert Media(b"{}", tokens, line, 10).saving_tokens == saved


def test_saved_tokens_may_be_negative() -> None:
    """A decision that had to add tokens says so."""
    assert Decision("pairing", "one call answered", 10, 16, 1, 2).saved_tokens == -6
