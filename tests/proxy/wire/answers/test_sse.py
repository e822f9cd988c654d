"""Server-sent events: what is held back of a stream."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.steps import count_steps

from trimtab.proxy.wire.answers.sse import (
    MAX_FIRST_EVENT_BYTES,
    MAX_FIRST_LINES,
    MAX_GREETINGS,
    EventReader,
    FirstEvent,
    read_events,
)


def _is_answer(line: bytes) -> bool:
    return b"surely" in line


def _feed(whole: bytes, cuts: list[int]) -> tuple[bytes, FirstEvent]:
    first, passed = FirstEvent(_is_answer), b""
    places = [0, *sorted(cut % (len(whole) + 1) for cut in cuts), len(whole)]
    for start, stop in pairwise(places):
        if first.is_done:
            return passed + bytes(first.held) + whole[start:], first
        passed += first.feed(whole[start:stop])
    return passed + bytes(first.held), first


@given(cuts=st.lists(st.integers(0, 200), max_size=8), ends=st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_the_first_event_is_found_wherever_the_stream_is_cut(cuts, ends):
    """Comments and events without data pass; not a byte is lost."""
    lines = [
        b": ping", b"", b"retry: 3000", b"", b"event: error", b"data: one", b"data:two", b"", b"data: [DONE]", b"",
        b"",
    ]  # fmt: skip
    whole = ends.join(lines)
    seen, first = _feed(whole, cuts)
    assert seen == whole
    assert first.is_done
    assert first.data == b" one\ntwo"


@given(cuts=st.lists(st.integers(0, 200), max_size=8), ends=st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_each_event_is_read_wherever_the_stream_is_cut(cuts, ends):
    """Whichever of the three line ends a server uses."""
    lines = [b"data: {}", b"", b": ping", b"event: a", b"data: 2", b"data:3", b"", b"id: 7", b"", b"data: 4", b"", b""]
    whole = ends.join(lines)
    reader = EventReader()
    places = [0, *sorted(cut % (len(whole) + 1) for cut in cuts), len(whole)]
    assert [data for start, stop in pairwise(places) for data in reader.feed(whole[start:stop])] == [
        b" {}", b" 2\n3", b" 4",
    ]  # fmt: skip


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_blank_lines_and_comments_cost_nothing_however_many_there_are(end: bytes) -> None:
    def read(lines: int) -> list[bytes]:
        idle = end * lines + (b": x" + end) * lines + (b":" + end + end) * lines
        reader = EventReader()
        return [*reader.feed(b"data: 1" + idle + b"data: 2" + idle), *reader.finish()]

    assert read(2) == read(10_000) == [b" 1", b" 2"]
    assert count_steps(lambda: read(10_000)) == count_steps(lambda: read(10))


def test_what_is_too_long_or_surely_an_answer_is_not_held():
    """It need not be complete, and does not count as an error."""
    first = FirstEvent(_is_answer)
    first.feed(b"data: " + b"x" * (MAX_FIRST_EVENT_BYTES + 1))
    assert (first.is_done, first.data) == (True, None)
    first = FirstEvent(_is_answer)
    assert first.feed(b"data: surely\n") == b""
    assert (first.is_done, first.data, bytes(first.held)) == (True, None, b"data: surely\n")


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_a_first_event_that_the_streams_end_ends_is_read(end):
    first = FirstEvent(_is_answer)
    first.feed(b"data: {}" + end)
    first.finish()
    assert (first.is_done, first.data) == (True, b" {}")


@given(cuts=st.lists(st.integers(0, 80), max_size=8))
def test_greetings_are_held_and_comments_pass_them(cuts):
    """The first event is the first that is not a greeting. Nothing is lost."""
    first, free = FirstEvent(_is_answer, is_greeting=lambda data: b"hello" in data), b""
    whole = b"event: a\ndata: hello\n\n: ping\n\ndata: hello again\n\n: ping\n\ndata: no\n\nrest"
    places = [0, *sorted(cut % (len(whole) + 1) for cut in cuts), len(whole)]
    for start, stop in pairwise(places):
        free += b"" if first.is_done else first.feed(whole[start:stop])
        if first.is_done:
            rest = whole[stop:]
            break
    assert first.data == b" no"
    assert free == b": ping\n\n: ping\n\n"
    assert bytes(first.held) + rest == whole.replace(b": ping\n\n", b"")


def test_a_stream_of_greetings_without_end_is_not_held() -> None:
    """Nor read on: reading each takes time, and a chunk may have thousands of them."""
    read: list[bytes] = []
    first = FirstEvent(_is_answer, is_greeting=lambda data: not read.append(data))
    few, many = b"data: hello\n\n" * (MAX_GREETINGS - 1), b"data: hello\n\n" * 10_000
    assert not first.is_greeted
    assert first.feed(few) == b""
    assert (first.is_done, first.is_greeted) == (False, True)
    assert first.feed(many) == b""
    assert (first.is_done, first.data, bytes(first.held)) == (True, None, few + many)
    assert len(read) == MAX_GREETINGS


@pytest.mark.parametrize(
    "line", [b"\n", b"\r", b"\r\n", b":\n", b"id: 1\n\n", b"event: a\n", b"data: x\n", b'data: "ping"\n\n']
)
def test_of_many_lines_at_once_few_are_looked_at_and_none_is_lost(line: bytes) -> None:
    """Whatever they are: looking at each takes time on the event loop."""

    def feed(lines: int) -> FirstEvent:
        first = FirstEvent(_is_answer, is_ping=lambda data: b"ping" in data)
        assert first.feed(line * lines) + first.held == line * lines
        return first

    some, many = 2 * MAX_FIRST_LINES, 40 * MAX_FIRST_LINES
    assert count_steps(lambda: feed(many)) == count_steps(lambda: feed(some))
    assert (feed(many).is_done, feed(many).data) == (True, None)


@pytest.mark.parametrize(
    "stream", [b"data: {}\n\ndata: 2\n\n", b"data: {}\r\n\r\ndata: 2\r\n\r\n", b": hi\n\ndata: {}\n\ndata: 2\n\n"]
)
def test_a_byte_order_mark_before_a_stream_is_no_part_of_it(stream):
    """The HTML standard has one passed over, wherever the chunks end."""
    marked = b"\xef\xbb\xbf" + stream
    assert read_events(marked) == [b" {}", b" 2"]
    for size in (1, 2, 3, 4, 100):
        reader, first = EventReader(), FirstEvent(_is_answer)
        pieces = [marked[at : at + size] for at in range(0, len(marked), size)]
        assert [data for piece in pieces for data in reader.feed(piece)] == [b" {}", b" 2"]
        passed = b"".join(b"" if first.is_done else first.feed(piece) for piece in pieces)
        assert first.data == b" {}"
        assert marked.startswith(passed + bytes(first.held))
