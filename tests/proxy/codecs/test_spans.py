"""Offsets in a JSON text."""

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.codecs.spans import Span, find_elements, find_member

KEY = b'"messages"'
BLANKS = st.sampled_from([b"", b"", b" ", b"\n  ", b"\t", b"\r\n", b" \n\t "])
NASTY = ['"', "\\", '\\"', "]", "}", "{[", '"messages":[', ",", ":", "é", "\U0001f600", "\u2028", "\n"]
TEXTS = st.lists(st.sampled_from([*NASTY, "a", "messages"]), max_size=6).map("".join)
SCALARS = st.one_of(
    TEXTS.map(orjson.dumps),
    st.integers(-(10**30), 10**30).map(lambda number: str(number).encode()),
    st.sampled_from([b"null", b"true", b"false", b"-0.5e-3", b'"\\u00e9\\"\\\\"']),
)


@st.composite
def _lists(draw: st.DrawFn, values: st.SearchStrategy[bytes]) -> bytes:
    items = [draw(BLANKS) + item + draw(BLANKS) for item in draw(st.lists(values, max_size=4))]
    return b"[" + (b",".join(items) or draw(BLANKS)) + b"]"


@st.composite
def _objects(draw: st.DrawFn, values: st.SearchStrategy[bytes]) -> bytes:
    members = draw(st.lists(st.tuples(TEXTS.map(orjson.dumps) | st.just(KEY), values), max_size=4))
    return _join(draw, members)


def _join(draw: st.DrawFn, members: list[tuple[bytes, bytes]]) -> bytes:
    """An object of these members, with blanks wherever JSON allows them."""
    spaced = [draw(BLANKS) + key + draw(BLANKS) + b":" + draw(BLANKS) + value for key, value in members]
    return b"{" + b",".join(member + draw(BLANKS) for member in spaced) + b"}"


VALUES = st.recursive(SCALARS, lambda inner: _lists(inner) | _objects(inner), max_leaves=8)


@st.composite
def _bodies(draw: st.DrawFn) -> tuple[bytes, Span]:
    """A body and where the value of its last top-level `messages` stands."""
    front = draw(st.lists(st.tuples(TEXTS.map(orjson.dumps) | st.just(KEY), VALUES), max_size=3))
    keys_behind = TEXTS.filter(lambda text: text != "messages").map(orjson.dumps)
    behind = draw(st.lists(st.tuples(keys_behind, VALUES), max_size=3))
    value = draw(VALUES)
    start = draw(BLANKS) + _join(draw, front)[:-1] + (b"," if front else b"") + draw(BLANKS) + KEY
    start += draw(BLANKS) + b":" + draw(BLANKS)
    rest = draw(BLANKS) + (b"," if behind else b"") + _join(draw, behind)[1:] + draw(BLANKS)
    return start + value + rest, Span(len(start), len(start) + len(value))


@given(_bodies())
def test_find_member_gives_the_exact_span_in_any_body(case: tuple[bytes, Span]) -> None:
    """The span is that of the last top-level `messages`, whatever stands around it and however it is spaced."""
    body, span = case
    value = bytes(msgspec.json.decode(body, type=dict[str, msgspec.Raw])["messages"])

    assert body[span.start : span.stop] == value
    assert find_member(body, KEY, value) == span


@given(st.lists(VALUES, max_size=5), st.data())
def test_find_elements_gives_each_elements_span(values: list[bytes], data: st.DataObject) -> None:
    """Each span is that of its own element, also where elements are equal or contain one another."""
    blanks = data.draw(st.lists(BLANKS, min_size=2 * len(values), max_size=2 * len(values)))
    array, spans = b"[", []
    for index, value in enumerate(values):
        array += (b"," if index else b"") + blanks[2 * index]
        spans.append(Span(len(array), len(array) + len(value)))
        array += value + blanks[2 * index + 1]

    assert find_elements(array + b"]", values) == spans


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"a":1}', b"[]"),
        (b"{}", b"[]"),
        (b" { } ", b"[]"),
        (b'{"m\\u0065ssages":[]}', b"[]"),
        (b'{"a":{"messages":[]}}', b"[]"),
        (b'{"a":[{"messages":[]}],"b":"\\"messages\\":[]"}', b"[]"),
        (b'{"messages":[1]}', b"[2]"),
    ],
)
def test_find_member_finds_nothing_where_nothing_stands(body: bytes, value: bytes) -> None:
    """A key that is absent, nested, inside a string, escaped or of another value is not found."""
    assert find_member(body, KEY, value) is None


def test_find_member_is_linear_in_a_body_of_brackets_and_quotes() -> None:
    """A megabyte of quotes, brackets and backslashes before the messages is no obstacle."""
    hard = orjson.dumps('"[{\\' * 250_000)
    body = b'{"x":' + hard + b',"y":' + b"[" * 500 + b"]" * 500 + b',"messages":[1]}'

    assert find_member(body, KEY, b"[1]") == Span(len(body) - 4, len(body) - 1)
