"""The content of a message: its texts and its other parts."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.odd_json import ODD, dump

from trimtab.proxy.wire.cache_help import CACHE_MARKERS, find_markers, find_markers_within, unmark
from trimtab.proxy.wire.content import (
    TEXT_PARTS,
    TOLERATED_BYTES,
    has_uncounted,
    read_content,
    read_text,
    replace_text,
    write_canonical,
    write_content,
)
from trimtab.proxy.wire.json import decode_any, decode_items
from trimtab.rules.conversation import Media, Message, Role

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


@pytest.mark.parametrize(
    ("content", "texts", "media"),
    [
        (b'"a\\nb"', ("a\nb",), ()),
        (b"null", (), ()),
        (b"5", (), (b"5",)),
        (b'{"type":"text","text":"a"}', (), (b'{"type":"text","text":"a"}',)),
    ],
)
def test_content_may_have_any_form(content: bytes, texts: tuple[str, ...], media: tuple[bytes, ...]) -> None:
    """A string is one text, null is nothing, and a value that is not an array is one part that is not text."""
    assert read_content(msgspec.Raw(content)) == (texts, tuple((part, "") for part in media))


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


@pytest.mark.parametrize(("more_bytes", "is_uncounted"), [(0, False), (1, True)])
def test_a_short_member_that_is_not_known_is_tolerated(more_bytes: int, *, is_uncounted: bool) -> None:
    """It costs a token or two at most. A known one is counted, however long it is."""
    value = msgspec.Raw(b"1" * (TOLERATED_BYTES + more_bytes))
    assert has_uncounted({"new": value}, frozenset({"known"})) is is_uncounted
    assert not has_uncounted({"known": value}, frozenset({"known"}))


TYPES = st.sampled_from(sorted(TEXT_PARTS))
MARKERS = st.dictionaries(st.sampled_from(CACHE_MARKERS), st.integers(0, 9), max_size=1)
TEXT_JSON = st.builds(
    lambda kind, text, more, markers: dump({"type": kind, "text": text, **more, **markers}),
    TYPES,
    st.text(max_size=3),
    st.dictionaries(st.just("x"), ODD, max_size=1),
    MARKERS,
)
MEDIA_JSON = st.builds(lambda kind, markers: dump({"type": kind, **markers}), st.sampled_from(["image", "x"]), MARKERS)
SPACED = st.sampled_from([b'{"text" : "a" ,"type":"text"}', b'{"type":"text","text":"\\u0061", "n":1.50 }'])
PARTS_IN_JSON = st.lists(TEXT_JSON | SPACED | MEDIA_JSON | ODD.map(dump), max_size=5)
CONTENTS = PARTS_IN_JSON.map(lambda parts: b"[" + b", ".join(parts) + b"]") | ODD.map(dump) | st.none()
NEW_TEXTS = st.lists(st.text(max_size=3), min_size=1, max_size=4).map(tuple)


def _read(content: bytes | None) -> Message:
    texts, media = read_content(None if content is None else msgspec.Raw(content))
    return Message(Role.USER, texts, media=tuple(Media(part, 85) for part, _ in media), edited=True)


def _write(message: Message, content: bytes | None, text_type: str = "text") -> bytes:
    return write_content(message, None if content is None else msgspec.Raw(content), text_type)


def _list_parts(content: bytes | None) -> list[bytes]:
    return list(map(bytes, decode_items(content))) if content is not None and content[:1] == b"[" else []


@given(CONTENTS, NEW_TEXTS, st.data())
def test_what_is_written_is_what_the_message_says(content: bytes | None, texts: tuple[str, ...], data: Any) -> None:
    """Its texts and its media, in order, whatever the old content was. A string holds all texts in one."""
    media = _read(content).media + tuple(Media(raw, 85) for raw in data.draw(st.lists(MEDIA_JSON, max_size=2)))
    message = replace(_read(content), texts=texts, media=media)
    written, written_media = read_content(msgspec.Raw(_write(message, content)))

    is_string = not media and (content is None or content[:1] != b"[")
    assert written == (("\n\n".join(texts),) if is_string else texts)
    kept = [decode_any(unmark(part)) for part, _ in written_media]
    assert kept == [decode_any(unmark(part.raw)) for part in media]


@given(PARTS_IN_JSON, st.data())
def test_a_new_text_changes_its_own_part_alone(parts: list[bytes], data: st.DataObject) -> None:
    """All other members of that part keep their bytes."""
    content = b"[" + b",".join(parts) + b"]"
    message = _read(content)
    assume(message.texts)
    at = data.draw(st.integers(0, len(message.texts) - 1))
    texts = (*message.texts[:at], "new", *message.texts[at + 1 :])
    place = [number for number, part in enumerate(parts) if read_text(part) is not None][at]
    expected = parts[place] if message.texts[at] == "new" else replace_text(parts[place], "new")

    assert _list_parts(_write(replace(message, texts=texts), content)) == [
        *parts[:place],
        expected,
        *parts[place + 1 :],
    ]
    assert {**decode_any(parts[place]), "text": "new"} == decode_any(expected)


@given(CONTENTS, NEW_TEXTS, st.sampled_from(["input_text", "output_text"]))
def test_an_added_text_part_has_the_type_that_the_dialect_wants(
    content: bytes | None, texts: tuple[str, ...], text_type: str
) -> None:
    """A part of the client keeps its own type."""
    old = [decode_any(part)["type"] for part in _list_parts(content) if read_text(part) is not None]
    message = replace(_read(content), texts=texts)
    written = [
        decode_any(part) for part in _list_parts(_write(message, content, text_type)) if read_text(part) is not None
    ]

    assert [part["type"] for part in written] == [*old, *[text_type] * len(texts)][: len(written)]


@given(st.lists(TEXT_JSON | MEDIA_JSON, max_size=4), NEW_TEXTS, st.lists(TEXT_JSON, max_size=2), st.data())
def test_no_marker_is_lost(parts: list[bytes], texts: tuple[str, ...], others: list[bytes], data: Any) -> None:
    """Not with a removed text or image, nor with a message that was taken in. There are never more than before."""
    content = b"[" + b",".join(parts) + b"]"
    message = _read(content)
    number = data.draw(st.integers(0, len(message.media)))
    taken_in = tuple(b'{"content":[%s]}' % other for other in others)
    written = _write(replace(message, texts=texts, media=message.media[:number], taken_in=taken_in), content)

    wanted = {name for raw in (*parts, *others) for name in find_markers(raw)}
    assert find_markers_within(b'{"content":%s}' % written).keys() == wanted
    before, after = (
        sum(len(find_markers(part)) for part in listed) for listed in ([*parts, *others], _list_parts(written))
    )
    assert after <= before


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'"old"', b'"new"'),
        (b"[]", b'[{"type":"text","text":"new"}]'),
        (b'{"a":1}', b'[{"type":"text","text":"new"},{"a":1}]'),
        (
            b'[{"type":"text","text":"a"},{"type":"text","text":"b","cache_control":{"x":1}}]',
            b'[{"type":"text","text":"new","cache_control":{"x":1}}]',
        ),
        (
            b'[{"type":"text","text":"a"},{"type":"text","text":"b","cache_control":{"x":1}},{"type":"image_url"}]',
            b'[{"type":"text","text":"new"},{"type":"image_url","cache_control":{"x":1}}]',
        ),
    ],
)
def test_new_content_keeps_the_clients_form(content: bytes, expected: bytes) -> None:
    """A string stays a string, parts stay parts with their own keys, and other parts stay in place.

    A cache breakpoint on a part that is gone moves to the last part.
    """
    assert _write(replace(_read(content), texts=("new",)), content) == expected


IMAGES = tuple(b'{"type":"image_url","image_url":{"url":"%d"}}' % number for number in range(2))
WITH_IMAGES = b'[%s,{"type":"text","text":"a"},%s]' % IMAGES


@pytest.mark.parametrize(
    ("media", "content"),
    [
        ((), [b'{"type":"text","text":"b"}']),
        (IMAGES[1:], [IMAGES[1], b'{"type":"text","text":"b"}']),
        ((*IMAGES, b"{}"), [IMAGES[0], b'{"type":"text","text":"b"}', IMAGES[1], b"{}"]),
    ],
)
def test_exactly_the_media_of_the_message_go_out(media: tuple[bytes, ...], content: list[bytes]) -> None:
    """If images are kept, dropped or added, exactly those of the message are written."""
    message = replace(_read(WITH_IMAGES), texts=("b",), media=tuple(Media(part, 85) for part in media))
    assert _write(message, WITH_IMAGES) == b"[" + b",".join(content) + b"]"


def test_the_line_of_a_removed_image_stands_in_its_place() -> None:
    """As a text part, which every role may have, with the cache markers of the image."""
    image = b'{"type":"image","source":{},"cache_control":{"x":1}}'
    content = b'[{"type":"input_text","text":"a"},%s,{"type":"input_text","text":"b"}]' % image
    message = replace(_read(content), media=(Media(image, 85, "[gone]", 2).remove(),))
    line = b'{"type":"input_text","text":"[gone]","cache_control":{"x":1}}'
    assert _write(message, content, "input_text") == content.replace(image, line)


MARKED = b'{"role":"user","content":[{"type":"text","text":"k","prompt_cache_breakpoint":{"mode":"explicit"}}]}'


@pytest.mark.parametrize(
    ("taken_in", "expected"),
    [
        ((MARKED,), b'[{"type":"input_text","text":"a\\n\\nk","prompt_cache_breakpoint":{"mode":"explicit"}}]'),
        (
            (MARKED, b'{"role":"user","content":"k","cache_control":{"type":"ephemeral"}}', MARKED),
            b'[{"type":"input_text","text":"a\\n\\nk",%s}]'
            % b'"prompt_cache_breakpoint":{"mode":"explicit"},"cache_control":{"type":"ephemeral"}',
        ),
        ((b'{"role":"user","content":"cache_control"}',), b'"a\\n\\nk"'),
    ],
)
@pytest.mark.parametrize("content", [b'"a"', b"null", None])
def test_a_marker_of_a_message_that_was_taken_in_goes_along(
    content: bytes | None, taken_in: tuple[bytes, ...], expected: bytes
) -> None:
    """On the last part; a string becomes one part of the same text, so that the same prompt is rendered."""
    message = replace(_read(content), texts=("a", "k"), taken_in=taken_in)
    assert _write(message, content, "input_text") == expected
