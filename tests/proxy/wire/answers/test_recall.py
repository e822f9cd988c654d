"""Taking our calls out of answers: what is the same for every dialect."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dialects.spoken.all_dialects import CHAT, MESSAGES, RESPONSES, each_dialect
from support.dialects.spoken.dialect import read_sse
from upstreams.scripted import Call, Turn, make_pieces
from upstreams.speech import messages, responses
from upstreams.speech.spent import Said, Spent, write_event

from trimtab.proxy.compaction.offload import INLINE_BYTES
from trimtab.proxy.wire.answers.recall import (
    MAX_ASKED,
    MAX_ROUND_BYTES,
    NAME,
    RecallCall,
    mend_arguments,
    read_recall_call,
)
from trimtab.proxy.wire.answers.sse import read_events
from trimtab.proxy.wire.dialects import CODECS


def say(dialect, turn: Turn) -> bytes:
    if dialect is CHAT:
        pieces = ({"id": "x", "choices": choices} for choices, _ in make_pieces(turn, "t", None))
        return b"".join(b"data: " + orjson.dumps(piece) + b"\n\n" for piece in pieces) + b"data: [DONE]\n\n"
    said, body = Said(turn, "t", Spent(1, 1)), {"model": "m", "messages": []}
    if dialect is MESSAGES:
        return b"".join(map(write_event, messages.make_events(messages.make_message(body, said))))
    return b"".join(map(write_event, responses.number(responses.make_events(body, said))))


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    stops = sorted({place % (len(stream) + 1) for place in places})
    return [stream[start:stop] for start, stop in zip([0, *stops], [*stops, len(stream)], strict=True)]


@each_dialect
@given(places=st.lists(st.integers(0, 10_000), max_size=6))
def test_other_answers_pass_byte_for_byte(dialect, places):
    """However they are cut into chunks, whatever they say."""
    stream = b": ping\n\n" + b"".join(dialect.write_events("Hm, ", NAME, f'"name":"{NAME}"'))
    sifter = dialect.codec.sifter()
    passed = b"".join(map(sifter.feed, cut(stream, places)))
    left, said = sifter.end()
    assert (passed + left, said) == (stream, None)


@each_dialect
@given(noise=st.binary(max_size=300), places=st.lists(st.integers(0, 300), max_size=3))
def test_garbage_passes(dialect, noise, places):
    sifter = dialect.codec.sifter()
    assert b"".join(map(sifter.feed, cut(noise, places))) + sifter.end()[0] == noise


@each_dialect
@pytest.mark.parametrize("pieces", [(b"\n\n",), (b"\n", b"\r\n"), (b": a\n", b"\n")])
def test_what_has_ended_passes_at_once(dialect, pieces):
    """Be it only empty lines; before its end, nothing of an event passes."""
    sifter = dialect.codec.sifter()
    *before, last = map(sifter.feed, pieces)
    assert (before, last) == ([b""] * (len(pieces) - 1), b"".join(pieces))


@each_dialect
def test_a_very_long_answer_is_not_kept_and_takes_no_memory(dialect):
    sifter, event = dialect.codec.sifter(), dialect.write_event("x" * 100_000)
    for _ in range(MAX_ROUND_BYTES // 100_000 + 2):
        assert sifter.feed(event) == event
    assert sifter.end() == (b"", None)
    sifter, event = dialect.codec.sifter(), dialect.write_event("x" * 1000)
    sifter.feed(event)
    assert sifter.kept_bytes == len(event)
    sifter.is_full = True
    assert sifter.feed(event) == event
    assert sifter.kept_bytes == 0
    assert not sifter._passed


ASK = Call(NAME, {"query": "a"})


@each_dialect
@pytest.mark.parametrize("end", [b"\r", b"\r\n"])
@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf", b"id: 1\n", b": ping\n\n"])
def test_calls_are_taken_out_whatever_ends_a_line(dialect, end, before):
    """LF, CRLF or CR; whatever stands before the names and the data of events."""
    plain = say(dialect, Turn("Look. ", (ASK,)))
    stream = (before + plain).replace(b"\n", end)
    expected = dialect.codec.sifter()
    passed = expected.feed(plain)
    left, said = expected.end()
    for size in (1, 7, 100_000):
        sifter = dialect.codec.sifter()
        told = b"".join(sifter.feed(stream[at : at + size]) for at in range(0, len(stream), size))
        more, heard = sifter.end()
        assert heard == said
        assert read_events(told + more) == read_events(passed + left)
        assert b"\r\r\n" not in told


@each_dialect
def test_a_very_long_answer_that_continues_another_goes_on_as_the_same(dialect):
    """It is not kept, so it is the last one; its calls of ours are not shown, and it has an end of its own."""
    sifter = dialect.codec.sifter()
    first = sifter.feed(say(dialect, Turn("Look. ", (ASK,))))
    assert sifter.end()[1] is not None
    sifter.most_bytes = 4500 if dialect is RESPONSES else 2500
    long = say(dialect, Turn("It is long. " * 200, (ASK,)))
    passed = b"".join(sifter.feed(long[at : at + 200]) for at in range(0, len(long), 200))
    left, said = sifter.end()
    assert (left, said) == (b"", None)
    events = read_sse(first + passed)
    assert NAME not in str(events)
    if dialect is RESPONSES:
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert events[-1]["type"] == "response.completed"
    elif dialect is MESSAGES:
        assert [event["index"] for event in events if event["type"] == "content_block_start"] == [0, 1]
        assert events[-2]["delta"]["stop_reason"] == "end_turn"
    else:
        assert events[-1]["choices"][0]["finish_reason"] == "stop"


@each_dialect
def test_the_end_of_calls_is_known_before_the_stream_ends(dialect):
    """Beside the client's own, they must be answered before the client gets that end, at which it may close."""
    for calls, is_over, is_beside in (
        ((ASK,), True, False),
        ((Call("run", {}), ASK), False, True),
        ((Call("run", {}),), False, False),
        ((ASK,) * (MAX_ASKED + 1), False, False),
    ):
        sifter = dialect.codec.sifter()
        sifter.feed(say(dialect, Turn("Look. ", calls)))
        assert (sifter.is_over, sifter.is_beside) == (is_over, is_beside)


@each_dialect
def test_large_chunks_are_weighed_in_every_round(dialect):
    """They are not decoded on the loop. Before a call, nothing is decoded."""
    sifter, event = dialect.codec.sifter(), dialect.write_event("x" * 2 * INLINE_BYTES)
    assert sifter.weigh(event) == 0
    assert sifter.said_bytes == 0
    sifter.feed(say(dialect, Turn("", (ASK,))))
    assert sifter.said_bytes > 100
    assert sifter.end()[1] is not None
    assert sifter.weigh(event) > INLINE_BYTES
    sifter.feed(event[:-1])
    assert sifter.weigh(event[-1:]) > INLINE_BYTES


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ('{"query": "a"}', None),
        ('{"query": "\\ud800"}', None),
        ('{"query": "a', "{}"),
        ("", "{}"),
        (7, None),
    ],
)
def test_arguments_are_sent_again_if_they_are_an_object(arguments, sent):
    assert mend_arguments(arguments) == (arguments if sent is None else sent)


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        ('{"query": "a b"}', RecallCall("1", "a b")),
        ({"query": "a", "range": [3, 5]}, RecallCall("1", "a", 2, 5)),
        ('{"query": "a", "range": [5]}', RecallCall("1", "a")),
        ('{"query": "a", "range": [true, 2]}', RecallCall("1", "a")),
        ("{", RecallCall("1", "")),
        (None, RecallCall("1", "")),
    ],
)
def test_a_call_is_read_by_its_arguments(arguments, asked):
    assert read_recall_call("1", arguments) == asked


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.path)
def test_the_declaration_names_the_tool_and_what_it_wants(codec):
    declared = orjson.loads(codec.recall_tool)
    inside = declared.get("function", declared)
    assert inside["name"] == NAME
    assert (inside.get("parameters") or inside["input_schema"])["required"] == ["query"]


def test_an_event_keeps_its_name_wherever_that_stands():
    """Clients may go by it."""
    stream = say(MESSAGES, Turn("Look. ", (ASK,))).replace(b"event: ", b"id: 7\nevent: ")
    sifter = MESSAGES.codec.sifter()
    told = sifter.feed(stream) + sifter.end()[0]
    assert told.count(b"event:") == told.count(b"data:") > 0
