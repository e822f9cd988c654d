"""The elements with cache markers are the same whether or not an earlier body is known, and each is looked at once."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.transcript.beginnings import Begun, find_marked


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
    earlier = CHAT.read(_write(first))
    assert earlier.beginning is not None
    find_marked(earlier.raws, earlier.beginning, _is_marked)
    common = data.draw(st.integers(1, len(first)))
    grown = CHAT.read(_write([*first[:common], *more]), Begun(earlier.beginning, common))
    expected = [at for at, flag in enumerate([*first[:common], *more]) if flag]
    seen: list[bytes] = []

    def look(raw: bytes) -> bool:
        seen.append(raw)
        return _is_marked(raw)

    assert find_marked(grown.raws, grown.beginning, look) == expected
    assert len(seen) == len(more)
    assert find_marked(grown.raws, None, _is_marked) == expected
