"""Taking our calls out of answers: what is the same for every dialect."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dialects.spoken.all_dialects import each_dialect

from trimtab.proxy.wire.answers.recall import MAX_ROUND_BYTES, NAME, Asked, read_asked
from trimtab.proxy.wire.dialects import CODECS


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    """The stream in chunks."""
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
    """Nothing is raised, and nothing is lost."""
    sifter = dialect.codec.sifter()
    assert b"".join(map(sifter.feed, cut(noise, places))) + sifter.end()[0] == noise


@each_dialect
def test_a_very_long_answer_is_not_kept(dialect):
    sifter, event = dialect.codec.sifter(), dialect.write_event("x" * 100_000)
    for _ in range(MAX_ROUND_BYTES // 100_000 + 2):
        assert sifter.feed(event) == event
    assert sifter.end() == (b"", None)


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        ('{"query": "a b"}', Asked("1", "a b")),
        ({"query": "a", "range": [3, 5]}, Asked("1", "a", 2, 5)),
        ('{"query": "a", "range": [5]}', Asked("1", "a")),
        ('{"query": "a", "range": [true, 2]}', Asked("1", "a")),
        ('{"query": 7}', Asked("1", "")),
        ("[]", Asked("1", "")),
        ("{", Asked("1", "")),
        (None, Asked("1", "")),
    ],
)
def test_a_call_is_read_by_its_arguments(arguments, asked):
    assert read_asked("1", arguments) == asked


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.path)
def test_the_declaration_names_the_tool_and_what_it_wants(codec):
    """It is one JSON object, always the same."""
    declared = orjson.loads(codec.recall_tool)
    inside = declared.get("function", declared)
    assert inside["name"] == NAME
    assert (inside.get("parameters") or inside["input_schema"])["required"] == ["query"]
