"""The summary: asked for as data, spliced in as one message."""

from dataclasses import replace

import pytest
from builders import (
    IMAGE,
    assistant,
    call,
    conversation,
    count,
    fill,
    function_result,
    result,
    session,
    system,
    user,
    write_all,
)
from checker import check_transcript
from hypothesis import given
from hypothesis import strategies as st

from rules.conversation import Decision, Message
from rules.prefix import hash_prefixes
from rules.summarise import Summary, SummaryRequest, make_digest, request_summary, splice_summary, write_prompt
from rules.window import Cut, CutKind, Window

LONG = fill("step", 400)
SHORT = Summary("x", by_model=True)
BRIDGE = {"role": "assistant", "content": "Understood. I will go on from the summary above."}


def window(at: int, *, task: int | None = 1, kept: tuple[int, ...] = (), reserved: int = 200) -> Window:
    """A window with one cut."""
    return Window(task=task, cuts=(Cut(CutKind.SUMMARISE, at, reserved, kept, reserved + 160),))


def splice(messages: tuple[Message, ...], cut: Window, text: str = "All went well.") -> tuple[Message, ...]:
    """The messages with the text spliced in; what comes out is checked."""
    outcome = splice_summary(conversation(*messages), window=cut, summary=Summary(text, by_model=True), count=count)
    sent = outcome.conversation.messages
    assert check_transcript(write_all(messages), write_all(sent)) == []
    return sent


def test_without_a_cut_there_is_nothing_to_ask_and_nothing_to_splice() -> None:
    """No request, and the same conversation."""
    before = conversation(*session(3))
    assert request_summary(before.messages, Window(task=1)) is None
    assert (
        splice_summary(before, window=Window(task=1), summary=Summary("x", by_model=True), count=count).conversation
        is before
    )


def test_the_first_request_covers_all_between_head_and_cut() -> None:
    """The task is told apart from the span; there is nothing earlier."""
    messages = session(4)
    assert request_summary(messages, window(6)) == SummaryRequest(
        key=hash_prefixes(messages, [6])[0].hex(),
        base=None,
        task=messages[1],
        earlier=(),
        span=messages[2:6],
        max_tokens=200,
    )


def test_a_later_request_goes_on_from_the_cut_before() -> None:
    """Its base is the key of the previous cut; the span begins there."""
    messages = session(6)
    first, second = window(6), window(10)
    both = replace(second, cuts=(*first.cuts, *second.cuts))
    earlier = request_summary(messages, first)
    later = request_summary(messages, both)
    assert earlier is not None
    assert later is not None
    assert (later.base, later.earlier, later.span) == (earlier.key, messages[2:6], messages[6:10])


def test_a_summary_stands_behind_the_task_in_one_message() -> None:
    """System, then task and summary in the task's own message, then the tail as it came."""
    messages = session(6)
    sent = splice(messages, window(8))
    assert sent[0] is messages[0]
    assert sent[2:] == messages[8:]
    memo = sent[1]
    assert (memo.raw, memo.edited, memo.role) == (messages[1].raw, True, "user")
    assert memo.texts[0] == messages[1].text
    assert memo.texts[1].endswith("\n\nAll went well.")
    assert len(memo.texts) == 2


def test_a_decision_tells_what_was_spliced() -> None:
    """By rule, place and gain; a digest has its own name."""
    before = conversation(*session(6), fixed_tokens=9)
    cut = window(8).cuts[0]
    for rule, by_model in (("summarise", True), ("digest", False)):
        outcome = splice_summary(
            before, window=Window(task=1, cuts=(cut,)), summary=Summary("x", by_model=by_model), count=count
        )
        after = outcome.conversation.tokens
        assert outcome.decisions == (Decision(rule, "cut before message 8", before.tokens, after, 7, 1),)


def test_a_tail_that_begins_with_the_user_is_bridged() -> None:
    """One line of the assistant stands between summary and user, so that roles alternate."""
    messages = (system(), user("task"), assistant(LONG), user("next"), assistant("done"))
    sent = splice(messages, window(3))
    assert write_all(sent[2:3]) == [BRIDGE]
    assert sent[3:] == messages[3:]


def test_without_a_task_before_the_cut_the_summary_has_a_message_of_its_own() -> None:
    """Where no user spoke yet, a user message is made; a task behind the cut stays there."""
    messages = (assistant(LONG), assistant("more"), user("task"))
    sent = splice(messages, window(1, task=2))
    assert (sent[0].role, sent[0].raw, len(sent[0].texts)) == ("user", None, 1)
    assert sent[1:] == messages[1:]
    bare = splice((assistant(LONG), assistant("more")), window(1, task=None))
    assert bare[0].role == "user"


def test_system_messages_of_the_cut_part_stay_behind_the_summary() -> None:
    """None is lost, moved past another, or changed."""
    note, other = system("note"), system("other", role="developer")
    messages = (system(), user("task"), assistant(LONG), note, assistant("a"), other, assistant("b"), assistant("c"))
    sent = splice(messages, window(6))
    assert sent[2:] == (note, other, *messages[6:])


def test_kept_user_messages_follow_the_summary() -> None:
    """Verbatim, oldest first, under a line that says what they are; their media come along."""
    messages = (user("task"), assistant(LONG), user("one", IMAGE), assistant(LONG), user("two"), *session(2)[2:])
    memo = splice(messages, window(5, task=0, kept=(2, 4)))[0]
    assert memo.texts[0] == "task"
    assert memo.texts[3:] == ("one", "two")
    assert memo.media == (IMAGE,)


def test_a_longer_text_than_was_reserved_is_truncated() -> None:
    """The fold counted on the reserved size; a text beyond it keeps head and tail."""
    memo = splice(session(20), window(30, reserved=50), text=fill("long", 300))[1]
    body = memo.texts[1].partition("\n\n")[2]
    assert "omitted here" in body
    assert count(body) <= 50


def test_without_room_one_line_stands_in() -> None:
    """A reserve that is too small for any text leaves the bare fact."""
    memo = splice(session(8), window(12, reserved=20), text="All went well.")[1]
    assert memo.texts[1].endswith("Earlier messages were removed.")


def test_a_splice_that_would_cost_more_is_not_made() -> None:
    """Tokens never grow: the same conversation comes back."""
    before = conversation(system(), user("task"), assistant("a"), assistant("b"))
    assert (
        splice_summary(before, window=window(3), summary=Summary("x" * 400, by_model=True), count=count).conversation
        is before
    )


@pytest.mark.parametrize("first", [user("next"), assistant("next"), assistant(None, call("1"))])
def test_what_follows_the_tail_does_not_change_what_stands_before_it(first: Message) -> None:
    """A tail of a system message alone is forwarded in the same place once another message follows."""
    messages = (system(), user("task"), assistant(LONG), system("note"))
    short = splice(messages, window(3))
    more = (first, result("1")) if first.tool_calls else (first,)
    assert splice((*messages, *more), window(3))[: len(short)] == short


@given(tokens=st.integers(0, 400), kept=st.sets(st.sampled_from([2, 4, 6])), reserved=st.integers(0, 200))
def test_a_splice_costs_no_more_than_was_reserved(tokens: int, kept: set[int], reserved: int) -> None:
    """Between head and tail stands at most the reserve, the frame, and what was kept."""
    messages = (user("task"), *(part for turn in range(5) for part in (assistant(LONG), user(f"word {turn}"))))
    cut = window(9, task=0, kept=tuple(sorted(kept)), reserved=reserved)
    sent = splice(messages, cut, text=fill("said", tokens))
    head, tail = messages[0].tokens, sum(message.tokens for message in messages[9:])
    words = sum(messages[index].tokens for index in kept)
    assert sum(message.tokens for message in sent) <= head + tail + reserved + 160 + words


def _request(**changes: object) -> SummaryRequest:
    messages = session(6)
    found = request_summary(messages, window(10))
    assert found is not None
    return replace(found, **changes)  # type: ignore[arg-type]


def test_the_prompt_holds_the_transcript_between_fences() -> None:
    """Task, then each message under its title, all within a fence named by the key; the words asked for are half."""
    request = _request(key="ab" * 32)
    prompt = write_prompt(request, base_text=None, max_tokens=10_000, count=count)
    assert prompt.count("<transcript-abababababababab>") == 2
    fence = "transcript-abababababababab"
    body = prompt.split("<transcript-abababababababab>")[2].partition("</transcript-")[0]
    assert body.startswith(f"\n[{fence} TASK]\nMend the build of this project.\n\n[{fence} ASSISTANT]\nstep 0 ")
    assert [body.count(title) for title in (" ASSISTANT]\n", " TOOL RESULT]\n", 'CALL run {"path"')] == [4, 4, 4]
    assert "LIST OF WHAT CAME BEFORE" not in body
    assert "in at most 100 words" in prompt


def test_the_prompt_goes_on_from_the_summary_before() -> None:
    """With it, what it covered is not told again; without it, a digest tells of that."""
    request = _request(base="00", earlier=(user("earlier wish"), assistant(None, call("9", "look"))))
    with_base = write_prompt(request, base_text="So far so good.", max_tokens=10_000, count=count)
    without = write_prompt(request, base_text=None, max_tokens=10_000, count=count)
    assert "SUMMARY OF WHAT CAME BEFORE]\nSo far so good." in with_base
    assert "earlier wish" not in with_base
    assert "LIST OF WHAT CAME BEFORE" not in without
    assert " USER]\nearlier wish" in without


@given(max_tokens=st.integers(1000, 4000), sizes=st.lists(st.integers(1, 4000), min_size=1, max_size=12))
def test_the_prompt_keeps_its_limit(max_tokens: int, sizes: list[int]) -> None:
    """Whatever the span, the prompt fits; the newest message is in it, what has no room is in the list."""
    span = tuple(assistant(fill(f"said {number}.", size)) for number, size in enumerate(sizes))
    prompt = write_prompt(_request(span=span), base_text=fill("base", 3000), max_tokens=max_tokens, count=count)
    assert count(prompt) <= max_tokens * 1.05
    shown = prompt.count(" ASSISTANT]\n")
    assert (f"LIST OF WHAT CAME BEFORE]\n{len(span) - shown} earlier" in prompt) == (shown < len(span))


def test_braces_and_media_are_told_as_they_are() -> None:
    """Text is never read as a template; attachments are counted, not shown."""
    prompt = write_prompt(
        _request(span=(user("{transcript} {0}", IMAGE),), task=None), base_text=None, max_tokens=4000, count=count
    )
    assert " USER]\n{transcript} {0}\n(1 attachments)" in prompt
    assert " TASK]" not in prompt


@pytest.mark.parametrize("base_text", [None, fill("base", 30), fill("base", 900)])
@pytest.mark.parametrize("max_tokens", [24, 100, 200])
def test_a_digest_keeps_the_requests_limit(base_text: str | None, max_tokens: int) -> None:
    """It goes on from the summary before, where there is one, and fits."""
    text = make_digest(_request(max_tokens=max_tokens), base_text=base_text, count=count)
    assert count(text) <= max_tokens + 1  # the line break between the two
    assert text.startswith("base" if base_text else "8 earlier messag")


def test_a_result_without_a_call_does_not_hide_the_user_behind_it() -> None:
    """The acknowledgement stands before the user's message, though a legacy result opens the tail."""
    messages = (system(), user("task"), assistant(LONG), function_result("out"), user("next"))
    assert [message.role for message in splice(messages, window(3))] == [
        "system",
        "user",
        "function",
        "assistant",
        "user",
    ]
