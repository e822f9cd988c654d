"""A prompt's tokens by speaker and kind."""

from functools import partial

from hypothesis import given
from hypothesis import strategies as st
from support.builders import assistant, call, conversation, count, function_result, result, system, transcripts, user

from trimtab.rules.policy import MEMORY_TAGS
from trimtab.rules.tokens.sections import count_parts, count_sections, find_marks

FIND = partial(find_marks, tags=MEMORY_TAGS, count=count)


@given(transcripts(), st.integers(0, 100), st.integers(0, 100), st.floats(0.05, 20))
def test_the_parts_add_up_to_the_request_as_the_sections_do(messages, tools, rest, ratio) -> None:
    """Nothing is left out, and nothing is counted twice."""
    talk = conversation(*messages, fixed_tokens=tools + rest)
    parts, sections = count_parts(talk, FIND, format_tokens=rest), count_sections(talk, FIND)

    assert parts.tokens == talk.tokens
    assert parts.scale(ratio).tokens == sections.scale(ratio).tokens == round(ratio * talk.tokens)
    assert (parts.tools, parts.format) == (tools, rest)
    assert (parts.memory, parts.summary) == (sections.memory, sections.summary)
    assert min(parts) >= 0


def test_each_message_belongs_to_its_speaker() -> None:
    """Developers count as system, and functions as tools."""
    messages = (
        system(),
        system(role="developer"),
        user("Hello."),
        assistant("Yes.", call("1")),
        result("1", "done"),
        function_result("done"),
    )
    tokens = [message.tokens for message in messages]
    parts = count_parts(conversation(*messages), FIND, format_tokens=0)

    assert parts.system == tokens[0] + tokens[1]
    assert (parts.user, parts.assistant) == (tokens[2], tokens[3])
    assert parts.tool_results == tokens[4] + tokens[5]
