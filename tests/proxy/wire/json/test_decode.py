"""JSON that the standard library reads is read, and its messages keep their bytes."""

import json  # noqa: TID251 - the reference for these tests
from contextlib import suppress
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.codec import Counting, Request
from trimtab.proxy.wire.json.decode import DECODE_ERRORS, decode_any, mend

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
