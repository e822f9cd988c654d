"""Finding the usage of an answer that is not decoded: where it is sought, and what that costs."""

import time
from typing import Any
from unittest import mock

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.wire.answers.usage_scan import MAX_USAGE_BYTES, STRIDE_BYTES, UsageScan

NAMES = st.sampled_from(["usage", "response", "message", "x", 'a"usage', "\\usage", '"', "}", "\\"])
TEXTS = NAMES | st.sampled_from(['"usage":{', '\\"usage": {', 'say "usage', "a}{][", "\\\\", ": {"])
VALUES = st.recursive(
    st.integers(0, 9) | st.none() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=25,
)
UNITS = (
    b'"a":{"usage":{}},',
    b'"usage":{"input_tokens":1},',
    b'"response":{"usage":{}},',
    b"[]",
    b"[",
    b"[[[[[[[[]]]]]]]]",
    b'"",',
    b'\\"',
    b"\\\\",
    b'"',
    b"word ",
)
CPU_SECONDS = 0.5
"""For a megabyte. It takes less than 0.07 s; a search that is not linear takes many seconds."""


def scan(answer: bytes, size: int, *, is_event: bool = False) -> UsageScan:
    """The scan of an answer in pieces."""
    found = UsageScan(is_event=is_event)
    for at in range(0, len(answer), size):
        found.feed(answer[at : at + size])
    found.finish()
    return found


def find_usage(answer: dict[str, Any], *, is_event: bool) -> dict[str, Any] | None:
    """The usage of an answer, or of the response that an event carries."""
    whole = answer.get("response") if is_event else answer
    usage = whole.get("usage") if isinstance(whole, dict) else None
    return usage if isinstance(usage, dict) else None


@given(
    answer=st.dictionaries(NAMES, VALUES, max_size=6),
    is_loose=st.booleans(),
    is_event=st.booleans(),
    size=st.sampled_from([1, 3, 17, 1000]),
    stride_bytes=st.sampled_from([130, 200, STRIDE_BYTES]),
)
def test_what_is_found_is_what_a_decoder_finds_at_its_place(
    answer: dict[str, Any], size: int, stride_bytes: int, *, is_loose: bool, is_event: bool
) -> None:
    """However the answer is cut and written, and whatever else is called `usage` in it."""
    written = orjson.dumps(answer, option=orjson.OPT_INDENT_2 if is_loose else None)
    with mock.patch("trimtab.proxy.wire.answers.usage_scan.STRIDE_BYTES", stride_bytes):
        found = scan(written, size, is_event=is_event)
    told = None if found.value is None else orjson.loads(found.value)
    assert told == find_usage(answer, is_event=is_event)
    assert found.is_whole


@given(
    answer=st.binary(max_size=300) | st.text('{}[]":\\ usage,', max_size=300).map(str.encode), size=st.integers(1, 99)
)
def test_whatever_comes_is_read(answer: bytes, size: int) -> None:
    """An answer that is not JSON raises nothing."""
    assert isinstance(scan(answer, size).value, bytes | None)


def test_an_answer_that_breaks_off_is_not_whole() -> None:
    """Its usage is found if it is complete. One that is too long is not read."""
    answer = b'{"usage":{"a":1},"text":"x'
    assert (scan(answer, 7).value, scan(answer, 7).is_whole) == (b'{"a":1}', False)
    assert scan(answer[:15], 7).value is None
    long = b'{"usage":{"a":"%b"}}' % (b"x" * MAX_USAGE_BYTES)
    assert (scan(long, 999).value, scan(long, 999).is_whole) == (None, True)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("start", [b'{"a":[', b'{"a":"', b'{"response":{', b"{"])
def test_the_time_is_linear_whatever_the_answer_holds(start: bytes, unit: bytes) -> None:
    """Of members called usage, of brackets, quotation marks and escapes, open or closed."""
    answer = start + unit * (1_000_000 // len(unit))
    started = time.thread_time()
    scan(answer, STRIDE_BYTES)
    assert time.thread_time() - started < CPU_SECONDS
