"""Splitting a body into its elements, and going on from an earlier body."""

from itertools import accumulate

import msgspec
import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from trimtab.proxy.wire.json import BYTE_ORDER_MARK, find_array, find_member
from trimtab.proxy.wire.transcript.body import (
    MAX_PARTS,
    MIN_BYTES,
    Decoded,
    Edit,
    Form,
    KeptBody,
    PrefixMatch,
    Split,
    UndecodableError,
    find_elements,
    replace_outside,
    split_body,
)
from trimtab.proxy.wire.transcript.elements import Written
from trimtab.rules.conversation import Message, Role, whole_elements
from trimtab.rules.results.work import LargeWorkError

TYPES = list[msgspec.Raw] | str | None
FORM = Form("items", ("things",), ("name",), long=("things",), elements=TYPES)
ELEMENTS = st.lists(
    st.sampled_from(
        [
            b'{"said":"go on"}',
            b'{ "said" : "h\xc3\xa9" , "items" : [ ] }',
            b'{"said":"a, \\"b\\" ]}","n":1.50}',
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
HEADS = st.sampled_from(
    [
        b'{"items":[',
        b'{"name":"m","things":[{"a":"items"},{"items":[1]}],"items": [ ',
        b' {"items":[7],"name":"\\"items\\":[","items":[',
        b'{"items":"text","it\\u0065ms":[8],"items":[',
        b'{"later":{"items":[1]},"things":"]","items"\n:\t[\r\n',
    ]
)
TAILS = st.sampled_from(
    [
        b"]}",
        b' ] , "name":"n","later":true, "things":[{"items":[1]}]}',
        b'],"items":[{"said":"other"}]}',
        b'],"items":[],"items":"text"}',
        b'],"items":"text"}',
        b'],"it\\u0065ms":[1]}',
        b'],"later":NaN}',
        b'],"name":"\\ud800"}',
        b'],"name":"\xed\xa0\x80"}',
        b"",
        b",]}",
        b"]}]}",
        b']}{"items":[]}',
        b'],"x":"\xff"}',
        b'"],"name":"m"}',
    ]
)
Around = tuple[bytes, bytes, bytes]


@pytest.fixture(autouse=True)
def _any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimtab.proxy.wire.transcript.body.MIN_BYTES", 0)


def _split(body: bytes, begun: PrefixMatch | None = None) -> Split | str:
    """The parts of a body, or the problem with it. The elements in `members` are left out; see Split."""
    try:
        split = split_body(FORM, body, begun)
    except UndecodableError as error:
        return str(error)
    return replace(split, members=replace(split.members, items=None))


def _begin(body: bytes) -> KeptBody:
    kept_body = split_body(FORM, body).kept_body
    assert kept_body is not None
    return kept_body


def _tell(split: Split | str) -> object:
    if isinstance(split, str) or split.kept_body is None:
        return split
    array, raws, body = split.kept_body.array, split.kept_body.raws, split.kept_body.body
    return replace(split, kept_body=None), array, raws, body


@given(st.tuples(HEADS, SEPARATORS, TAILS), ELEMENTS)
@example((b'{"items":[', b",", b'],"it\\u0065ms":[1]}'), [b"1"])
@example((b'{"items":[', b",", b'],"items":[],"items":"text"}'), [b"1"])
def test_each_element_keeps_its_bytes_and_has_its_place(around: Around, elements: list[bytes]) -> None:
    """If the array is found, its spans are those of the elements, and decoders read this array and no other."""
    head, separator, tail = around
    split = _split(head + separator.join(elements) + tail)
    if isinstance(split, str):
        return
    assert split.raws in (tuple(elements), (b'{"said":"other"}',), (b"1",), (), (*elements[:-1], elements[-1] + b"2"))
    if split.kept_body is not None:
        body, array = split.kept_body.body, split.kept_body.array
        assert tuple(body[span.start : span.stop] for span in array.elements) == split.kept_body.raws == split.raws
        other = _split(body[: array.start] + b'["new"]' + body[array.stop :])
        assert not isinstance(other, str)
        assert other.raws == (b'"new"',)


@given(st.tuples(HEADS, SEPARATORS, TAILS), TAILS, ELEMENTS, ELEMENTS, st.integers(0, 6), st.binary(max_size=3))
@example((b'{"items":[', b",", b"]}"), b"]}", [b"1"], [b"12"], 0, b"")
@example((b'{"items":[', b",", b'],"items":[1]}'), b"]}", [b"1"], [b"2"], 1, b"")
def test_what_goes_on_is_split_as_if_it_were_new(
    around: Around, earlier_tail: bytes, first: list[bytes], second: list[bytes], kept: int, noise: bytes
) -> None:
    """Whatever follows the common part, even if it is not JSON or has to be repaired."""
    head, separator, tail = around
    earlier = _split(head + separator.join(first) + earlier_tail)
    if isinstance(earlier, str) or earlier.kept_body is None:
        return
    body = head + separator.join([*first[:kept], *second]) + noise + tail
    for number in range(1, earlier.kept_body.count_common(body) + 1):
        assert _tell(_split(body, PrefixMatch(earlier.kept_body, number))) == _tell(_split(body))


@pytest.mark.parametrize("max_parts", [MAX_PARTS, 24])
@given(turns=st.lists(ELEMENTS, min_size=2, max_size=6), around=st.tuples(HEADS, SEPARATORS))
def test_a_session_is_split_on_from_request_to_request(
    max_parts: int, turns: list[list[bytes]], around: tuple[bytes, bytes]
) -> None:
    """Each request continues the one before. A limit for the parts of a body applies to all of it."""
    head, separator = around
    begun: PrefixMatch | None = None
    for elements in accumulate(turns, lambda one, other: [*one, *other]):
        body = head + separator.join(elements) + b"]}"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("trimtab.proxy.wire.transcript.body.MAX_PARTS", max_parts)
            split, whole = _split(body, begun), _split(body)
        assert _tell(split) == _tell(whole)
        if isinstance(split, str) or split.kept_body is None:
            return
        assert max_parts < MAX_PARTS or split.kept_body.is_grown is (begun is not None)
        begun = PrefixMatch(split.kept_body, len(elements))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b',"later":NaN'),
        (b'"name":"\\ud83d",', b""),
        (b"", b',"name":"\xed\xa0\xbd"'),
        (b'"later":[-Infinity],', b""),
    ],
)
@pytest.mark.parametrize("element", [b'{"said":"x"}', b'{"said":"\\ud83d"}', b'{"n":NaN}', b'"\xed\xa0\xbd"'])
@pytest.mark.parametrize("mark", [b"", BYTE_ORDER_MARK])
def test_a_repaired_body_keeps_the_bytes_of_its_elements(
    before: bytes, after: bytes, element: bytes, mark: bytes
) -> None:
    """Such a body cannot be continued. If it is long, a limit for the work keeps it from being repaired."""
    body = mark + b"{" + before + b'"items":[%s , 1]' % element + after + b"}"
    split = split_body(FORM, body)
    assert (split.raws, split.kept_body) == ((element, b"1"), None)

    assert split_body(FORM, body, max_chars=len(body)) == split
    with pytest.raises(LargeWorkError):
        split_body(FORM, body, max_chars=len(body) - 1)


@pytest.mark.parametrize(
    "body",
    [b'{"it\\u0065ms":[1]}', b'{"items":[1],"it\\u0065ms":[1]}', b'{"it\\u0065ms":[1], "later":{"items":[1]}}'],
)
def test_elements_under_an_escaped_key_are_read_but_have_no_place(body: bytes) -> None:
    """So such a body cannot be continued, and its transcript cannot be replaced."""
    split = split_body(FORM, body)
    assert (split.raws, split.kept_body) == ((b"1",), None)
    with pytest.raises(UndecodableError):
        find_elements(FORM, body, split.raws)


@pytest.mark.parametrize("body", [b"{}", b'{"items":null}', b'{"items":"text"}', b'{"items":[],"items":"text"}'])
def test_a_transcript_of_another_form_has_no_elements(body: bytes) -> None:
    split = split_body(FORM, body)
    assert (split.raws, split.kept_body) == ((), None)
    assert split.members.items == msgspec.json.decode(body).get("items")
    with pytest.raises(UndecodableError):
        find_elements(FORM, body, ())


DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"null", b'{"items":{}}', b'{"items":[1]} 2', b'{"items":[%s]}' % DEEP],
    ids=lambda body: body[:20].decode(),
)
def test_what_is_no_request_is_undecodable(body: bytes) -> None:
    """No JSON, another value, or nested too deeply."""
    with pytest.raises(UndecodableError):
        split_body(FORM, body)


@given(st.binary(max_size=40) | st.binary(max_size=30).map(lambda junk: b'{"items":[1,' + junk), st.booleans())
def test_junk_raises_nothing_else(body: bytes, goes_on: bool) -> None:  # noqa: FBT001
    """Any bytes are split or undecodable, also as the rest of an earlier body."""
    begun = PrefixMatch(_begin(b'{"items":[1]}'), 1) if goes_on and body.startswith(b'{"items":[1') else None
    assert _tell(_split(body, begun)) == _tell(_split(body))


def test_what_was_derived_from_the_common_elements_goes_along() -> None:
    """Messages of these elements stay. So does what was forwarded of them, as far as that is known."""
    earlier = _begin(b'{"items":[1,2,3]}')
    messages = tuple(Message(Role.USER, (text,)) for text in "123")
    earlier.decoded[7] = Decoded(messages, whole_elements(3))
    early = Written((), (), (b"1,2",), 2, 2)
    earlier.written = Written((), (), (b"1,2", b",3"), 3, 3, early)
    for number in (1, 2, 3):
        body = b'{"items":[' + b",".join([b"1", b"2", b"3"][:number]) + b",4]}"
        on = split_body(FORM, body, PrefixMatch(earlier, number)).kept_body
        assert on.decoded == {7: Decoded(messages[:number], whole_elements(number))}
        assert on.written == {1: None, 2: early, 3: replace(earlier.written, before=None)}[number]


def test_what_stands_behind_the_transcript_does_not_add_up() -> None:
    """The bound of parts is that of the elements, from body to body."""
    behind = b'],"things":[' + b",".join([b"1"] * 100) + b"]}"
    kept_body = _begin(b'{"items":[1' + behind)
    for number in (1, 2, 3):
        body = b'{"items":[1' + b",1" * number + behind
        on = split_body(FORM, body, PrefixMatch(kept_body, number)).kept_body
        assert on.parts < 20
        kept_body = on


def test_a_short_body_is_always_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b'{"items":[1]}'
    for least_bytes, is_kept in ((len(body), True), (len(body) + 1, False), (MIN_BYTES, False)):
        monkeypatch.setattr("trimtab.proxy.wire.transcript.body.MIN_BYTES", least_bytes)
        assert (split_body(FORM, body).kept_body is not None) is is_kept


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
    pieces = (body[: array.start] + NEW_ITEMS[:4], NEW_ITEMS[4:-1], b"]" + body[array.stop :])
    one, two = _edit(body, "a", b"0"), _edit(body, "b", b'"longer"')
    for first, second in ((one, two), (two, one)):
        done = replace_outside(body, array.start, pieces, first)
        written = b"".join(replace_outside(body, array.start, done, second, first))
        expected = body.replace(b'"long value of a"', b"0").replace(b"{ }", b'"longer"').replace(b"[1, 2]", NEW_ITEMS)
        assert written == expected
        assert orjson.loads(written)["b"] == "longer"
