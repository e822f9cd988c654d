"""A member beside the transcript gets a new value; every other byte stays."""

import orjson
import pytest

from proxy.wire.json.spans import find_array, find_member
from proxy.wire.transcript.outside import Edit, replace_outside

NEW_ITEMS = b'["other","items"]'


def _edit(body: bytes, name: str, value: bytes) -> Edit:
    place = find_member(body, b'"%b"' % name.encode())
    assert place is not None
    return Edit(place, value)


@pytest.mark.parametrize("order", ["abi", "aib", "iab", "bai", "bia", "iba"])
def test_two_members_are_replaced_wherever_they_stand(order: str) -> None:
    """Before the transcript or after it, in either order, also if the first replacement changed the length."""
    values = {"a": '"long value of a"', "b": "{ }", "i": "[1, 2]"}
    body = ("{" + " , ".join(f'"{name}": {values[name]}' for name in order) + "} ").encode()
    array = find_array(body, b'"i"', [b"1", b"2"])
    assert array is not None
    pieces = (body[: array.start] + NEW_ITEMS[:4], NEW_ITEMS[4:-1], b"]" + body[array.stop :])
    one, two = _edit(body, "a", b"0"), _edit(body, "b", b'"longer"')
    for first, second in ((one, two), (two, one)):
        done = replace_outside(body, array.start, pieces, first)
        written = b"".join(replace_outside(body, array.start, done, second, first))
        expected = body.replace(b'"long value of a"', b"0").replace(b"{ }", b'"longer"').replace(b"[1, 2]", NEW_ITEMS)
        assert written == expected
        assert orjson.loads(written)["b"] == "longer"


def test_a_body_of_one_piece() -> None:
    """Nothing in its transcript has changed."""
    body = b'{"a":1,"i":[],"b":2}'
    start = body.index(b"[")
    assert replace_outside(body, start, (body,), _edit(body, "a", b"10")) == (b'{"a":10,"i":[],"b":2}',)
    assert replace_outside(body, start, (body,), _edit(body, "b", b"20")) == (b'{"a":1,"i":[],"b":20}',)
