"""Members of an object and items of an array, in their own bytes."""

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.odd_json import ODD, dump

from trimtab.proxy.wire.json.decode import DECODE_ERRORS, decode_any, decode_items, decode_members, read_members

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
