"""Reading a copy of a response: the bounds of the tap."""

import gc
import weakref
from collections.abc import Sequence

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.bounds import bounded

import trimtab.proxy.wire.answers.tap as reading
from trimtab.proxy.wire.answers.sse import MAX_EVENT_BYTES, EventReader
from trimtab.proxy.wire.answers.tap import (
    LAST_CHUNKS,
    MAX_EVENTS,
    MAX_HELD_BYTES,
    MAX_SKIPPED_BYTES,
    PIECE_BYTES,
    Piece,
    ReadAnswer,
    Tap,
)
from trimtab.proxy.wire.answers.usage import Usage
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.codec import Codec
from trimtab.proxy.wire.dialects import CODECS


def _read_event(data: bytes, usage: Usage | None) -> tuple[Usage | None, Sequence[Piece]]:
    try:
        event = orjson.loads(data)
    except orjson.JSONDecodeError:
        return usage, ()
    tokens, text = event.get("tokens"), event.get("text")
    return usage if tokens is None else Usage(tokens), [Piece("text", text)] if text else ()


def _note() -> tuple[ReadAnswer, list[bytes]]:
    read: list[bytes] = []

    def note(data: bytes, usage: Usage | None) -> tuple[Usage | None, Sequence[Piece]]:
        read.append(data)
        return _read_event(data, usage)

    return note, read


def _read(*chunks: bytes, **bounds: int) -> tuple[Usage | None, list[str]]:
    tap = Tap(_read_event, is_stream=True)
    with bounded(**bounds):
        for chunk in chunks:
            tap.feed(chunk)
        tap.finish()
    texts: list[str] = []
    tap.count_completion(lambda text: len(texts.append(text) or text))
    if not bounds:
        assert tap.text_chars == sum(map(len, texts))
    return tap.usage, texts


def _write(*events: dict[str, object]) -> bytes:
    return b"".join(b"data: " + orjson.dumps(event) + b"\n\n" for event in events)


@pytest.mark.parametrize("size", [100, 1000])
def test_an_oversized_event_is_passed_over(size: int) -> None:
    """To its end, in one chunk or many, with one line or several. The events after it are read."""
    long_line = b'data: {"tokens":1,"x":"' + b"y" * 2000 + b'"}\n\n'
    many_lines = b'data: {"tokens":1,\n' + b'data: "x":1,\n' * 100 + b'data: "y":2}\n\n'
    body = long_line + many_lines + _write({"text": "behind"})
    pieces = [body[at : at + size] for at in range(0, len(body), size)]

    assert _read(*pieces, max_event_bytes=500) == (None, ["behind"])
    assert _read(body, max_event_bytes=500) == (None, ["behind"])
    assert _read(b"data: " + b"x" * 600, b'data: {"tokens":1}\n\n', max_event_bytes=500) == (None, [])


def test_a_sample_holds_all_up_to_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one piece more, it holds about half, and still knows how much there was."""
    monkeypatch.setattr(reading, "MAX_HELD_BYTES", 4 * (10 + PIECE_BYTES))
    for number, held in ((4, 40), (5, 30)):
        sample, counted = reading._Sample(), list[str]()
        for at in range(number):
            sample.add(Piece("text", f"{at}" * 10), len(f"{at}" * 10), 10)
        assert sample.count(lambda text, counted=counted: counted.append(text) or len(text)) == number * 10
        assert sum(map(len, counted)) == held


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
            searched = 0 if tap._scan is None else len(tap._scan._rest)
            held = len(tap._body) + searched + len(events._rest) + sum(map(len, events._data))
            assert held <= MAX_EVENT_BYTES + (0 if tap is answer else len(chunk))
    answer.finish()
    assert (answer.usage, answer._body, answer._scan) == (None, b"", None)


@pytest.mark.parametrize("size", [300, 30_000])
@pytest.mark.parametrize("is_stream", [True, False])
def test_the_tokens_of_a_long_text_are_reckoned_from_a_sample(size: int, *, is_stream: bool) -> None:
    """Within a tenth, in pieces of any size, even if the second half has twice as many tokens as the first."""
    chars = 600_000
    half = [{"text": letter * size} for letter in ("a ", "ab") for _ in range(chars // size // 4)]
    body = _write(*half) if is_stream else orjson.dumps({"text": "".join(event["text"] for event in half)})
    tap = Tap(_read_event, is_stream=is_stream)
    for at in range(0, len(body), 50_000):
        tap.feed(body[at : at + 50_000])
        searched = 0 if tap._scan is None else len(tap._scan._rest)
        assert len(tap._body) + searched + tap._sample._held <= MAX_HELD_BYTES * 2
    tap.finish()

    if is_stream:  # of a non-stream response only the beginning is kept
        assert tap.count_completion(_count) == pytest.approx(sum(_count(event["text"]) for event in half), rel=0.1)
    assert tap.text_chars == pytest.approx(sum(len(event["text"]) for event in half), rel=0.01)


def _count(text: str) -> int:
    return text.count(" ") + 2 * text.count("b")


def test_a_long_line_in_small_chunks_is_never_copied() -> None:
    """Each piece is appended. Otherwise the time would grow with the square of the line's length."""
    events = EventReader()
    events.feed(b"data: ")
    rest = events._rest
    for _ in range(1000):
        events.feed(b"x" * 64)
        assert events._rest is rest

    assert len(rest) == len(b"data: ") + 64_000


_NOTHING = st.sampled_from([b": ping\n\n", b'data: {"x":1}\n\n', b"data: [DONE]\n\n"])
_SOME = st.text("abc", min_size=1, max_size=9).map(lambda text: _write({"text": text}))


@given(chunks=st.lists(_NOTHING | _SOME, max_size=60), ends=st.lists(_NOTHING, max_size=LAST_CHUNKS - 1))
@pytest.mark.parametrize("unread_bytes", [1, 200, 16_384])
def test_text_is_noted_when_it_came_however_much_is_read_together(
    chunks: list[bytes], ends: list[bytes], unread_bytes: int
) -> None:
    """The first and the last chunk with text count; comments, a role and [DONE] do not."""
    tap = Tap(_read_event, is_stream=True)
    with bounded(max_unread_bytes=unread_bytes):
        for index, chunk in enumerate([*chunks, *ends]):
            tap.feed(chunk, 10.0 + index)
        texts = [(index, chunk) for index, chunk in enumerate(chunks) if b"text" in chunk]
        assert tap.text_chars == sum(len(chunk) - len(_write({"text": ""})) for _, chunk in texts)
    assert tap.first_at == (10.0 + texts[0][0] if texts else 0.0)
    if texts and texts[-1][0] == len(chunks) - 1:
        assert tap.last_at == 10.0 + texts[-1][0]


USAGE_END = b'data: {"tokens":7,"usage":{}}\n\ndata: [DONE]\n\n'
"""The end of a stream, with the usage under its usual name."""


@given(
    texts=st.lists(st.text("abc", min_size=1, max_size=40), min_size=1, max_size=400),
    size=st.sampled_from([7, 300, 5000, 100_000]),
    is_broken=st.booleans(),
)
def test_of_a_stream_that_tells_its_usage_little_is_read(texts: list[str], size: int, *, is_broken: bool) -> None:
    """Usage and times are as if everything were read. A short stream that breaks off is read whole."""
    body = b"".join(_write({"text": text, "id": "x" * 150}) for text in texts) + (b"" if is_broken else USAGE_END)
    whole, hardly = Tap(_read_event, is_stream=True), Tap(_read_event, is_stream=True, asks_usage=True)
    for tap in (whole, hardly):
        for index, at in enumerate(range(0, len(body), size)):
            tap.feed(body[at : at + size], 10.0 + index)
        tap.finish()

    assert hardly.usage == whole.usage == (None if is_broken else Usage(7))
    assert (hardly.first_at, hardly.last_at) == (whole.first_at, whole.last_at)
    if is_broken and len(body) <= MAX_SKIPPED_BYTES:
        assert hardly.count_completion(len) == whole.count_completion(len)
    assert hardly.text_chars == pytest.approx(whole.text_chars, rel=0.7)


@pytest.mark.parametrize("size", [1000, 70_000])
@pytest.mark.parametrize("is_told", [True, False])
def test_how_much_text_there_was_is_reckoned_from_what_is_read(size: int, *, is_told: bool) -> None:
    """Within a tenth, reasoning too, even if the requested usage does not come. What is kept is bounded."""
    chunks = [b'data: {"choices":[{"delta":{"content":"%b"}}]}\n\n' % (b"word " * (1 + at % 5)) for at in range(5000)]
    reasons = [chunk.replace(b"content", b"reasoning_content") for chunk in chunks]
    usage = (
        b'data: {"choices":[],"usage":{"completion_tokens":9,"completion_tokens_details":{"reasoning_tokens":4}}}\n\n'
    )
    body = b"".join(reasons + chunks) + (usage if is_told else b"") + b"data: [DONE]\n\n"
    tap = Tap.of(CHAT, is_stream=True, asks_usage=True)
    for at in range(0, len(body), size):
        tap.feed(body[at : at + size], 1.0 + at)
        assert sum(len(chunk) for chunk, _ in tap.unread) <= MAX_SKIPPED_BYTES
    tap.finish()

    words = 2 * 5000 * 3
    assert tap.text_chars == pytest.approx(5 * words, rel=0.1)
    assert tap.count_completion(lambda text: text.count(" ")) == pytest.approx(words, rel=0.1)
    assert tap.find_sent_tokens(9) == 9
    assert tap.usage == (Usage(None, 9, reasoning_tokens=4) if is_told else None)


@pytest.mark.parametrize("event", [{"text": "word"}, {"text": ""}])
def test_of_many_events_at_once_a_sample_is_read_and_both_ends(event: dict[str, object]) -> None:
    """Reading all would hold the event loop. The usage is found at either end, and what was written is estimated."""
    note, read = _note()
    many = _write(event) * (20 * MAX_EVENTS)
    for whole in (_write({"tokens": 7}) + many, many + _write({"tokens": 7})):
        read.clear()
        tap = Tap(note, is_stream=True)
        tap.feed(whole)
        tap.finish()
        assert len(read) <= MAX_EVENTS
        assert tap.usage == Usage(7)
        assert tap.text_chars == pytest.approx(20 * MAX_EVENTS * len(str(event["text"])), rel=0.01)


def test_hardly_anything_is_read_of_a_stream_that_tells_its_usage() -> None:
    """If the usage has not come when a result is needed, everything left is read."""
    note, read = _note()
    events = [_write({"text": "word", "id": "x" * 150}) for _ in range(140)]
    told, broken = Tap(note, is_stream=True, asks_usage=True), Tap(note, is_stream=True, asks_usage=True)
    for chunk in (*events, USAGE_END):
        told.feed(chunk, 1.0)
    assert len(read) == 1
    assert (told.usage, told.text_chars) == (Usage(7), pytest.approx(4 * 140, rel=0.1))
    assert len(read) < 40

    read.clear()
    for chunk in events:
        broken.feed(chunk, 1.0)
    assert (broken.usage, broken.text_chars, len(read)) == (None, 4 * 140, 140)


CALLS = (
    b'{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}',
    b'{"choices": [{"message": {"tool_calls": [ {"id": "c"}]}}]}',
    b'{"content":[{"type":"text","text":"I look."},{"type":"tool_use","id":"t"}]}',
    b'{"type":"response.output_item.added","item":{"type":"function_call","name":"look"}}',
    b'{"output":[{"type": "custom_tool_call"}]}',
)
NO_CALLS = (
    b'{"choices":[{"message":{"content":"All good.","tool_calls":[]}}]}',
    b'{"choices":[{"message":{"content":"\\"tool_calls\\":[1] and \\"type\\":\\"tool_use\\""}}]}',
    b'{"content":[{"type":"text","text":"tool_use"}],"stop_reason":"end_turn"}',
    b'{"output":[{"type":"message"}],"tools":[{"type":"function","name":"function_call"}]}',
)


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("size", [3, 10_000])
def test_a_tool_call_is_seen_wherever_the_chunks_end(size: int, *, is_stream: bool) -> None:
    """A text that quotes one is not taken for one, and neither is an empty list."""
    for body in CALLS + NO_CALLS:
        sent = b"data: " + body + b"\n\n" if is_stream else body
        tap = Tap.of(CHAT, is_stream=is_stream, asks_usage=True)
        for at in range(0, len(sent), size):
            tap.feed(sent[at : at + size])
        tap.finish()
        assert tap.calls_tools is (body in CALLS), body


def test_a_tool_call_is_seen_in_a_long_stream_that_is_only_sampled() -> None:
    text = b"data: " + b'{"choices":[{"delta":{"content":"' + b"word " * 50 + b'"}}]}\n\n'
    tap = Tap.of(CHAT, is_stream=True, asks_usage=True)
    for chunk in [text] * 400 + [b"data: " + CALLS[0] + b"\n\n"] + [text] * 400:
        tap.feed(chunk)
    tap.finish()
    assert tap.calls_tools


PLANTED = b'"usage":{"prompt_tokens":999,"input_tokens":999,"completion_tokens":888,"output_tokens":888}'
ECHO = b'"tools":[{"parameters":{%b}}],"message":{%b},"response":{%b}' % (PLANTED, PLANTED, PLANTED)
"""What a client asked for, which the answers of some APIs repeat; and members that only events have."""
TOLD = b'"usage":{"input_tokens":5,"output_tokens":3}'


@pytest.mark.parametrize("filler", [0, 100_000, 700_000])
@pytest.mark.parametrize("codec", CODECS[:3], ids=lambda codec: codec.name)
def test_only_the_answers_own_usage_counts(codec: Codec, filler: int) -> None:
    """Not one that a client has planted in what the answer repeats, however long it is."""
    long = b'"instructions":"%b"' % (b"x " * (filler // 2))
    for members in ((ECHO, TOLD, long), (long, TOLD, ECHO), (TOLD, long, ECHO), (ECHO, long, TOLD)):
        _check_own_usage(codec, b'{"id":"r",%b}' % b",".join(members))


def _check_own_usage(codec: Codec, body: bytes) -> None:
    event = b'data: {"type":"response.completed","response":%b}\n\n' % body
    for sent, is_stream in ((body, False), *([(event, True)] if codec.name == "responses" else [])):
        tap = Tap.of(codec, is_stream=is_stream)
        for at in range(0, len(sent), 60_000):
            tap.feed(sent[at : at + 60_000])
        tap.finish()
        assert (tap.usage.prompt_tokens, tap.usage.completion_tokens) == (5, 3)


REPORTS = {
    "chat": b'data: {"choices":[],%b}\n\n' % TOLD,
    "responses": b'data: {"type":"response.completed","response":{%b}}\n\n' % TOLD,
    "messages": b'data: {"type":"message_delta","delta":{},%b}\n\n' % TOLD,
}
ELSEWHERE = {
    "chat": (
        b'{"choices":[{"index":0,"delta":{"content":"x",%b}}]}',
        b'{"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"arguments":{%b}}}]}}]}',
        b'{"choices":[],"message":{%b},"pad":"LONG","response":{%b}}',
        b'{"error":{"message":"x",%b}}',
        b'{"choices":[],"usage":{%b}}',
    ),
    "responses": (
        b'{"type":"response.output_item.done","item":{"pad":"LONG",%b},%b}',
        b'{"type":"response.in_progress","response":{%b}}',
        b'{"type":"error","error":{%b},%b}',
    ),
    "messages": (
        b'{"type":"content_block_start","content_block":{"type":"tool_use","input":{%b}},"message":{%b}}',
        b'{"type":"content_block_start","content_block":{"pad":"LONG",%b},"message":{%b}}',
        b'{"type":"content_block_delta","delta":{"text":"x"},%b}',
        b'{"type":"error","error":{"type":"overloaded_error",%b}}',
    ),
}
"""Events with a usage in a place that is not its own. LONG: too long to be kept."""


@pytest.mark.parametrize("size", [10**6, 1000])
@pytest.mark.parametrize("asks_usage", [True, False])
@pytest.mark.parametrize("codec", CODECS[:3], ids=lambda codec: codec.name)
def test_only_the_streams_own_usage_counts(codec: Codec, size: int, *, asks_usage: bool) -> None:
    """Not one in a delta, in a call's arguments, in an error or in another event, before it or after it.

    Also if the stream is only sampled, and if the event is too long to be kept.
    """
    text, report, end = TEXT[codec.name] * 2000, REPORTS[codec.name], ENDS[codec.name]
    for event in ELSEWHERE[codec.name]:
        odd = b"data: " + event.replace(b"%b", PLANTED).replace(b"LONG", b"z" * 600_000) + b"\n\n"
        for body in (text + odd + report + end, text + report + odd + end):
            tap = Tap.of(codec, is_stream=True, asks_usage=asks_usage)
            for at in range(0, len(body), size):
                tap.feed(body[at : at + size])
            tap.finish()
            assert tap.usage == Usage(5, 3), (event, body.index(odd))


@pytest.mark.parametrize("filler", [0, 50_000, 90_000])
@pytest.mark.parametrize("odd", [b'"n":NaN', b'"n":' + b"[" * 3000 + b"]" * 3000, b'"n":"\xff"', b'"n":1e999,'])
def test_the_usage_is_read_of_an_answer_that_cannot_be_decoded(odd: bytes, filler: int) -> None:
    words = b'"choices":[{"message":{"content":"%b"}}]' % (b"x" * filler)
    for written in (b"{%b,%b,%b}" % (odd, TOLD, words), b"{%b,%b,%b}" % (words, TOLD, odd)):
        for body, is_stream in ((written, False), (b"data: " + written + b"\n\n", True)):
            tap = Tap.of(CHAT, is_stream=is_stream)
            for at in range(0, len(body), 40_000):
                tap.feed(body[at : at + 40_000])
            tap.finish()
            assert tap.usage == Usage(5, 3)


ENDS = {
    "chat": b"data: [DONE]\n\n",
    "responses": b'data: {"type":"response.completed","response":{}}\n\n',
    "messages": b'data: {"type":"message_stop"}\n\n',
}
TEXT = {
    "chat": b'data: {"choices":[{"index":0,"delta":{"content":"[DONE] message_stop"}}]}\n\n',
    "responses": b'data: {"type":"response.output_text.delta","delta":"response.completed"}\n\n',
    "messages": b'data: {"type":"content_block_delta","delta":{"text":"{\\"type\\":\\"message_stop\\"}"}}\n\n',
}


@pytest.mark.parametrize("codec", CODECS[:3], ids=lambda codec: codec.name)
def test_a_stream_says_when_it_is_complete(codec: Codec) -> None:
    """Then nothing is missing, even if its bytes were to go on."""
    for events, is_cut in (([TEXT[codec.name]], True), ([TEXT[codec.name], ENDS[codec.name]], False)):
        tap = Tap.of(codec, is_stream=True, asks_usage=True)
        for chunk in events:
            tap.feed(chunk)
        assert tap.has_ended is not is_cut
        tap.finish(is_cut=True)
        assert (tap.is_cut, tap.has_partial_usage) == (is_cut, is_cut)


@pytest.mark.parametrize("chars", [100, 100_000, 900_000])
def test_of_a_response_that_was_cut_off_what_arrived_is_counted(chars: int) -> None:
    """From the place on where the model's words begin. One whose JSON has ended was not cut off."""
    head, text = b'{"instructions":"%b","choices":[' % (b"y" * 50), b'{"message":{"content":"%b"}}]}' % (b"x" * chars)
    for sent, is_cut in ((head[:-9], True), (head + text[:-9], True), (head + text, False)):
        tap = Tap.of(CHAT, is_stream=False)
        for at in range(0, len(sent), 60_000):
            tap.feed(sent[at : at + 60_000])
        tap.finish(is_cut=True)
        assert tap.is_cut is is_cut
        assert tap.text_chars == pytest.approx(chars if b"xx" in sent else 0, abs=40)


def test_a_stream_that_was_read_is_freed_at_once() -> None:
    """Not only by the garbage collector: a tap may hold several hundred kilobytes."""
    tap = Tap(lambda _data, usage: (usage, ()), is_stream=True)
    tap.feed(b"data: {}\n\n")
    tap.finish(is_cut=True)
    freed = weakref.ref(tap)
    gc.disable()
    try:
        del tap
        assert freed() is None
    finally:
        gc.enable()
