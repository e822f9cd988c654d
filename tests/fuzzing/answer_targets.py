"""Fuzzes what the proxy reads from an upstream's responses: streams, and the context windows of models.

Laws: nothing raises. The tap reads the same from a response, however it is split into chunks. The tap keeps a bounded
number of bytes.
"""

from collections.abc import Iterator
from contextlib import nullcontext

from fuzzing.answers import write_answer, write_models
from fuzzing.choices import Choices
from support.bounds import bounded

from proxy.compaction.tokenizers.exact import count_by_heuristic
from proxy.state.models.discovery import MAX_WINDOW_TOKENS, MIN_WINDOW_TOKENS, read_models, read_props
from proxy.wire.answers.sse import FirstEvent
from proxy.wire.answers.tap import PIECE_BYTES, Tap
from proxy.wire.answers.usage import MAX_TOKENS
from proxy.wire.chat.answer import is_part_of_answer, read_answer


def fuzz_stream(data: bytes) -> None:
    """Feed one response, whole and in pieces, with the normal bounds or with narrow ones."""
    choices = Choices(data)
    is_stream = not choices.happens(64)
    sizes = [1 + choices.below(1 + 16 * choices.below(16)) for _ in range(1 + choices.below(8))]
    narrow = choices.happens(64)
    body = write_answer(choices)
    whole, parts = (Tap(read_answer, is_stream=is_stream) for _ in range(2))
    with bounded(max_event_bytes=200, max_held_bytes=600) if narrow else nullcontext():
        whole.feed(body)
        for piece in _cut(body, sizes):
            parts.feed(piece)
            if narrow:
                _check_bounds(parts, max(sizes))
        for tap in (whole, parts):
            tap.finish()
    assert whole.usage == parts.usage, "another usage in pieces"
    assert whole.text_chars == parts.text_chars, "another text in pieces"
    assert whole.count_completion(count_by_heuristic) == parts.count_completion(count_by_heuristic), "other tokens"
    for tokens in (whole.usage.prompt_tokens, whole.usage.completion_tokens) if whole.usage else ():
        assert tokens is None or 0 <= tokens <= 3 * MAX_TOKENS, "usage out of bounds"
    _check_first_event(body, sizes)


def _check_first_event(body: bytes, sizes: list[int]) -> None:
    """No byte of a stream's beginning is lost, and its first event is the same in pieces."""
    whole, parts = FirstEvent(is_part_of_answer), FirstEvent(is_part_of_answer)
    assert whole.feed(body) + whole.held == body, "bytes are lost"
    fed = passed = b""
    for piece in _cut(body, sizes):
        if parts.is_done:
            break
        fed += piece
        passed += parts.feed(piece)
    assert passed + parts.held == fed, "bytes are lost in pieces"
    assert whole.data == parts.data, "another first event in pieces"


def _cut(body: bytes, sizes: list[int]) -> Iterator[bytes]:
    """The body in pieces of these sizes, repeated as often as needed."""
    at = number = 0
    while at < len(body):
        yield body[at : at + sizes[number % len(sizes)]]
        at += sizes[number % len(sizes)]
        number += 1


def _check_bounds(tap: Tap, piece_bytes: int) -> None:
    """The tap keeps at most one piece more than the bounds, and one event more of the text."""
    events = tap._events
    held = len(tap._body) + (len(events._rest) + sum(map(len, events._data)) if events else 0)
    assert held <= 2 * (200 + piece_bytes + len(b"data:")), "more of an event is held than may be"
    assert tap._sample._held <= 600 + 40 * (200 + PIECE_BYTES), "more text is held than may be"


def fuzz_models(data: bytes) -> None:
    """Read one response to a question for context windows."""
    body = write_models(Choices(data))
    windows = read_models(body)
    for tokens in (*windows.by_model.values(), windows.every, windows.find("m"), read_props(body)):
        assert tokens is None or type(tokens) is int, "a window that is not a number"
        assert tokens is None or MIN_WINDOW_TOKENS <= tokens <= MAX_WINDOW_TOKENS, "a window out of bounds"
