"""JSON that the standard library reads is read, and its messages keep their bytes."""

import json  # noqa: TID251 - the reference for these tests
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
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
from trimtab.proxy.wire.codec import Codec, Counting, Request
from trimtab.proxy.wire.json import (
    DECODE_ERRORS,
    decode_any,
    decode_items,
    decode_members,
    mend,
    read_id,
    read_members,
    replace_lone_surrogates,
    write_id,
)
from trimtab.proxy.wire.messages.codec import MESSAGES
from trimtab.proxy.wire.responses.codec import RESPONSES
from trimtab.rules.results.pairing import pair_tool_calls

BLANKS = st.sampled_from([b"", b"", b" ", b"\n\t", b"\r\n  "])
PIECES = [
    *rb"a|\ud83d|\ude00|\ud83d\ude00|\"|\\|\/|\u0000|NaN|Infinity|]},{|\"messages\":[".split(b"|"),
    *(b"\xed\xa0\x80", b"\xed\x95\x9c", b"\xc3\xbc", b"\x7f"),
]
"""Parts of strings: lone surrogates, escaped and encoded, and what only looks like one."""
STRINGS = st.lists(st.sampled_from(PIECES), max_size=6).map(lambda pieces: b'"' + b"".join(pieces) + b'"')
NUMBERS = st.sampled_from(
    [
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"1e999",
        b"-1E+400",
        b"0",
        b"-0",
        b"1.50",
        b"9" * 30,
        b"-" + b"1" * 400,
        b"1e-999",
    ]
)


def _container(pieces: tuple[bytes, bytes, list[tuple[bytes, ...]]]) -> bytes:
    """An array or an object, spaced anyhow."""
    opening, blank, items = pieces
    inner = (b"," + blank).join(blank + b"".join(item) + blank for item in items)
    return opening + (inner or blank) + (b"]" if opening == b"[" else b"}")


def _object(values: st.SearchStrategy[bytes], keys: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    members = st.lists(st.tuples(keys, BLANKS, st.just(b":"), BLANKS, values), max_size=4)
    return st.tuples(st.just(b"{"), BLANKS, members).map(_container)


VALUES = st.recursive(
    STRINGS | NUMBERS | st.sampled_from([b"null", b"true"]),
    lambda inner: (
        _object(inner, STRINGS) | st.tuples(st.just(b"["), BLANKS, st.lists(st.tuples(inner))).map(_container)
    ),
    max_leaves=6,
)
ODD_KEYS = st.sampled_from([b'"x"', b'"name"', b'"tool_calls"', b'"content"', b'"x"', b'"reasoning_content"'])


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """One message, with odd members before and behind its role."""
    members = [(draw(ODD_KEYS), b":", draw(VALUES)) for _ in range(draw(st.integers(0, 3)))]
    members.insert(draw(st.integers(0, len(members))), (b'"role"', b":", draw(st.sampled_from([b'"user"', b'"x"']))))
    members.append((b'"content"', b":", draw(STRINGS)))
    return _container((b"{", draw(BLANKS), members))


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    """A body that the standard library reads, and its messages."""
    drawn = draw(st.lists(messages(), min_size=1, max_size=4))
    array = _container((b"[", draw(BLANKS), [(item,) for item in drawn]))
    around = st.tuples(st.sampled_from([b'"y"', b'"NaN"', b'"tools"', b'"messages "']), st.just(b":"), VALUES)
    members = [*draw(st.lists(around, max_size=2)), (b'"messages"', b":", array), *draw(st.lists(around, max_size=2))]
    mark = draw(st.sampled_from([b"", b"\xef\xbb\xbf"]))
    return mark + draw(BLANKS) + _container((b"{", draw(BLANKS), members)) + draw(BLANKS), drawn


def _read(body: bytes) -> Request:
    return CHAT.read(body)


@given(bodies())
def test_what_the_standard_library_reads_is_compacted_and_keeps_its_bytes(drawn: tuple[bytes, list[bytes]]) -> None:
    """Each message is found with its bytes. Dropping one leaves all other bytes in place."""
    body, expected = drawn
    json.loads(body)

    request = _read(body)
    assert list(request.raws) == expected
    counting = Counting(count_by_heuristic, make_known())
    original = CHAT.decode(request, counting)
    assert [message.raw for message in original.messages] == expected
    assert b"".join(CHAT.encode(request, original, original)) == body
    shorter = b"".join(
        CHAT.encode(request, original, replace(original, messages=original.messages[1:], origins=original.origins[1:]))
    )
    _, _, behind = body.partition(expected[0])
    assert shorter.endswith(behind.lstrip(b", \n\t\r"))
    assert list(_read(shorter).raws) == expected[1:]


@given(VALUES)
def test_any_value_is_decoded(value: bytes) -> None:
    """The repaired text has its old length and no lone surrogate."""
    assert len(mend(value)) == len(value)
    msgspec.json.encode(decode_any(value))


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


@given(st.lists(WRITTEN, max_size=4), SPACES)
def test_each_item_keeps_its_bytes(items: list[bytes], space: bytes) -> None:
    """The same for arrays."""
    raw = space + b"[" + space + (space + b"," + space).join(items) + space + b"]"
    assert list(map(bytes, decode_items(raw))) == items


@pytest.mark.parametrize(
    ("raw", "name", "value"),
    [
        (b'{"a":"\\ud83d"}', "a", "\ufffd"),
        (b'{"a":"\xed\xa0\xbd"}', "a", "\ufffd"),
        (b'{"\\ud83d":1}', "\ufffd", 1),
        (b'\xef\xbb\xbf{"a":1}', "a", 1),
        (b'{"a":NaN}', "a", 0),
        (b'{"a":"\xed\x95\x9c"}', "a", "\ud55c"),
    ],
)
def test_what_other_decoders_accept_is_repaired(raw: bytes, name: str, value: object) -> None:
    """Lone surrogates, a byte order mark, NaN. A whole character that begins with the byte 0xED stays."""
    members = read_members(raw)
    assert {key: decode_any(bytes(member)) for key, member in members.items()} == {name: value}


@pytest.mark.parametrize("raw", [b"", b"{", b"null", b"[]", b'"a"', b'{"a":1} 2', b'{"\xff":1}', b'{"a":%s}' % DEEP])
def test_what_is_no_object_raises_an_expected_error(raw: bytes) -> None:
    """It is invalid JSON, another value, or too deeply nested."""
    with pytest.raises(DECODE_ERRORS):
        read_members(raw)


@pytest.mark.parametrize("raw", [b"", b"[", b"null", b"{}", b"[1] 2", b"[1,]", b"[%s]" % DEEP])
def test_what_is_no_array_raises_an_expected_error(raw: bytes) -> None:
    """The same for arrays."""
    with pytest.raises(DECODE_ERRORS):
        decode_items(raw)


@given(st.binary(max_size=40) | st.binary(max_size=20).map(lambda junk: b'{"a":"\xed' + junk + b'"}'))
def test_junk_raises_nothing_else(raw: bytes) -> None:
    """Any bytes are an object, or raise one of the expected errors."""
    try:
        members = read_members(raw)
    except DECODE_ERRORS:
        return
    assert all(isinstance(value, msgspec.Raw) for value in members.values())


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


DIALECTS = pytest.mark.parametrize(
    ("codec", "key", "write"),
    [(CHAT, "messages", _chat), (RESPONSES, "input", _responses), (MESSAGES, "messages", _messages)],
)


def _pair(codec: Codec, key: str, elements: list[Wire]) -> list[Wire]:
    """The elements after pairing."""
    body = orjson.dumps({"model": "m", key: [{"role": "user", "content": "go"}, *elements]})
    request = codec.read(body)
    before = codec.decode(request, Counting(count_by_heuristic, make_known()))
    outcome = pair_tool_calls(before, count=count_by_heuristic)
    after = outcome.conversation if outcome.decisions else before
    return list(orjson.loads(b"".join(codec.encode(request, before, after)))[key][1:])


@DIALECTS
@pytest.mark.parametrize(
    "ids", [(1, 1), (1, "1"), ("1", 1), (1.0, 1), (0, 0), (0, "0"), (1697377797897, 1697377797897.0)]
)
def test_ids_are_compared_by_value(
    codec: Codec, key: str, write: Callable[[Wire, Wire | None], list[Wire]], ids: tuple[Any, Any]
) -> None:
    """A number is the same id as its text, on both sides."""
    elements = write({"id": ids[0]}, {"id": ids[1]})
    assert _pair(codec, key, elements) == elements


@DIALECTS
@pytest.mark.parametrize("call_id", [{"id": 1}, {"id": "call_1"}, {"id": None}])
@pytest.mark.parametrize("answered", [{}, {"id": None}, {"id": ""}])
def test_a_result_without_an_id_passes_as_it_is(
    codec: Codec, key: str, write: Callable[[Wire, Wire | None], list[Wire]], call_id: Wire, answered: Wire
) -> None:
    """If it is the only one behind the only call."""
    elements = write(call_id, answered)
    assert _pair(codec, key, elements) == elements


@DIALECTS
@pytest.mark.parametrize("call_id", [{"id": 1}, {"id": "call_1"}])
@pytest.mark.parametrize("answered", [{"id": "other"}, {"id": 7}])
def test_a_result_with_the_id_of_no_call_gets_that_of_its_call(
    codec: Codec, key: str, write: Callable[[Wire, Wire | None], list[Wire]], call_id: Wire, answered: Wire
) -> None:
    """As the call has it, and nothing else changes."""
    assert _pair(codec, key, write(call_id, answered)) == write(call_id, call_id)


@DIALECTS
def test_a_missing_result_has_the_id_that_its_call_has(
    codec: Codec, key: str, write: Callable[[Wire, Wire | None], list[Wire]]
) -> None:
    """A number stays a number."""
    (said,) = write({"id": 7}, None)
    (given,) = write({"id": 7}, {"id": 7})[1:]
    sent, made = _pair(codec, key, [said])
    assert sent == said
    assert _find_id(made) == _find_id(given) == 7


def _find_id(element: Wire) -> Any:
    held = element["content"][0] if isinstance(element.get("content"), list) else element
    return next(held[name] for name in ("tool_call_id", "call_id", "tool_use_id") if name in held)


def test_a_result_may_name_its_tool_as_ollama_does() -> None:
    """It has `tool_name` and no id."""
    elements = [*_chat({}, {}), *_chat({}, {})]
    for at in (1, 3):
        elements[at] = {"role": "tool", "tool_name": "read", "content": "found"}
    assert _pair(CHAT, "messages", elements) == elements


@pytest.mark.parametrize(
    ("value", "text", "json"),
    [
        ("a", "a", b""),
        (1, "1", b"1"),
        (-1.5, "-1.5", b"-1.5"),
        (1e300, str(int(1e300)), b"1e300"),
        (float("inf"), "inf", b"null"),
        (True, "", b""),
        (None, "", b""),
        ([1], "", b""),
        ({"id": 1}, "", b""),
    ],
)
def test_what_is_no_id_has_none(value: object, text: str, json: bytes) -> None:
    """Nothing is raised whatever the value is."""
    assert (read_id(value), write_id(value)) == (text, json)


TEXTS_IN_PIECES = st.lists(
    st.sampled_from(
        [r"\ud83d", r"\ude00", r"\ud83d\ude00", r"\\", r"\"", r"\u00e9", "ud83d", "a", r"\n", r"\uDBFF", r"\uDFFF"]
    )
).map("".join)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (r"a\ud83d b", r"a\ufffd b"),
        (r"\ude00\ud83d", r"\ufffd\ufffd"),
        (r"\ud83d\ud83d\ude00", r"\ufffd\ud83d\ude00"),
        (r"\\ud83d", r"\\ud83d"),
        (r"\\\ud83d", r"\\\ufffd"),
        (r"\uD83D\uDE00", r"\uD83D\uDE00"),
    ],
)
def test_only_lone_surrogates_are_replaced(written: str, read: str) -> None:
    """Pairs stay, and so does a backslash that only looks like an escape."""
    assert replace_lone_surrogates(written.encode()) == read.encode()


@given(TEXTS_IN_PIECES)
def test_what_comes_out_is_readable_and_as_long(text: str) -> None:
    """Every string of escapes can be decoded afterwards, and all offsets stay valid."""
    json = f'"{text}"'.encode()
    clean = replace_lone_surrogates(json)

    assert len(clean) == len(json)
    assert isinstance(msgspec.json.decode(clean), str)
