"""A request's tokens by section."""

from dataclasses import fields, replace

from hypothesis import given
from hypothesis import strategies as st
from support.builders import (
    FREE,
    assistant,
    call,
    conversation,
    count,
    fill,
    function_result,
    result,
    session,
    system,
    transcripts,
    user,
)

from rules.pipeline.apply import apply
from rules.pipeline.make_plan import plan
from rules.policy import Policy
from rules.summary.request import Summary
from rules.tokens.sections import Sections, count_sections
from rules.window.cut_candidates import SUMMARY_FRAME_TOKENS

POLICY = Policy(context_window=4000, completion_reserve=400, summary_min_steps=2, prices=FREE)


@given(transcripts(), st.integers(0, 100), st.integers(0, 100))
def test_the_sections_add_up_to_the_request(messages, tools, rest) -> None:
    """Nothing is left out, and nothing is counted twice."""
    talk = conversation(*messages, fixed_tokens=tools + rest)
    sections = count_sections(talk, count, format_tokens=rest)

    assert sections.tokens == talk.tokens
    assert (sections.tools, sections.format) == (tools, rest)
    assert all(getattr(sections, section.name) >= 0 for section in fields(Sections))


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
    sections = count_sections(conversation(*messages), count, format_tokens=0)

    assert sections.system == tokens[0] + tokens[1]
    assert (sections.user, sections.assistant) == (tokens[2], tokens[3])
    assert sections.tool_results == tokens[4] + tokens[5]


def test_retrieved_memory_stands_apart() -> None:
    """It is the text between memory tags, with or without attributes, in any message."""
    block = '<relevant_context source="x">' + fill("memory", 50) + "</relevant_context>"
    talk = conversation(system("Be careful.\n" + block), user("<relevant_context>a</relevant_context> Hello."))
    sections = count_sections(talk, count, format_tokens=0)

    assert sections.memory == count(block) + count("<relevant_context>a</relevant_context>")
    assert sections.system == talk.messages[0].tokens - count(block)
    assert sections.tokens == talk.tokens


def test_a_summary_of_trimtabs_own_stands_apart() -> None:
    """It is counted without the user's own words in the same message."""
    talk = conversation(*session(40, call_tokens=40, result_tokens=60), user("Really?"), *session(12)[2:])
    policy = replace(POLICY, keep_user_tokens=400)
    planned = plan(talk, policy, count=count)
    text = fill("summary", 60)
    forwarded = apply(planned, policy, count=count, summary=Summary(text, by_model=True)).conversation
    sections = count_sections(forwarded, count, format_tokens=0)

    assert count(text) < sections.summary < count(text) + SUMMARY_FRAME_TOKENS
    assert sections.tokens == forwarded.tokens
