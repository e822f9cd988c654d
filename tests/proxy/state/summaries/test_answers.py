"""Reading an upstream's answer to the question for a summary."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.odd_json import ODD, dump
from upstreams.recording import write_note

from proxy.state.summaries.answers import EmptyError, NoNoteError, accept_note, read_completion
from proxy.state.summaries.calls import NoSummaryError
from proxy.wire.answers.usage import Usage
from proxy.wire.chat.codec import CHAT

NOTE = write_note("All went well so far.")


def answer(content: object, finish_reason: str | None = "stop", **message: object) -> bytes:
    """A completion with this content."""
    choice = {"message": {"content": content, **message}, "finish_reason": finish_reason}
    return orjson.dumps({"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 3}})


def judge(body: bytes, covered_tokens: int = 10_000) -> str:
    """The note in an answer, with tokens counted as characters."""
    return accept_note(read_completion(body, CHAT), covered_tokens, len)


def test_a_note_is_accepted_as_it_was_written() -> None:
    """The thinking before it is left out. The cost of the note is the reported one."""
    assert judge(answer(NOTE)) == judge(answer(f"<think>So.</think>\n{NOTE}\n")) == NOTE
    assert read_completion(answer(NOTE), CHAT).usage == Usage(9, 3)


@pytest.mark.parametrize(
    ("body", "result", "reason", "was_cut"),
    [
        (answer(None), "empty", "empty", False),
        (answer("<think>on and on", "length"), "empty", "empty", True),
        (answer(NOTE, tool_calls=[{"id": "c"}]), "empty", "empty", False),
        (b'{"choices":[]}', "empty", "empty", False),
        (answer("ok"), "rejected", "too few headings", False),
        (answer("ok", "length"), "rejected", "too few headings", True),
        (answer(NOTE, "content_filter"), "rejected", "refusal", False),
    ],
)
def test_what_is_no_note_says_what_it_is(body: bytes, result: str, reason: str, *, was_cut: bool) -> None:
    """The reason is one of the words of the metric and the log, and never the model's text."""
    with pytest.raises(NoNoteError) as raised:
        judge(body)
    assert (raised.value.result, str(raised.value), raised.value.was_cut) == (result, reason, was_cut)
    assert isinstance(raised.value, EmptyError) == (result == "empty")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x" * 40, None),
        ("x" * 39, "too few headings"),
        ("I cannot help with that. " * 9, "refusal"),
        ("## 1. Progress and decisions\nNone.\n## 2. Constraints and preferences\nNone.\n## 3. Remaining\nNone.",
         "nothing under its headings"),
    ],
)  # fmt: skip
def test_a_form_of_the_operators_own_needs_no_headings(text: str, reason: str | None) -> None:
    """The note must have a minimum of tokens. Every other flaw still counts."""
    completion = read_completion(answer(text), CHAT)
    if reason is None:
        assert accept_note(completion, 10_000, len, enough_tokens=40) == text
    else:
        with pytest.raises(NoNoteError, match=reason):
            accept_note(completion, 10_000, len, enough_tokens=40)


def test_a_note_must_be_shorter_than_what_it_stands_for() -> None:
    """A note of the same length saves nothing."""
    assert judge(answer(NOTE), len(NOTE) + 1) == NOTE
    with pytest.raises(NoNoteError, match="does not shrink"):
        judge(answer(NOTE), len(NOTE))


@given(st.binary(max_size=40) | st.builds(lambda odd: dump({"choices": odd, "usage": odd}), ODD | st.lists(ODD)))
def test_anything_else_is_an_error_of_ours(body: bytes) -> None:
    """For any bytes, the result is a note or an error that says that there is none."""
    with pytest.raises(NoSummaryError):
        judge(body)
