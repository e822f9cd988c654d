"""Which earlier body a body continues, and which are kept."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.transcript.body import (
    COPIES,
    ELEMENT_BYTES,
    MAX_ALIKE,
    Beginning,
    Beginnings,
    weigh_beginnings,
)

MESSAGES = st.lists(
    st.sampled_from(
        [
            b'{"role":"user","content":"go on"}',
            b'{ "content" : "h\xc3\xa9" , "role" : "user" }',
            b'{"role":"assistant","content":null,"tool_calls":[{"id":"c","function":{"name":"ls","arguments":"{}"}}]}',
            b'{"role":"tool","tool_call_id":"c","content":"a, \\"b\\" ]}"}',
            b"{}",
            b"1",
            b"12",
            b'"x"',
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


def _begin(body: bytes) -> Beginning:
    beginning = CHAT.read(body).beginning
    assert beginning is not None
    return beginning


def _make(*messages: str) -> bytes:
    return orjson.dumps({"model": "m", "messages": [{"role": "user", "content": text} for text in messages]})


@given(MESSAGES, MESSAGES, SEPARATORS)
def test_common_elements_are_counted_one_by_one(first, second, separator) -> None:
    head = b'{"messages":['
    beginning = _begin(head + separator.join(first) + b"]}")
    other = head + separator.join(second) + b"]}"
    number = beginning.count_common(other)
    assert all(beginning.holds(other, each) for each in range(1, number + 1))
    assert not any(beginning.holds(other, each) for each in range(number + 1, len(first) + 1))


def _keep(beginnings: Beginnings, *texts: str) -> Beginning:
    body = _make(*texts)
    begun = beginnings.find("chat", body)
    request = CHAT.read(body, begun)
    assert request.beginning is not None
    beginnings.keep("chat", request.beginning, begun)
    return request.beginning


def test_each_branch_finds_its_longest_prefix() -> None:
    """Sub-agents share a beginning; a rewind goes back to an earlier message."""
    beginnings, a = Beginnings({}, 10**9), "a" * 5000
    one, two = _keep(beginnings, a, "b", "c", "d"), _keep(beginnings, a, "b", "x")
    for texts, beginning, number in (
        ((a, "b", "c", "d", "e"), one, 4),
        ((a, "b", "x", "y"), two, 3),
        ((a, "b", "c", "other"), one, 3),
        ((a, "z"), None, 1),
    ):
        found = beginnings.find("chat", _make(*texts))
        assert found is not None
        assert found.number == number
        assert beginning is None or found.beginning is beginning
    assert beginnings.find("chat", _make("z")) is None
    assert beginnings.find("other", _make(a, "b", "x", "y")) is None


def test_a_session_takes_one_place() -> None:
    kept: dict[tuple[str, bytes], tuple[Beginning, ...]] = {}
    beginnings = Beginnings(kept, 10**9)
    text = "a" * 5000  # longer than HEAD_BYTES
    for number in range(1, 5):
        _keep(beginnings, text, *map(str, range(number)))
    _keep(beginnings, text, "0", "branch")
    (alike,) = kept.values()
    assert [len(each.raws) for each in alike] == [3, 5]


def test_what_is_kept_is_bounded() -> None:
    """The bounds are on bytes and on the number. The least recently used is dropped first."""
    kept: dict[tuple[str, bytes], tuple[Beginning, ...]] = {}
    text = "a" * 5000
    many = Beginnings(kept, 10**9)
    for number in range(MAX_ALIKE + 3):
        _keep(many, text, f"branch {number}")
    (alike,) = kept.values()
    assert len(alike) == MAX_ALIKE
    assert alike[0].raws[1] == orjson.dumps({"role": "user", "content": f"branch {MAX_ALIKE + 2}"})

    size_bytes = alike[0].size_bytes
    few = Beginnings(kept := {}, 3 * size_bytes)
    for number in range(10):
        _keep(few, text, f"branch {number}")
    ((key, alike),) = kept.items()
    assert len(alike) == 3
    assert weigh_beginnings(key, alike) == len(key[1]) + sum(each.size_bytes for each in alike) <= 4 * size_bytes


def test_a_body_weighs_its_copies_and_its_elements() -> None:
    body = _make("a", "b", "c")
    assert _begin(body).size_bytes == COPIES * len(body) + 3 * ELEMENT_BYTES


def test_one_time_requests_have_a_quarter_of_the_place() -> None:
    """What was continued may fill the rest. A body that is kept anew stands first, whatever it leaves to the others."""
    kept: dict[tuple[str, bytes], tuple[Beginning, ...]] = {}
    text = "a" * 5000
    size_bytes = _begin(_make(text, "branch 00")).size_bytes
    beginnings = Beginnings(kept, 12 * size_bytes)
    for number in range(10):
        beginnings.keep("chat", _begin(_make(text, f"branch {number:02}")), None)
    (alike,) = kept.values()
    assert [each.raws[1][-4:-2] for each in alike] == [b"09", b"08", b"07", b"06"]  # the new one, and three beside it

    kept.clear()
    for number in range(20):
        grown = _begin(_make(text, f"branch {number:02}"))
        grown.is_grown = True
        beginnings.keep("chat", grown, None)
    (alike,) = kept.values()
    assert [each.raws[1][-4:-2] for each in alike] == [b"%02d" % number for number in range(19, 7, -1)]


def test_a_body_without_messages_is_not_kept() -> None:
    kept: dict[tuple[str, bytes], tuple[Beginning, ...]] = {}
    Beginnings(kept, 10**9).keep("chat", _begin(b'{"messages":[]}'), None)
    assert not kept
