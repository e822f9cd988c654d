"""Fuzzes what the proxy reads from an upstream's responses: streams, and the context windows of models.

Laws: nothing raises. The tap reads the same from a response, however it is split into chunks. The tap keeps a bounded
number of bytes.
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from functools import partial

from fuzzing.answers import write_answer, write_models
from fuzzing.choices import Choices
from fuzzing.stream_events import write_messages_event, write_responses_event, write_stream
from support.bounds import bounded
from support.dialects.spoken.chat import CHAT
from support.dialects.spoken.messages import MESSAGES
from support.dialects.spoken.responses import RESPONSES

from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.models.discovery import MAX_WINDOW_TOKENS, MIN_WINDOW_TOKENS, read_models, read_props
from trimtab.proxy.wire.answering import Question
from trimtab.proxy.wire.answers.tap import PIECE_BYTES, Tap
from trimtab.proxy.wire.answers.usage import MAX_TOKENS, Usage
from trimtab.proxy.wire.codec import Codec, UndecodableError


def fuzz_stream(data: bytes) -> None:
    """Feed one chat completion."""
    _fuzz_stream(CHAT.codec, write_answer, data)


def fuzz_responses_stream(data: bytes) -> None:
    """Feed one response of Responses."""
    write = partial(write_stream, write_event=write_responses_event, keys=("type", "delta", "item", "usage", "error"))
    _fuzz_stream(RESPONSES.codec, write, data)


def fuzz_messages_stream(data: bytes) -> None:
    """Feed one message."""
    write = partial(write_stream, write_event=write_messages_event, keys=("type", "delta", "index", "usage", "error"))
    _fuzz_stream(MESSAGES.codec, write, data)


def _fuzz_stream(codec: Codec, write: Callable[[Choices], bytes], data: bytes) -> None:
    """Feed one response, whole and in pieces, with the normal bounds or with narrow ones."""
    choices = Choices(data)
    is_stream = not choices.happens(64)
    sizes = [1 + choices.below(1 + 16 * choices.below(16)) for _ in range(1 + choices.below(8))]
    narrow = choices.happens(64)
    body = write(choices)
    whole, parts = (Tap.of(codec, is_stream=is_stream) for _ in range(2))
    with bounded(max_event_bytes=200, max_held_bytes=600) if narrow else nullcontext():
        whole.feed(body)
        for piece in _cut(body, sizes):
            parts.feed(piece)
            if narrow:
                _check_bounds(parts, max(sizes))
        for tap in (whole, parts):
            tap.finish()
    assert (whole.usage or Usage()) == (parts.usage or Usage()), "another usage in pieces"
    assert whole.text_chars == parts.text_chars, "another text in pieces"
    assert whole.count_completion(count_by_heuristic) == parts.count_completion(count_by_heuristic), "other tokens"
    for tokens in (whole.usage.prompt_tokens, whole.usage.completion_tokens) if whole.usage else ():
        assert tokens is None or 0 <= tokens <= 4 * MAX_TOKENS, "usage out of bounds"
    for keeps_all in (False, True):
        _check_first_event(codec, body, sizes, keeps_all=keeps_all)
    codec.write_event(200, body)
    codec.write_event(500, body)
    with suppress(UndecodableError):
        codec.read_completion(body)
    codec.find_refused(Question("m", 400, 0.2), body)


def _check_first_event(codec: Codec, body: bytes, sizes: list[int], *, keeps_all: bool) -> None:
    """No line of a stream's beginning is lost, and its first event is the same in pieces and can be read.

    Only what has no data may pass something: comments, and events that nobody would dispatch.
    """
    whole, parts = (codec.hold_first_event(keeps_all=keeps_all) for _ in range(2))
    assert _sort_lines(whole.feed(body) + whole.held) == _sort_lines(body), "lines are lost"
    fed = passed = b""
    for piece in _cut(body, sizes):
        if parts.is_done:
            break
        fed += piece
        passed += parts.feed(piece)
    assert _sort_lines(passed + parts.held) == _sort_lines(fed), "lines are lost in pieces"
    assert whole.data == parts.data, "another first event in pieces"
    codec.read_refusal(200, whole.data or body)
    codec.read_refusal(400, body)


def _sort_lines(stream: bytes) -> tuple[list[bytes], list[bytes]]:
    """The lines with data in order, and all lines in any order."""
    lines = stream.split(b"\n")
    return [line for line in lines if line.startswith(b"data:")], sorted(lines)


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
    for tokens in (*windows.by_model.values(), windows.every, windows.find("m"), read_props(body).every):
        assert tokens is None or type(tokens) is int, "a window that is not a number"
        assert tokens is None or MIN_WINDOW_TOKENS <= tokens <= MAX_WINDOW_TOKENS, "a window out of bounds"
