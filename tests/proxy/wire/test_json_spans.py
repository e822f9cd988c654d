"""Offsets in a JSON text."""

import re

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.wire.json import (
    STRIDE_BYTES,
    STRING,
    Array,
    Span,
    close_string,
    count_bytes,
    cut,
    find_array,
    find_member,
    find_members,
    find_tokens,
    has_more_parts,
    holds,
    match_array,
    mend,
    replace_lone_surrogates,
)

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
        (b'{"m\\u0065ssages":[]}', []),
        (b'{"a":{"messages":[]}}', []),
        (b'{"a":[{"messages":[]}],"b":"\\"messages\\":[]"}', []),
        (b'{"messages":[1]}', [b"2"]),
        (b'{"messages":[1,2]}', [b"1"]),
        (b'{"messages":{}}', []),
        (b'{"messages":[1],"messages":[2]}', [b"1"]),
        (b'{"messages":[],"\\u006dessage\\u0073":[]}', []),
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


_TOKEN = re.compile(STRING + rb'|"|,|NaN', re.DOTALL)
_WHOLE = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|,|(?P<number>NaN|Infinity)', re.DOTALL)
"""The same with one simple pattern, which holds the interpreter."""
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
FILLERS = [b" " * (STRIDE_BYTES - 9), b"a" * (STRIDE_BYTES - 3), b"\\\\" * (STRIDE_BYTES // 2 - 2), b""]
PIECES = st.lists(
    st.one_of(
        st.sampled_from([b'"', b"\\", b'\\"', b",", b"NaN", b"Infinity", b"N", b"a", b"\\ud800", b"\\ud83d\\ude00"]),
        st.sampled_from([b"\xed\xa0\x80", b"\xed", b"x" * 1100, b" "]),
    ),
    max_size=16,
).map(b"".join)


def _zeros(found: "re.Match[bytes]") -> bytes:
    return b"0".ljust(len(found[0])) if found["number"] else found[0]


@given(PIECES, st.sampled_from(FILLERS), PIECES)
def test_what_is_mended_does_not_depend_on_the_strides(before: bytes, filler: bytes, behind: bytes) -> None:
    """Numbers outside strings, lone surrogates, and surrogates' bytes, wherever a stride ends."""
    text = before + filler + behind
    expected = _ESCAPE.sub(lambda found: rb"\ufffd" if found["lone"] else found[0], text)
    assert replace_lone_surrogates(text) == expected
    expected = re.sub(rb"\xed[\xa0-\xbf][\x80-\xbf]", b"\xef\xbf\xbd", expected)
    assert mend(text) == _WHOLE.sub(_zeros, expected)


@given(PIECES, st.sampled_from(FILLERS), PIECES)
def test_tokens_begin_where_they_begin_in_the_whole_text(before: bytes, filler: bytes, behind: bytes) -> None:
    """Strings, also very long ones and one that nothing ends, hide what is in them."""
    text = before + filler + behind
    found = [token.start() for token in find_tokens(_TOKEN, text, longest=3)]
    assert found == [token.start() for token in _WHOLE.finditer(text) if token["number"] != b"Infinity"]


@pytest.mark.parametrize(
    ("text", "end"),
    [(b'a"b', 2), (b'\\"b"', 4), (b"abc", 3), (b"ab\\", 3), (b"", 0), (b"\\\\" * 300_000 + b'"x', 600_001)],
)
def test_a_string_ends_at_the_first_quotation_mark_that_is_not_escaped(text: bytes, end: int) -> None:
    """Without such a mark, it ends at the text's end."""
    assert close_string(text, 0) == end


@given(PIECES, st.sampled_from(FILLERS), PIECES)
def test_a_search_in_strides_finds_what_one_search_finds(before: bytes, filler: bytes, behind: bytes) -> None:
    """Across the strides' ends, too."""
    text = before + filler + behind
    assert holds(text, b"Infinity") == (b"Infinity" in text)
    assert holds(text, b"\\ud") == (b"\\ud" in text)
    assert count_bytes(text, b",") == text.count(b",")


ITEMS = st.lists(st.sampled_from(["1", '"a,b"', '{"x":[1,2]}', "[]", "null"]), max_size=7)
SPACES = st.sampled_from(["", " ", "\n  "])


@given(ITEMS, SPACES, SPACES, st.data())
def test_what_is_left_of_a_list_are_the_other_items(items: list[str], before: str, after: str, data) -> None:
    """The result is the JSON of exactly the items that stay, whatever stands around the commas."""
    text = f"[{before}{f'{before},{after}'.join(items)}{after}]".encode()
    gone = sorted(data.draw(st.sets(st.integers(0, max(len(items) - 1, 0)), max_size=len(items)))) if items else []
    array = match_array(text, 0, [item.encode() for item in items])
    left = cut(text, array.elements, gone)

    assert orjson.loads(left) == [orjson.loads(item) for at, item in enumerate(items) if at not in gone]
    removed = sum(len(items[at]) for at in gone)
    commas = max(len(items) - 1, 0) - max(len(items) - len(gone) - 1, 0)
    assert len(left) == len(text) - removed - commas


@given(st.permutations(["a", "b", "c", "d"]), st.sets(st.sampled_from("abcd")), SPACES)
def test_what_is_left_of_an_object_are_the_other_members(keys: list[str], gone: set[str], blank: str) -> None:
    """Members go like items."""
    text = (
        "{" + blank + f"{blank},".join(f'"{key}"{blank}:{blank}[{at},{{}}]' for at, key in enumerate(keys)) + "}"
    ).encode()
    members = find_members(text, [])
    assert [key.decode().strip('"') for key, _, _ in members] == keys
    spans = [span for _, span, _ in members]
    left = cut(text, spans, [at for at, key in enumerate(keys) if key in gone])

    assert orjson.loads(left) == {key: value for key, value in orjson.loads(text).items() if key not in gone}


def test_known_values_are_found_without_a_search() -> None:
    """A value that is known, and one whose position is, end where they end."""
    body = b'{"tools":[{"a":"]"}],"messages":["x"],"n":1}'
    plain = find_members(body, [])
    assert find_members(body, [b'[{"a":"]"}]']) == plain == find_members(body, [], Span(31, 36))
    assert [body[value.start : value.stop] for _, _, value in plain] == [b'[{"a":"]"}]', b'["x"]', b"1"]
