"""Which earlier body a body continues, and which are kept."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.transcript.body import (
    MAX_ALIKE,
    KeptBodies,
    KeptBody,
    weigh_kept_bodies,
)

MESSAGES = st.lists(
    st.sampled_from(
        [
            b'{"role":"user","content":"go on"}',
            b'{"role":"assistant","content":null,"tool_calls":[{"id":"c","function":{"name":"ls","arguments":"{}"}}]}',
            b"1",
            b"12",
        ]
    ),
    min_size=1,
    max_size=6,
)
SEPARATORS = st.sampled_from([b",", b", ", b" ,\n"])


@pytest.fixture(autouse=True)
def _any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies of a few bytes are kept, too."""
    monkeypatch.setattr("trimtab.proxy.wire.transcript.body.MIN_BYTES", 0)


def _begin(body: bytes) -> KeptBody:
    kept_body = CHAT.read(body).kept_body
    assert kept_body is not None
    return kept_body


def _make(*messages: str) -> bytes:
    return orjson.dumps({"model": "m", "messages": [{"role": "user", "content": text} for text in messages]})


@given(MESSAGES, MESSAGES, SEPARATORS)
def test_common_elements_are_counted_one_by_one(first, second, separator) -> None:
    head = b'{"messages":['
    kept_body = _begin(head + separator.join(first) + b"]}")
    other = head + separator.join(second) + b"]}"
    number = kept_body.count_common(other)
    assert all(kept_body.holds(other, each) for each in range(1, number + 1))
    assert not any(kept_body.holds(other, each) for each in range(number + 1, len(first) + 1))


def _keep(kept_bodies: KeptBodies, *texts: str) -> KeptBody:
    body = _make(*texts)
    begun = kept_bodies.find("chat", body)
    request = CHAT.read(body, begun)
    assert request.kept_body is not None
    kept_bodies.keep("chat", request.kept_body, begun)
    return request.kept_body


def test_each_branch_finds_its_longest_prefix() -> None:
    """Sub-agents share a beginning; a rewind goes back to an earlier message."""
    kept_bodies, a = KeptBodies({}, 10**9), "a" * 5000
    one, two = _keep(kept_bodies, a, "b", "c", "d"), _keep(kept_bodies, a, "b", "x")
    for texts, kept_body, number in (
        ((a, "b", "c", "d", "e"), one, 4),
        ((a, "b", "x", "y"), two, 3),
        ((a, "b", "c", "other"), one, 3),
        ((a, "z"), None, 1),
    ):
        found = kept_bodies.find("chat", _make(*texts))
        assert found.number == number
        assert kept_body is None or found.kept_body is kept_body
    assert kept_bodies.find("chat", _make("z")) is None
    assert kept_bodies.find("other", _make(a, "b", "x", "y")) is None


def test_a_session_takes_one_place() -> None:
    kept: dict[tuple[str, bytes], tuple[KeptBody, ...]] = {}
    kept_bodies = KeptBodies(kept, 10**9)
    text = "a" * 5000  # longer than HEAD_BYTES
    for number in range(1, 5):
        _keep(kept_bodies, text, *map(str, range(number)))
    _keep(kept_bodies, text, "0", "branch")
    (alike,) = kept.values()
    assert [len(each.raws) for each in alike] == [3, 5]


def test_what_is_kept_is_bounded() -> None:
    """The bounds are on bytes and on the number. The least recently used is dropped first."""
    kept: dict[tuple[str, bytes], tuple[KeptBody, ...]] = {}
    text = "a" * 5000
    many = KeptBodies(kept, 10**9)
    for number in range(MAX_ALIKE + 3):
        _keep(many, text, f"branch {number}")
    (alike,) = kept.values()
    assert len(alike) == MAX_ALIKE
    assert alike[0].raws[1] == orjson.dumps({"role": "user", "content": f"branch {MAX_ALIKE + 2}"})

    size_bytes = alike[0].size_bytes
    few = KeptBodies(kept := {}, 3 * size_bytes)
    for number in range(10):
        _keep(few, text, f"branch {number}")
    ((key, alike),) = kept.items()
    assert len(alike) == 3
    assert weigh_kept_bodies(key, alike) == len(key[1]) + sum(each.size_bytes for each in alike) <= 4 * size_bytes


def test_one_time_requests_have_a_quarter_of_the_place() -> None:
    """What was continued may fill the rest. A body that is kept anew stands first, whatever it leaves to the others."""
    kept: dict[tuple[str, bytes], tuple[KeptBody, ...]] = {}
    text = "a" * 5000
    size_bytes = _begin(_make(text, "branch 00")).size_bytes
    kept_bodies = KeptBodies(kept, 12 * size_bytes)
    for number in range(10):
        kept_bodies.keep("chat", _begin(_make(text, f"branch {number:02}")), None)
    (alike,) = kept.values()
    assert [each.raws[1][-4:-2] for each in alike] == [b"09", b"08", b"07", b"06"]  # the new one, and three beside it

    kept.clear()
    for number in range(20):
        grown = _begin(_make(text, f"branch {number:02}"))
        grown.is_grown = True
        kept_bodies.keep("chat", grown, None)
    (alike,) = kept.values()
    assert [each.raws[1][-4:-2] for each in alike] == [b"%02d" % number for number in range(19, 7, -1)]
