"""What is found in a body is the same whether or not an earlier body is known, and each element is looked at once."""

import re

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.codec import Request
from trimtab.proxy.wire.transcript.body import PrefixMatch, find_all, look_through


@pytest.fixture(autouse=True)
def _any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies of a few bytes are kept, too."""
    monkeypatch.setattr("trimtab.proxy.wire.transcript.body.MIN_BYTES", 0)


def _is_marked(raw: bytes) -> bool:
    return b'"m"' in raw


def _write(flags: list[bool]) -> bytes:
    messages = [{"role": "user", "content": "x", **({"m": 1} if flag else {})} for flag in flags]
    return orjson.dumps({"messages": messages})


@given(st.lists(st.booleans(), min_size=1), st.lists(st.booleans()), st.data())
def test_a_known_beginning_never_changes_the_result(first: list[bool], more: list[bool], data: st.DataObject) -> None:
    earlier, seen = CHAT.read(_write(first)), list[bytes]()

    def look(raw: bytes) -> bool:
        seen.append(raw)
        return _is_marked(raw)

    assert earlier.kept_body is not None
    look_through(earlier.raws, earlier.kept_body, look)
    seen.clear()
    common = data.draw(st.integers(1, len(first)))
    grown = CHAT.read(_write([*first[:common], *more]), PrefixMatch(earlier.kept_body, common))
    expected = tuple((at, True) for at, flag in enumerate([*first[:common], *more]) if flag)
    assert look_through(grown.raws, grown.kept_body, look) == expected
    assert len(seen) == len(more)
    assert look_through(grown.raws, None, _is_marked) == expected


find = re.compile(rb'"m":(\d)').findall


def _find(request: Request) -> list[bytes]:
    return find_all(request.body, request.raws, request.kept_body, find)


@given(st.lists(st.booleans(), min_size=1), st.lists(st.booleans()))
def test_all_that_a_body_says_is_found_beside_its_elements_too(first: list[bool], more: list[bool]) -> None:
    earlier = CHAT.read(_write(first))
    assert earlier.kept_body is not None
    assert _find(earlier) == find(earlier.body)
    around = orjson.dumps({"m": 2, "messages": orjson.Fragment(_write(first)[12:-1]), "n": {"m": 3}})
    assert sorted(_find(CHAT.read(around))) == sorted(find(around))
    grown = CHAT.read(_write([*first, *more]), PrefixMatch(earlier.kept_body, len(first)))
    assert _find(grown) == find(grown.body) == find(_write([*first, *more]))
