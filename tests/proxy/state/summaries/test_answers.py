"""Reading an upstream's answer to the question for a summary."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.odd_json import ODD, dump
from upstreams.recording import write_note

from proxy.state.summaries.answers import (
    MAX_ANSWER_BYTES,
    EmptyError,
    NoNoteError,
    RefusedError,
    accept_note,
    read_answer,
    read_completion,
)
from proxy.state.summaries.calls import NoSummaryError
from proxy.wire.answers.usage import Usage
from proxy.wire.chat.codec import CHAT

NOTE = write_note("All went well so far.")


@dataclass
class Response:
    """A response of an upstream, as far as it is read."""

    body: bytes
    status: int = 200

    @property
    def content(self) -> "Response":
        return self

    async def iter_any(self) -> AsyncIterator[bytes]:
        yield self.body


async def test_an_answer_is_read_to_its_end_if_that_is_not_too_far() -> None:
    assert await read_answer(Response(b"x" * MAX_ANSWER_BYTES), CHAT) == b"x" * MAX_ANSWER_BYTES
    with pytest.raises(NoSummaryError, match=r"^too long$"):
        await read_answer(Response(b"x" * (MAX_ANSWER_BYTES + 1)), CHAT)


@pytest.mark.parametrize(
    ("status", "is_final"), [(400, False), (413, False), (422, False), (500, False), (401, True), (201, True)]
)
async def test_a_refusal_says_whether_another_question_may_help(status: int, *, is_final: bool) -> None:
    """And which parameter the upstream names, but nothing else of its words."""
    body = b'{"error":{"message":"Unsupported parameter: temperature","param":"temperature"}}'
    with pytest.raises(RefusedError, match=f"^status {status}$") as raised:
        await read_answer(Response(body, status), CHAT)
    assert (raised.value.is_final, raised.value.parameter) == (is_final, "temperature")


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
