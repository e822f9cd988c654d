"""JSON that the standard library reads is read, and its messages keep their bytes."""

import re
from contextlib import suppress
from itertools import product
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.odd_json import ODD, dump

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.codec import Codec, Counting
from trimtab.proxy.wire.json import (
    DECODE_ERRORS,
    STRIDE_BYTES,
    STRING,
    Array,
    Span,
    count_bytes,
    cut,
    decode_any,
    decode_items,
    decode_members,
    find_array,
    find_member,
    find_members,
    find_tokens,
    has_more_parts,
    holds,
    match_array,
    mend,
    read_id,
    read_members,
    replace_lone_surrogates,
    write_id,
)
from trimtab.proxy.wire.messages.codec import MESSAGES
from trimtab.proxy.wire.responses.codec import RESPONSES
from trimtab.rules.results.pairing import pair_tool_calls


@pytest.mark.parametrize("number", [b"NaN", b"1e999", b"-1E+400", b"-0", b"1e-999", b"9" * 30, b"-" + b"1" * 400])
def test_any_number_is_decoded(number: bytes) -> None:
    msgspec.json.encode(decode_any(b'{"n":[%b]}' % number))


@given(st.binary(max_size=40) | st.text(max_size=20).map(str.encode))
def test_garbage_raises_what_callers_expect(value: bytes) -> None:
    """One of DECODE_ERRORS, or nothing."""
    assert len(mend(value)) == len(value)
    with suppress(*DECODE_ERRORS):
        decode_any(value)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (b"NaN", b"0  "),
        (b"[-Infinity]", b"[-0       ]"),
        (b'"NaN \\" Infinity"', b'"NaN \\" Infinity"'),
        (b"\xef\xbb\xbf1", b"   1"),
        (b'"\xed\xa0\xbd\xed\x95\x9c"', b'"\xef\xbf\xbd\xed\x95\x9c"'),
        (b'"\\ud83d"', b'"\\ufffd"'),
    ],
)
def test_what_is_put_in_its_place(written: bytes, read: bytes) -> None:
    """It has the same length. Within strings, only surrogates are replaced."""
    assert mend(written) == read


@pytest.mark.parametrize("ending", [b"", b"\\", b'"}'])
def test_a_string_that_nothing_ends_goes_to_the_texts_end(ending: bytes) -> None:
    """All quotation marks in it are passed at once. A pattern that restarts at each took minutes for a megabyte."""
    text = b'{"messages":[{"content":NaN}],"x":"' + b'\\" NaN ' * 1000 + ending
    assert mend(text) == text.replace(b"NaN", b"0  ", 1)


DEEP = b"[" * 100_000 + b"]" * 100_000
SPACES = st.sampled_from([b"", b" ", b"\n\t"])
WRITTEN = ODD.map(dump) | st.sampled_from([b"1.50", b'"\\u0061"', b"[ 1 ,2 ]", b'{"a":1,"a":2}', b"1e999"])


@given(st.lists(st.tuples(st.text(max_size=3), WRITTEN), max_size=4), SPACES)
def test_each_member_keeps_its_bytes(members: list[tuple[str, bytes]], space: bytes) -> None:
    """White space around a value does not belong to it. Of a repeated name, the last value counts."""
    pairs = [orjson.dumps(name) + space + b":" + space + value for name, value in members]
    raw = space + b"{" + space + (space + b"," + space).join(pairs) + space + b"}"
    expected = dict(members)

    assert {name: bytes(value) for name, value in decode_members(raw).items()} == expected
    assert read_members(raw) == decode_members(raw)


@pytest.mark.parametrize("raw", [b"", b"{", b"null", b"[]", b'"a"', b'{"a":1} 2', b'{"\xff":1}', b'{"a":%s}' % DEEP])
def test_what_is_no_object_raises_an_expected_error(raw: bytes) -> None:
    """It is invalid JSON, another value, or too deeply nested."""
    with pytest.raises(DECODE_ERRORS):
        read_members(raw)


@pytest.mark.parametrize("raw", [b"", b"[", b"null", b"{}", b"[1] 2", b"[1,]", b"[%s]" % DEEP])
def test_what_is_no_array_raises_an_expected_error(raw: bytes) -> None:
    with pytest.raises(DECODE_ERRORS):
        decode_items(raw)


Wire = dict[str, Any]


def _chat(call_id: Wire, answered: Wire | None) -> list[Wire]:
    asked = {**call_id, "type": "function", "function": {"name": "read", "arguments": "{}"}}
    said = [{"role": "assistant", "content": None, "tool_calls": [asked]}]
    named = {"tool_call_id": answered["id"]} if answered else {"tool_name": "read"}
    return said if answered is None else [*said, {"role": "tool", **named, "content": "found"}]


def _responses(call_id: Wire, answered: Wire | None) -> list[Wire]:
    said = [{"type": "function_call", "call_id": call_id["id"], "name": "read", "arguments": "{}"}]
    named = {"call_id": answered["id"]} if answered else {}
    return said if answered is None else [*said, {"type": "function_call_output", **named, "output": "found"}]


def _messages(call_id: Wire, answered: Wire | None) -> list[Wire]:
    said = [{"role": "assistant", "content": [{"type": "tool_use", **call_id, "name": "read", "input": {}}]}]
    named = {"tool_use_id": answered["id"]} if answered else {}
    block = {"type": "tool_result", **named, "content": "found"}
    return said if answered is None else [*said, {"role": "user", "content": [block]}]


WRITERS = {CHAT: _chat, RESPONSES: _responses, MESSAGES: _messages}
each_codec = pytest.mark.parametrize("codec", WRITERS, ids=lambda codec: codec.name)


def _pair(codec: Codec, elements: list[Wire]) -> list[Wire]:
    key = codec.transcript
    body = orjson.dumps({"model": "m", key: [{"role": "user", "content": "go"}, *elements]})
    request = codec.read(body)
    before = codec.decode(request, Counting(count_by_heuristic, make_known()))
    outcome = pair_tool_calls(before, count=count_by_heuristic)
    after = outcome.conversation if outcome.decisions else before
    return list(orjson.loads(b"".join(codec.encode(request, before, after)))[key][1:])


@each_codec
@pytest.mark.parametrize("ids", [(1, "1"), ("1", 1), (1.0, 1), (0, "0"), (1697377797897, 1697377797897.0)])
def test_ids_are_compared_by_value(codec: Codec, ids: tuple[Any, Any]) -> None:
    """A number is the same id as its text, on both sides."""
    elements = WRITERS[codec]({"id": ids[0]}, {"id": ids[1]})
    assert _pair(codec, elements) == elements


@each_codec
def test_a_result_without_an_id_passes_and_one_with_the_id_of_no_call_gets_that_of_its_call(codec: Codec) -> None:
    """If it is the only one behind the only call. Nothing else changes."""
    write = WRITERS[codec]
    for call_id, answered in product(({"id": 1}, {"id": "call_1"}, {"id": None}), ({}, {"id": None}, {"id": ""})):
        elements = write(call_id, answered)
        assert _pair(codec, elements) == elements
    for call_id, answered in product(({"id": 1}, {"id": "call_1"}), ({"id": "other"}, {"id": 7})):
        assert _pair(codec, write(call_id, answered)) == write(call_id, call_id)


@each_codec
def test_a_missing_result_has_the_id_that_its_call_has(codec: Codec) -> None:
    (said,) = WRITERS[codec]({"id": 7}, None)
    (given,) = WRITERS[codec]({"id": 7}, {"id": 7})[1:]
    sent, made = _pair(codec, [said])
    assert sent == said
    assert _find_id(made) == _find_id(given) == 7


def _find_id(element: Wire) -> Any:
    held = element["content"][0] if isinstance(element.get("content"), list) else element
    return next(held[name] for name in ("tool_call_id", "call_id", "tool_use_id") if name in held)


def test_a_result_may_name_its_tool_as_ollama_does() -> None:
    elements = [*_chat({}, {}), *_chat({}, {})]
    for at in (1, 3):
        elements[at] = {"role": "tool", "tool_name": "read", "content": "found"}
    assert _pair(CHAT, elements) == elements


@pytest.mark.parametrize(
    ("value", "text", "json"),
    [
        ("a", "a", b""),
        (1, "1", b"1"),
        (1e300, str(int(1e300)), b"1e300"),
        (float("inf"), "inf", b"null"),
        (True, "", b""),
        ({"id": 1}, "", b""),
    ],
)
def test_what_is_no_id_has_none(value: object, text: str, json: bytes) -> None:
    assert (read_id(value), write_id(value)) == (text, json)


# Offsets in a JSON text.

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
    spaced = [draw(BLANKS) + key + draw(BLANKS) + b":" + draw(BLANKS) + value for key, value in members]
    return b"{" + b",".join(member + draw(BLANKS) for member in spaced) + b"}"


VALUES = st.recursive(SCALARS, lambda inner: _lists(inner) | _objects(inner), max_leaves=8)


@st.composite
def _arrays(draw: st.DrawFn) -> tuple[bytes, list[Span], list[bytes]]:
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
    assert find_array(b'{"messages":[1],"%s":[2]}' % other, KEY, [b"1"]) == Array(12, 15, [Span(13, 14)])


def test_known_values_are_found_and_hard_texts_passed_without_a_search() -> None:
    """A megabyte of quotes, brackets and backslashes before the messages is no obstacle."""
    hard = orjson.dumps('"[{\\' * 250_000)
    body = b'{"x":' + hard + b',"y":' + b"[" * 500 + b"]" * 500 + b',"messages":[1]}'

    end = len(body)
    assert find_array(body, KEY, [b"1"]) == Array(end - 4, end - 1, [Span(end - 3, end - 2)])
    body = b'{"tools":[{"a":"]"}],"messages":["x"],"n":1}'
    plain = find_members(body, [])
    assert find_members(body, [b'[{"a":"]"}]']) == plain == find_members(body, [], Span(31, 36))
    assert [body[value.start : value.stop] for _, _, value in plain] == [b'[{"a":"]"}]', b'["x"]', b"1"]


@pytest.mark.parametrize("ending", [b"", b"\\", b'"'])
def test_a_string_that_nothing_ends_is_one_part(ending: bytes) -> None:
    """However many quotation marks it has. A pattern that restarts at each would take quadratic time."""
    text = b'[",",' * 3 + b'"' + b'\\",' * 1000 + ending
    assert (has_more_parts(text, 6), has_more_parts(text, 7)) == (True, False)


_TOKEN = re.compile(STRING + rb'|"|,|NaN', re.DOTALL)
_WHOLE = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+|)*+(?:"|\\?\Z)|,|(?P<number>NaN|Infinity)', re.DOTALL)
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


@given(PIECES, st.sampled_from(FILLERS), PIECES)
def test_a_search_in_strides_finds_what_one_search_finds(before: bytes, filler: bytes, behind: bytes) -> None:
    text = before + filler + behind
    assert holds(text, b"Infinity") == (b"Infinity" in text)
    assert holds(text, b"\\ud") == (b"\\ud" in text)
    assert count_bytes(text, b",") == text.count(b",")


ITEMS = st.lists(st.sampled_from(["1", '"a,b"', '{"x":[1,2]}', "[]", "null"]), max_size=7)
SPAN_SPACES = st.sampled_from(["", " ", "\n  "])


@given(ITEMS, SPAN_SPACES, SPAN_SPACES, st.data())
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
