"""Reading an upstream's answer to the question for a summary."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict
from support.odd_json import ODD, dump
from upstreams.recording import write_note

from trimtab.proxy.summaries.calls import (
    MAX_ANSWER_BYTES,
    BusyError,
    EmptyError,
    NoNoteError,
    NoSummaryError,
    RefusedError,
    accept_note,
    accept_provided,
    read_answer,
    read_completion,
)
from trimtab.proxy.wire.answering import Completion, Question
from trimtab.proxy.wire.answers.usage import Usage
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.codec import UndecodableError
from trimtab.proxy.wire.messages.codec import MESSAGES
from trimtab.rules.summary.quoting import clean_note

NOTE = write_note("All went well so far.")


@dataclass
class Response:
    """A response of an upstream, as far as it is read."""

    body: bytes
    status: int = 200
    headers: CIMultiDict[str] = field(default_factory=CIMultiDict)

    @property
    def content(self) -> "Response":
        return self

    async def iter_any(self) -> AsyncIterator[bytes]:
        yield self.body


async def test_an_answer_is_read_to_its_end_if_that_is_not_too_far() -> None:
    assert await read_answer(Response(b"x" * MAX_ANSWER_BYTES)) == b"x" * MAX_ANSWER_BYTES
    with pytest.raises(NoSummaryError, match=r"^too long$"):
        await read_answer(Response(b"x" * (MAX_ANSWER_BYTES + 1)))
    stream = b"data: " + b"x" * MAX_ANSWER_BYTES  # it has many more bytes for the same text
    assert await read_answer(Response(stream)) == stream


@pytest.mark.parametrize("status", [429, 503, 529])
async def test_a_busy_upstream_says_when_it_may_be_asked_again(status: int) -> None:
    with pytest.raises(BusyError, match=f"^status {status}$") as raised:
        await read_answer(Response(b"temperature", status, CIMultiDict({"Retry-After": "7"})))
    assert raised.value.seconds == 7


def answer(content: object, finish_reason: str | None = "stop", **message: object) -> bytes:
    choice = {"message": {"content": content, **message}, "finish_reason": finish_reason}
    return orjson.dumps({"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 3}})


def judge(body: bytes, covered_tokens: int = 10_000) -> str:
    return accept_note(read_completion(200, body, CHAT, Question("m", 400)), covered_tokens, len)


PROVIDED = Completion("The harbour. [trimtab: x]", Usage(), note=b"{}")


def test_a_providers_note_is_accepted_if_it_fits() -> None:
    """Its bytes stay; what can be read of it is cleaned like any note."""
    found = accept_provided(PROVIDED, lambda note: 100 * len(note), 200)
    assert (found.by_model, found.note) == (True, b"{}")
    assert found.text == clean_note(PROVIDED.text) != PROVIDED.text


def _fail(_: bytes) -> int:
    raise UndecodableError


@pytest.mark.parametrize(
    ("completion", "weigh", "result", "reason"),
    [
        (PROVIDED, lambda _: 201, "rejected", "too long"),
        (PROVIDED, lambda _: 0, "rejected", "unreadable"),
        (PROVIDED, _fail, "rejected", "unreadable"),
        (Completion("", Usage(), was_cut=True), len, "empty", "no note"),
        (Completion("Hello.", Usage()), len, "refused", "status 200"),
    ],
)
def test_what_is_no_note_of_a_provider_says_what_it_is(completion, weigh, result, reason) -> None:
    """An answer of the model means that the upstream has no notes of its own."""
    with pytest.raises(NoSummaryError) as raised:
        accept_provided(completion, weigh, 200)
    assert (raised.value.result, str(raised.value)) == (result, reason)
    assert getattr(raised.value, "lacks_notes", False) is (reason == "status 200")
    assert getattr(raised.value, "was_cut", False) is completion.was_cut


@pytest.mark.parametrize(
    ("status", "body", "lacks"),
    [
        (404, b"{}", True),
        (405, b"", True),
        (501, b"", True),
        (400, b'{"error":{"message":"compaction: Extra inputs are not permitted"}}', True),
        (422, b"{}", True),
        (400, b'{"error":{"message":"prompt is too long: 9 tokens > 8 maximum"}}', False),
        (401, b"{}", False),
        (500, b"{}", False),
    ],
)
def test_which_refusals_say_that_there_are_no_notes(status: int, body: bytes, *, lacks: bool) -> None:
    with pytest.raises(RefusedError) as raised:
        read_completion(status, body, MESSAGES, Question("m", 400), MESSAGES.provider_note)
    assert raised.value.lacks_notes is lacks


def test_a_note_is_accepted_as_it_was_written() -> None:
    """The thinking before it is left out. The cost of the note is the reported one."""
    assert judge(answer(NOTE)) == judge(answer(f"<think>So.</think>\n{NOTE}\n")) == NOTE
    assert read_completion(200, answer(NOTE), CHAT, Question("m", 400)).usage == Usage(9, 3)


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
    completion = read_completion(200, answer(text), CHAT, Question("m", 400))
    if reason is None:
        assert accept_note(completion, 10_000, len, enough_tokens=40) == text
    else:
        with pytest.raises(NoNoteError, match=reason):
            accept_note(completion, 10_000, len, enough_tokens=40)


def test_a_note_must_be_shorter_than_what_it_stands_for() -> None:
    assert judge(answer(NOTE), len(NOTE) + 1) == NOTE
    with pytest.raises(NoNoteError, match="does not shrink"):
        judge(answer(NOTE), len(NOTE))


@given(st.binary(max_size=40) | st.builds(lambda odd: dump({"choices": odd, "usage": odd}), ODD | st.lists(ODD)))
def test_anything_else_is_an_error_of_ours(body: bytes) -> None:
    """For any bytes, the result is a note or an error that says that there is none."""
    with pytest.raises(NoSummaryError):
        judge(body)


@pytest.mark.parametrize(
    ("status", "message", "form", "is_unclear", "is_final"),
    [
        (400, "Unsupported parameter: temperature", "temperature", False, False),
        (200, "Unsupported parameter: temperature", "temperature", False, False),
        (404, "no such parameter: temperature", "temperature", False, False),
        (400, "Bad request", None, True, False),
        *((status, "Oops", None, False, False) for status in (413, 500)),
        (422, "Oops", None, True, False),
        (201, "Oops", None, False, True),
        (403, "temperature", None, False, True),
        (401, "temperature", None, False, True),
        (400, "maximum context length is 8192 tokens, you requested 9000 tokens, lower max_tokens", None, False, False),
    ],
)
def test_a_refusal_says_what_to_change(
    status: int, message: str, form: str | None, *, is_unclear: bool, is_final: bool
) -> None:
    """Its length, its credential and its rate are no parameters, whatever the text names."""
    with pytest.raises(RefusedError) as caught:
        read_completion(status, orjson.dumps({"error": {"message": message}}), CHAT, Question("m", 400, 0.2))
    assert (caught.value.form, caught.value.is_unclear, caught.value.is_final) == (form, is_unclear, is_final)
