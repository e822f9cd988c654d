"""A prompt's tokens by section."""

from dataclasses import replace
from functools import partial

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

from trimtab.rules.conversation import Conversation, Message, Role
from trimtab.rules.pipeline.order import apply, plan
from trimtab.rules.policy import MEMORY_TAGS, Policy
from trimtab.rules.summary.request import Summary
from trimtab.rules.text.markers import GO_ON, INTRODUCTION, SUMMARY_END
from trimtab.rules.tokens.sections import (
    CURRENT,
    NO_MARKS,
    SECTIONS,
    SUMMARY,
    TASK,
    Marks,
    Part,
    Sections,
    count_messages,
    count_parts,
    count_sections,
    find_current,
    find_in_message,
    find_marks,
    list_parts,
    share_excess,
)
from trimtab.rules.window.cut_candidates import SUMMARY_FRAME_TOKENS

POLICY = Policy(context_window=4000, completion_reserve=400, summary_min_steps=2, prices=FREE)
FIND = partial(find_marks, tags=MEMORY_TAGS, count=count)
BLOCK = "<relevant_context>" + fill("memory", 50) + "</relevant_context>"
CLIENTS = (
    "This session is being continued from a previous conversation that ran out of context. It was about a harbour."
)


def sections_of(talk: Conversation) -> Sections:
    return count_sections(talk, FIND)


@given(transcripts(), st.sets(st.integers(0, 9)), st.integers(0, 9), st.booleans())
def test_what_was_counted_of_the_first_messages_changes_nothing(messages, marked, number, is_other) -> None:
    """Whether they are those that the transcript begins with, or others."""
    texts = (BLOCK, f"{INTRODUCTION}\nWork.\n{SUMMARY_END}", CLIENTS)
    said = tuple(
        replace(message, texts=(*message.texts, texts[index % 3])) if index in marked else message
        for index, message in enumerate(messages)
    )
    earlier = said[:number]
    if is_other and earlier:
        earlier = (replace(earlier[0], tokens=earlier[0].tokens + 1), *earlier[1:])
    assert count_messages(said, FIND, count_messages(earlier, FIND)) == count_messages(said, FIND)


@given(transcripts(), st.integers(0, 200), st.floats(0.05, 20) | st.integers(1, 2), st.sets(st.integers(0, 9)))
def test_the_sections_add_up_to_the_request_at_any_ratio(messages, fixed, ratio, marked) -> None:
    """Nothing is left out, nothing is counted twice, and nothing is lost by rounding."""
    texts = (BLOCK, f"{INTRODUCTION}\nWork.\n{SUMMARY_END}", CLIENTS)
    said = [
        replace(message, texts=(*message.texts, texts[index % 3])) if index in marked else message
        for index, message in enumerate(messages)
    ]
    talk = conversation(*said, fixed_tokens=fixed)
    sections = sections_of(talk)

    assert sections.tokens == talk.tokens
    assert sections.scale(ratio).tokens == round(ratio * talk.tokens)
    assert min(sections) >= 0
    assert min(sections.scale(ratio)) >= 0


def test_each_message_belongs_to_its_section() -> None:
    """Only leading messages count as system, and only the last user message as current."""
    messages = (
        system(),
        system(role="developer"),
        user("Hello."),
        assistant("Yes.", call("1")),
        result("1", "done"),
        system("Be quick."),
        user("And now?"),
        assistant("Wait."),
    )
    tokens = [message.tokens for message in messages]
    sections = sections_of(conversation(*messages, fixed_tokens=11))

    assert sections == Sections(
        system=11 + tokens[0] + tokens[1],
        recent=sum(tokens[2:6]) + tokens[7],
        current=tokens[6],
    )


def test_memory_is_that_of_users_and_of_later_system_messages() -> None:
    """In leading system messages and in results, tags are text like any other."""
    block = count(BLOCK)
    messages = (system(BLOCK), user(f"{BLOCK} Hello."), assistant(BLOCK, call("1")), result("1", BLOCK), system(BLOCK))
    talk = conversation(*messages, user(f"Go on. {BLOCK}"))
    sections = sections_of(talk)

    assert sections.memory == 3 * block
    assert sections.current == talk.messages[-1].tokens - block
    assert sections.system == talk.messages[0].tokens


def test_memory_within_a_summary_belongs_to_the_summary() -> None:
    summary = f"{INTRODUCTION}\n{BLOCK}\n{SUMMARY_END}"

    assert find_marks(f"a {BLOCK} {summary} {BLOCK} b", MEMORY_TAGS, count) == Marks(2 * count(BLOCK), count(summary))
    assert find_marks(summary.removesuffix(SUMMARY_END), MEMORY_TAGS, count).memory == 0
    assert find_marks("</b> [a]", MEMORY_TAGS, count) is NO_MARKS


def test_a_providers_own_note_is_a_summary() -> None:
    """Trimtab's or the client's, if it stands alone. What the model said in the same message is recent."""
    note = Message(Role.ASSISTANT, keeps_before=True, tokens=30)
    caller = replace(assistant(None, call("1")), keeps_before=True, tokens=40)
    said = replace(assistant("On."), keeps_before=True)
    talk = conversation(system(), note, user("Go on."), said, caller, result("1", "a"), user("Go on."))

    for section in (sections_of(talk).summary, count_parts(talk, FIND, format_tokens=0).summary):
        assert section == 30
    assert find_in_message(note, FIND) == Marks(0, 30)


def test_a_summary_of_trimtabs_own_stands_apart() -> None:
    """It is counted without the user's own words, which stay in their sections."""
    talk = conversation(*session(40, call_tokens=40, result_tokens=60), user("Really?"), *session(12)[2:])
    policy = replace(POLICY, keep_user_tokens=400)
    planned = plan(talk, policy, count=count)
    text = fill("summary", 60)
    forwarded = apply(planned, policy, count=count, summary=Summary(text, by_model=True)).conversation
    sections = sections_of(forwarded)

    assert count(text) < sections.summary < count(text) + SUMMARY_FRAME_TOKENS
    assert sections.tokens == forwarded.tokens
    assert sections.current >= count("Really?")


def test_the_current_message_is_the_clients_last_one() -> None:
    ours = replace(user(GO_ON), raw=b"")
    assert find_current([user("a"), user("b"), assistant("c"), ours]) == 1
    assert find_current([system(), assistant("c"), ours]) is None
    assert find_current([]) is None


# A prompt's tokens by speaker and kind.


@given(transcripts(), st.integers(0, 100), st.integers(0, 100), st.floats(0.05, 20))
def test_the_parts_add_up_to_the_request_as_the_sections_do(messages, tools, rest, ratio) -> None:
    talk = conversation(*messages, fixed_tokens=tools + rest)
    parts, sections = count_parts(talk, FIND, format_tokens=rest), count_sections(talk, FIND)

    assert parts.tokens == talk.tokens
    assert parts.scale(ratio).tokens == sections.scale(ratio).tokens == round(ratio * talk.tokens)
    assert (parts.tools, parts.format) == (tools, rest)
    assert (parts.memory, parts.summary) == (sections.memory, sections.summary)
    assert min(parts) >= 0


def test_each_message_belongs_to_its_speaker() -> None:
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


# What would have to shrink, and by how much.


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=len(SECTIONS)), st.floats(0.01, 1))
def test_what_is_asked_adds_up_to_the_excess(sizes, share) -> None:
    """No part is asked for more than it has, and none is named that need not shrink."""
    parts = [Part(what, section, size) for (what, section), size in zip(SECTIONS.items(), sizes, strict=False)]
    excess = max(int(share * sum(sizes)), 1)
    shared = share_excess(parts, excess)

    assert sum(part.by_tokens for part in shared) == excess
    assert all(0 < part.by_tokens <= part.tokens for part in shared)


def test_the_largest_part_is_named_first_and_the_summary_last() -> None:
    summary = f"{INTRODUCTION}\n{fill('work', 900)}\n{SUMMARY_END}"
    talk = conversation(
        system(fill("rule", 300)),
        user(f"Mend it.\n{summary}"),
        assistant(None, call("1")),
        result("1", fill("log", 400)),
        user(fill("And this?", 100)),
    )
    named = [part.what for part in share_excess(list_parts(talk, FIND), talk.tokens)]

    assert named[:3] == ["the newest tool results", "the system messages at the beginning", "the last user message"]
    assert named[-1] == SUMMARY
    (first,) = share_excess(list_parts(talk, FIND), 150)
    assert (first.what, first.section, first.by_tokens) == ("the newest tool results", "recent", 150)


def test_what_the_head_has_too_much_is_asked_of_its_own_user_message() -> None:
    for what, others in ((TASK, [CURRENT]), (CURRENT, [])):
        parts = [Part(name, SECTIONS[name], 900) for name in (*others, "the newest tool results")]
        shared = share_excess([*parts, Part(what, SECTIONS[what], 100)], 50, head_tokens=50)
        assert [(part.what, part.by_tokens) for part in shared] == [(what, 50)]
