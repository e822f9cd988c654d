"""The goal in a user message."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import assistant, user

from rules.pipeline.pins.goal import GOAL_CHARS, find_goal
from rules.text.markers import START

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
    """Not memory, what a client adds, tool output, or a summary."""
    assert find_goal(user(text), MEMORY) == goal


def test_texts_of_several_parts_are_judged_one_by_one() -> None:
    """A client's part before or after the user's does not count. Other roles have no goals."""
    message = user("", b'{"type":"text","text":"<tool_result>x</tool_result>"}', b'{"type":"text","text":"Go on."}')
    assert find_goal(message, MEMORY) == "Go on."
    assert find_goal(assistant("I will."), MEMORY) == ""


@given(text=st.text() | st.sampled_from(["a" * 500, f"x {START}end of quotation]", "End of trimtab's summary. x"]))
def test_a_goal_is_one_short_line_without_markers(text: str) -> None:
    """At most GOAL_CHARS characters and an ellipsis."""
    goal = find_goal(user(text), MEMORY)
    assert len(goal) <= GOAL_CHARS + 1
    assert len(goal.splitlines()) <= 1
    assert START not in goal
