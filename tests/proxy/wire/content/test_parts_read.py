"""The content of a message: its texts and its other parts."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.odd_json import ODD, dump

from trimtab.proxy.wire.content.cache_help import CACHE_MARKERS
from trimtab.proxy.wire.content.media import count_part
from trimtab.proxy.wire.content.parts import (
    TEXT_PARTS,
    TOLERATED_BYTES,
    begins,
    has_uncounted,
    read_content,
    read_media,
    read_text,
    write_canonical,
)
from trimtab.proxy.wire.json.decode import DECODE_ERRORS
from trimtab.rules.tokens.families import find_family

GPT = find_family("gpt-4o").costs
IMAGE = b'{"type":"image_url","image_url":{"url":"https://a/b.png"}}'
TEXTS = st.fixed_dictionaries({"type": st.sampled_from(sorted(TEXT_PARTS)), "text": st.text(max_size=3)})
ODD_PARTS = st.fixed_dictionaries({"type": st.sampled_from(["text", "image"]) | ODD, "text": st.text(max_size=3) | ODD})
PARTS = st.lists(TEXTS | ODD_PARTS | ODD, max_size=5)
SPACES = st.sampled_from([b"", b" ", b"\n\t"])


def _is_text(part: Any) -> bool:
    if not isinstance(part, dict) or not isinstance(part.get("text"), str):
        return False
    return isinstance(part.get("type"), str) and part["type"] in TEXT_PARTS


@given(PARTS, SPACES)
def test_each_part_is_a_text_or_another_part(parts: list[Any], space: bytes) -> None:
    """In wire order. Another part keeps its bytes, and comes with the last text before it."""
    raw = b"[" + (space + b"," + space).join(map(dump, parts)) + space + b"]"
    texts, media = read_content(msgspec.Raw(raw))

    assert texts == tuple(part["text"] for part in parts if _is_text(part))
    before, expected = "", []
    for part in parts:
        if _is_text(part):
            before = part["text"]
        else:
            expected.append((dump(part), before))
    assert media == tuple(expected)


def test_another_part_comes_with_the_text_right_before_it() -> None:
    """A client that names its images does so there."""
    one, two = (b'{"type":"text","text":"%s"}' % text for text in (b"one", b"two"))
    content = b"[" + b",".join([IMAGE, one, two, IMAGE, IMAGE]) + b"]"
    assert read_content(msgspec.Raw(content)) == (("one", "two"), ((IMAGE, ""), (IMAGE, "two"), (IMAGE, "two")))


@pytest.mark.parametrize(
    ("content", "texts", "media"),
    [
        (b'"a\\nb"', ("a\nb",), ()),
        (b'""', ("",), ()),
        (b"null", (), ()),
        (b"[]", (), ()),
        (b"5", (), (b"5",)),
        (b"true", (), (b"true",)),
        (b'{"type":"text","text":"a"}', (), (b'{"type":"text","text":"a"}',)),
        (b'["a"]', (), (b'"a"',)),
        (b'[[{"type":"text","text":"a"}]]', (), (b'[{"type":"text","text":"a"}]',)),
    ],
)
def test_content_may_have_any_form(content: bytes, texts: tuple[str, ...], media: tuple[bytes, ...]) -> None:
    """A string is one text, null is nothing, and a value that is not an array is one part that is not text."""
    assert read_content(msgspec.Raw(content)) == (texts, tuple((part, "") for part in media))


def test_absent_content_is_nothing() -> None:
    assert read_content(None) == ((), ())


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (b'{"type":"text","text":"a"}', "a"),
        (b'{"text":"a","x":1,"type":"input_text"}', "a"),
        (b'{"type":"output_text","text":"","annotations":[]}', ""),
        (b'{"type":"text","text":"a","text":"b"}', "b"),
        (b'{"type":"text","text":"\\u0061"}', "a"),
        (b'{"type":"text"}', None),
        (b'{"text":"a"}', None),
        (b'{"type":"text","text":null}', None),
        (b'{"type":"text","text":5}', None),
        (b'{"type":["text"],"text":"a"}', None),
        (b'{"type":{},"text":"a"}', None),
        (b'{"type":"refusal","text":"a"}', None),
        (b'"text"', None),
        (b"null", None),
        (b"", None),
    ],
)
def test_a_text_part_has_a_known_type_and_a_text(part: bytes, text: str | None) -> None:
    """Any other part has no text; of a repeated name, the last value counts."""
    assert read_text(part) == text


@given(st.binary(max_size=40) | st.binary(max_size=30).map(lambda junk: b'[{"type":"text","text":' + junk + b"}]"))
def test_junk_raises_nothing_else(content: bytes) -> None:
    """Any bytes are read, or raise one of the expected errors."""
    try:
        texts, media = read_content(msgspec.Raw(content))
    except DECODE_ERRORS:
        return
    assert all(isinstance(text, str) for text in texts)
    assert all(isinstance(part, bytes) for part, _ in media)


@pytest.mark.parametrize("name", CACHE_MARKERS)
@pytest.mark.parametrize("part", [IMAGE, b'{"type":"later","x":"abc"}'])
def test_a_part_costs_the_same_with_a_marker(part: bytes, name: str) -> None:
    """It keeps its bytes, marker included."""
    marked = part[:-1] + b',"%s":{"type":"ephemeral"}}' % name.encode()
    plain, kept = (read_media(each, "see shot.png", len, GPT) for each in (part, marked))

    assert kept.raw == marked
    assert (kept.tokens, kept.line, kept.line_tokens) == (plain.tokens, plain.line, plain.line_tokens)
    assert (plain.tokens, plain.guessed_tokens) == count_part(part, len, GPT)


def test_only_an_image_has_a_line() -> None:
    """The line is counted. A part without a line costs nothing for it."""
    image, other = (read_media(part, "", len, GPT) for part in (IMAGE, b'{"type":"later"}'))
    assert "b.png" in image.line
    assert image.line_tokens == len(image.line)
    assert (other.line, other.line_tokens) == ("", 0)


@given(st.dictionaries(st.text(max_size=3), ODD, max_size=3), st.randoms(use_true_random=False), st.data())
def test_the_canonical_form_ignores_how_a_part_is_written(
    part: dict[str, Any], random: Any, data: st.DataObject
) -> None:
    """Key order, white space and cache markers do not change it."""
    markers = data.draw(st.dictionaries(st.sampled_from(CACHE_MARKERS), ODD, max_size=2))
    part = {name: value for name, value in part.items() if name not in CACHE_MARKERS}
    members = list({**part, **markers}.items())
    random.shuffle(members)

    written = msgspec.json.format(dump(dict(members)), indent=data.draw(st.integers(-1, 2)))
    assert write_canonical(written) == write_canonical(dump(part))


@given(ODD, ODD)
def test_parts_that_say_something_else_have_another_canonical_form(one: Any, other: Any) -> None:
    """Only equal JSON values have the same form."""
    assert (write_canonical(dump(one)) == write_canonical(dump(other))) is (
        msgspec.json.encode(one, order="sorted") == msgspec.json.encode(other, order="sorted")
    )


@given(st.binary(max_size=5), st.binary(min_size=1, max_size=1))
def test_the_first_byte_of_a_value_tells_its_kind(value: bytes, sign: bytes) -> None:
    assert begins(msgspec.Raw(value), sign) is value.startswith(sign)


@pytest.mark.parametrize(("more_bytes", "is_uncounted"), [(0, False), (1, True)])
def test_a_short_member_that_is_not_known_is_tolerated(more_bytes: int, *, is_uncounted: bool) -> None:
    """It costs a token or two at most. A known one is counted, however long it is."""
    value = msgspec.Raw(b"1" * (TOLERATED_BYTES + more_bytes))
    assert has_uncounted({"new": value}, frozenset({"known"})) is is_uncounted
    assert not has_uncounted({"known": value}, frozenset({"known"}))
