"""A tap on an answer: its bounds."""

from collections.abc import Sequence

import orjson
import pytest
from support.bounds import bounded

from proxy.wire.sse import MAX_EVENT_BYTES, EventReader
from proxy.wire.tap import MAX_HELD_BYTES, PIECE_BYTES, Piece, Tap
from proxy.wire.usage import Usage


def _read_event(data: bytes, usage: Usage | None) -> tuple[Usage | None, Sequence[Piece]]:
    """Events of a dialect that says no more than it must."""
    try:
        event = orjson.loads(data)
    except orjson.JSONDecodeError:
        return usage, ()
    tokens, text = event.get("tokens"), event.get("text")
    return usage if tokens is None else Usage(tokens), [Piece("text", text)] if text else ()


def _read(*chunks: bytes, **bounds: int) -> tuple[Usage | None, list[str]]:
    """The usage, and each text that is counted."""
    tap = Tap(_read_event, is_stream=True)
    with bounded(**bounds):
        for chunk in chunks:
            tap.feed(chunk)
        tap.finish()
    texts: list[str] = []
    tap.count_completion(lambda text: len(texts.append(text) or text))
    assert tap.text_chars == sum(map(len, texts))
    return tap.usage, texts


def _write(*events: dict[str, object]) -> bytes:
    return b"".join(b"data: " + orjson.dumps(event) + b"\n\n" for event in events)


def test_of_a_text_past_the_bound_the_tokens_sent_are_not_known() -> None:
    """What was not collected has no share in them."""
    tap = Tap(_read_event, is_stream=True)
    with bounded(max_held_bytes=PIECE_BYTES):
        tap.feed(_write(*[{"text": "x" * 8}] * 5))
        assert tap.find_sent_tokens(1000) is None


@pytest.mark.parametrize("size", [100, 1000])
def test_an_oversized_event_is_passed_over(size: int) -> None:
    """In one chunk or in many, of one line or of several; what follows is read again."""
    long_line = b'data: {"tokens":1,"x":"' + b"y" * 2000 + b'"}\n\n'
    many_lines = b'data: {"tokens":1,\n' + b'data: "x":1,\n' * 100 + b'data: "y":2}\n\n'
    body = long_line + many_lines + _write({"text": "behind"})
    pieces = [body[at : at + size] for at in range(0, len(body), size)]

    assert _read(*pieces, max_event_bytes=500) == (None, ["behind"])
    assert _read(body, max_event_bytes=500) == (None, ["behind"])


def test_the_tail_of_an_oversized_line_is_no_event() -> None:
    """A line is dropped to its end, also where a chunk happens to begin with `data:` in the middle of it."""
    assert _read(b"data: " + b"x" * 600, b'data: {"tokens":1}\n\n', max_event_bytes=500) == (None, [])


def test_memory_is_bounded() -> None:
    """An endless line, an endless event, an endless answer: each keeps no more than its bound and a chunk."""
    chunk = b"x" * (1024 * 1024)
    line, event, answer = (Tap(_read_event, is_stream=is_stream) for is_stream in (True, True, False))
    for _ in range(12):
        line.feed(chunk)
        event.feed(b"data:" + chunk + b"\n")
        answer.feed(chunk)
        for tap in (line, event, answer):
            events = tap._events or EventReader()
            held = len(tap._body) + len(events._rest) + sum(map(len, events._data))
            assert 0 < held <= MAX_EVENT_BYTES + len(chunk)
    answer.finish()
    assert (answer.usage, answer._body) == (None, b"")


def test_the_text_collected_is_bounded() -> None:
    """Past the bound no more text is kept, but the usage is still found."""
    assert MAX_HELD_BYTES > MAX_EVENT_BYTES
    body = _write(*[{"text": "x" * 8}] * 5, {"tokens": 7})

    assert _read(body, max_held_bytes=PIECE_BYTES + 10) == (Usage(7), ["x" * 16])


def test_a_long_line_in_small_chunks_is_never_copied() -> None:
    """Each piece is added to what is there: otherwise the time would go by the square of the line's length."""
    events = EventReader()
    events.feed(b"data: ")
    rest = events._rest
    for _ in range(1000):
        events.feed(b"x" * 64)
        assert events._rest is rest

    assert len(rest) == len(b"data: ") + 64_000
