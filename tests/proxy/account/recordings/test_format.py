"""A recording is plain data, and a file of another program never passes for one."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace
from support.recordings import make_recording

from trimtab.proxy.account.recordings import format as recordings
from trimtab.proxy.account.recordings.format import (
    BadRecordingError,
    Binary,
    RecordedCall,
    RecordedSending,
    RecordedSummary,
    decode,
    encode,
    read_body,
    write_body,
)
from trimtab.proxy.catalogue.prices import Bill, Tokens
from trimtab.rules.conversation import Decision
from trimtab.rules.policy import Budget, Policy, SectionShares, ToolRule, Treatment

POLICY = Policy(
    sections=SectionShares(),
    tools=(ToolRule("read*", Treatment(Budget(64, 9), exempt_arguments=("*.md",))),),
    token_ratio=1.0000000000000002,
    ceiling_tokens=9,
)


@given(body=st.binary())
def test_any_body_is_the_same_after_it_was_recorded(body):
    sent = RecordedSending(write_body(body))
    recording = decode(encode(replace(make_recording(), sent=sent)))
    assert recording.sent_body == body
    assert read_body(write_body(body)) == body


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"sent": None},
        {"circumstances": replace(make_recording().circumstances, policy=POLICY, cold={"ab": "cut"})},
        {"circumstances": replace(make_recording().circumstances, cleaned=(Decision("drop_tools", "", 9, 3, 0, 0),))},
        {"summary": RecordedSummary("id", "digest", by_model=False, text="told"), "bill": Bill(Tokens(1, 2, 3, 4))},
        {"call": RecordedCall("m", "inline", "written", 1.5, 10, 20, Tokens(10, 0, 0, 20), 7), "circumstances": None},
    ],
    ids=["unchanged", "refused", "policy", "cleaned", "summary", "call"],
)
def test_a_recording_is_the_same_after_it_was_written(changes):
    """The policy, too: a ratio that differs in its last digit would plan otherwise."""
    recording = replace(make_recording(), **changes)
    assert decode(encode(recording)) == recording


def test_a_recording_of_an_older_trimtab_is_read():
    now = encode(make_recording())
    older = gzip.decompress(now).replace(b'"cache_adds":[]', b'"cache_adds":[],"cache_key":""')
    assert b"cache_key" in older
    assert decode(gzip.compress(older)) == decode(now)


def _with_body(body):
    """A recording whose client's body was written by somebody else."""
    written = gzip.decompress(encode(make_recording(body="BODY")))
    assert b'"BODY"' in written
    return gzip.compress(written.replace(b'"BODY"', body))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "ends too early"),
        (b"no gzip at all", "not compressed"),
        (encode(make_recording())[:-9], "ends too early"),
        (gzip.compress(b"{}"), "not a recording"),
        (gzip.compress(b'["' * 100_000), "not a recording"),
        (gzip.compress(b"\xff"), "not a recording"),
        (gzip.compress(b'{"version":2,"event":"secret"}'), "version 2"),
        (gzip.compress(b'{"version":1,"event":"secret"}'), "wrong form"),
        (_with_body(b'{"base64":"A"}'), "wrong form"),
    ],
    ids=["empty", "text", "cut off", "object", "deep", "no UTF-8", "version", "form", "base64"],
)
def test_another_file_is_refused_with_a_reason_that_quotes_nothing(content, told):
    with pytest.raises(BadRecordingError, match=told) as caught:
        decode(content)
    assert "secret" not in str(caught.value)


def test_figures_that_no_request_has_are_refused():
    """A time without a date, a number without bounds, sections that are none."""
    recording = make_recording()
    for changes in (
        {"at": 1e308},
        {"at": -1e15},
        {"at": float(10**12)},
        {"status": 10**30},
        {"cost": 2**64},
        {"seconds": 1e300},
        {"original_sections": (1,) * 5, "sent_sections": ()},
        {"original_sections": (1,) * 6, "sent_sections": (1,) * 6},
    ):
        with pytest.raises(BadRecordingError, match="out of bounds"):
            decode(encode(replace(recording, event=structs.replace(recording.event, **changes))))


def test_a_file_that_grows_without_bound_is_refused(monkeypatch):
    monkeypatch.setattr(recordings, "MAX_OPENED_BYTES", 1000)
    with pytest.raises(BadRecordingError, match="larger than"):
        decode(encode(make_recording(body="a" * 100_000)))


def test_the_text_of_a_conversation_is_not_shown_by_accident():
    recording = replace(make_recording(body="secret"), summary=RecordedSummary("", "", by_model=True, text="secret"))
    assert "secret" not in repr(replace(recording, sent=RecordedSending("secret")))
    assert "c2VjcmV0" not in repr(Binary("c2VjcmV0"))
