"""Which earlier body a body continues, and which are kept."""

import re
from dataclasses import replace

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dialects.spoken.all_dialects import each_dialect
from support.dialects.spoken.dialect import Dialect

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.codec import Counting, Request
from trimtab.proxy.wire.json import Span
from trimtab.proxy.wire.transcript.body import (
    COPIES,
    ELEMENT_BYTES,
    MAX_ALIKE,
    Form,
    KeptBodies,
    KeptBody,
    PrefixMatch,
    UndecodableError,
    find_all,
    find_edit,
    look_through,
    weigh_kept_bodies,
)
from trimtab.proxy.wire.transcript.elements import OUTSIDE, take_off_outside

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


def test_a_body_weighs_its_copies_and_its_elements() -> None:
    body = _make("a", "b", "c")
    assert _begin(body).size_bytes == COPIES * len(body) + 3 * ELEMENT_BYTES


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


# What is found in a body is the same whether or not an earlier body is known, and each element is looked at once.


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


# The members of a body beside its transcript.

OUTSIDE_MESSAGES = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]


@each_dialect
def test_a_transcript_without_its_outside_begins_with_the_first_element(dialect: Dialect) -> None:
    """A message that a rule made has no position, and stays."""
    request = dialect.codec.read(orjson.dumps(dialect.write(OUTSIDE_MESSAGES)))
    transcript = dialect.codec.decode(request, Counting(count_by_heuristic, make_known()))
    inside = take_off_outside(transcript)
    assert inside.origins[:1] != (OUTSIDE,)
    assert inside.messages == transcript.messages[len(transcript.messages) - len(inside.messages) :]
    assert take_off_outside(inside) is inside
    made = replace(transcript, origins=(None, *transcript.origins[1:]))
    assert take_off_outside(made) is made


def test_a_form_reads_its_members_and_leaves_the_fixed_ones_as_they_are() -> None:
    """Other members are not looked at. A transcript that is no array has no elements, where it may be another value."""
    form = Form("items", ("tools",), ("limit",), long=("tools",))
    members = form.decode(b'{"items":[{"a" : 1}, 2],"tools":[ 1 ],"limit":"x","other":{}}')
    assert form.list_raws(members) == (b'{"a" : 1}', b"2")
    assert (bytes(members.tools), members.limit, members.model) == (b"[ 1 ]", "x", None)
    assert form.list_long(members) == [b"[ 1 ]"]
    for body in (b"{}", b'{"items":"x"}'):
        with pytest.raises(msgspec.ValidationError):
            form.decode(body)
        loose = Form("items", (), long=(), elements=list[msgspec.Raw] | str | None)
        assert loose.list_raws(loose.decode(body)) == ()


def test_a_member_whose_key_is_written_with_escapes_is_not_replaced() -> None:
    assert find_edit(b'{"s":"a","items":[]}', b'"s"', Span(18, 20), b'"b"').place == Span(5, 8)
    with pytest.raises(UndecodableError):
        find_edit(b'{"\\u0073":"a","items":[]}', b'"s"', Span(22, 24), b'"b"')
