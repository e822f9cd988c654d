"""Offsets in a JSON text."""

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.wire.json.spans import Array, Span, find_array, find_member, has_more_parts

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
def _arrays(draw: st.DrawFn) -> tuple[bytes, list[Span], list[bytes]]:
    """An array, the positions of its elements, and the elements."""
    values = draw(st.lists(_objects(VALUES) | SCALARS, max_size=5))
    array, spans = b"[", []
    for index, value in enumerate(values):
        array += (b"," if index else b"") + draw(BLANKS)
        spans.append(Span(len(array), len(array) + len(value)))
        array += value + draw(BLANKS)
    return array + b"]", spans, values


@st.composite
def _bodies(draw: st.DrawFn) -> tuple[bytes, Array, list[bytes]]:
    """A body, and the positions of the elements of its last top-level `messages`."""
    front = draw(st.lists(st.tuples(TEXTS.map(orjson.dumps) | st.just(KEY), VALUES), max_size=3))
    keys_behind = TEXTS.filter(lambda text: text != "messages").map(orjson.dumps)
    behind = draw(st.lists(st.tuples(keys_behind, VALUES), max_size=3))
    array, spans, values = draw(_arrays())
    start = draw(BLANKS) + _join(draw, front)[:-1] + (b"," if front else b"") + draw(BLANKS) + KEY
    start += draw(BLANKS) + b":" + draw(BLANKS)
    rest = draw(BLANKS) + (b"," if behind else b"") + _join(draw, behind)[1:] + draw(BLANKS)
    at = len(start)
    elements = [Span(at + span.start, at + span.stop) for span in spans]
    return start + array + rest, Array(at, at + len(array), elements), values


@given(_bodies())
def test_the_array_is_found_in_any_body(case: tuple[bytes, Array, list[bytes]]) -> None:
    """The spans are those of the last top-level `messages`, whatever is around it and however it is spaced."""
    body, array, values = case
    decoded = msgspec.json.decode(body, type=dict[str, msgspec.Raw])["messages"]

    assert body[array.start : array.stop] == bytes(decoded)
    assert find_array(body, KEY, values) == array


@given(_objects(VALUES), BLANKS)
def test_a_member_is_found_whatever_its_value(body: bytes, blank: bytes) -> None:
    """The last one of its name, if there are several."""
    value = msgspec.json.decode(body, type=dict[str, msgspec.Raw]).get("messages")
    span = find_member(blank + body, KEY)
    assert (value is None) == (span is None)
    assert span is None or (blank + body)[span.start : span.stop] == bytes(value or b"")


@pytest.mark.parametrize(
    ("body", "elements"),
    [
        (b'{"a":1}', []),
        (b"{}", []),
        (b" { } ", []),
        (b'{"m\\u0065ssages":[]}', []),
        (b'{"a":{"messages":[]}}', []),
        (b'{"a":[{"messages":[]}],"b":"\\"messages\\":[]"}', []),
        (b'{"messages":[1]}', [b"2"]),
        (b'{"messages":[1,2]}', [b"1"]),
        (b'{"messages":{}}', []),
        (b'{"messages":"[]"}', []),
        (b'{"messages":[],"messages":"[]"}', []),
        (b'{"messages":[1],"messages":[2]}', [b"1"]),
        (b'{"messages":[],"m\\u0065ss\\u0061ges":[]}', []),
        (b'{"messages":[],"\\u006dessage\\u0073":[]}', []),
        (b'{"messages":[],"\\u006Dessages":[]}', []),
    ],
)
def test_nothing_is_found_where_nothing_stands(body: bytes, elements: list[bytes]) -> None:
    """A key that is absent, nested, inside a string, escaped or of another value is not found.

    If it is repeated, only the last one counts.
    """
    assert find_array(body, KEY, elements) is None


@pytest.mark.parametrize(
    "other", [b"\\u0065", b"messages\\u0073", b"\\\\u006dessages", b"\\u006eessages", b"\\U006dessages", b"Messages"]
)
def test_another_key_with_escapes_hides_nothing(other: bytes) -> None:
    """Not even one that looks like the key."""
    assert find_array(b'{"messages":[1],"%s":[2]}' % other, KEY, [b"1"]) == Array(12, 15, [Span(13, 14)])


def test_the_search_is_linear_in_a_body_of_brackets_and_quotes() -> None:
    """A megabyte of quotes, brackets and backslashes before the messages is no obstacle."""
    hard = orjson.dumps('"[{\\' * 250_000)
    body = b'{"x":' + hard + b',"y":' + b"[" * 500 + b"]" * 500 + b',"messages":[1]}'

    end = len(body)
    assert find_array(body, KEY, [b"1"]) == Array(end - 4, end - 1, [Span(end - 3, end - 2)])


@pytest.mark.parametrize("ending", [b"", b"\\", b'"'])
def test_a_string_that_nothing_ends_is_one_part(ending: bytes) -> None:
    """However many quotation marks it has. A pattern that restarts at each would take quadratic time."""
    text = b'[",",' * 3 + b'"' + b'\\",' * 1000 + ending
    assert (has_more_parts(text, 6), has_more_parts(text, 7)) == (True, False)
