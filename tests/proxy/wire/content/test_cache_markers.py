"""Cache markers: found, taken off and put on."""

from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.odd_json import ODD, dump

from proxy.wire.content.cache_markers import CACHE_MARKERS, find_markers, find_markers_within, mark, unmark
from proxy.wire.json.repair import decode_any

NAMES = st.sampled_from([*CACHE_MARKERS, "text", "a"])
PARTS = st.dictionaries(NAMES, ODD | st.sampled_from(CACHE_MARKERS), max_size=4)
MARKERS = st.dictionaries(st.sampled_from(CACHE_MARKERS), ODD, max_size=2)


def _raw(markers: dict[str, Any]) -> dict[str, msgspec.Raw]:
    return {name: msgspec.Raw(dump(value)) for name, value in markers.items()}


def _values(markers: dict[str, msgspec.Raw]) -> dict[str, Any]:
    return {name: decode_any(bytes(value)) for name, value in markers.items()}


@given(PARTS)
def test_a_part_is_its_markers_and_the_rest(part: dict[str, Any]) -> None:
    """Each member belongs to one of the two. A part without markers is returned as it is."""
    raw = dump(part)
    markers, rest = _values(find_markers(raw)), decode_any(unmark(raw))

    assert markers.keys() == part.keys() & set(CACHE_MARKERS)
    assert {**rest, **markers} == decode_any(raw)
    assert not rest.keys() & set(CACHE_MARKERS)
    assert markers or unmark(raw) is raw


@given(PARTS, MARKERS)
def test_a_mark_is_added_only_if_it_is_missing(part: dict[str, Any], markers: dict[str, Any]) -> None:
    """The part's own marker stays, and so does every other member. If nothing is missing, the bytes stay."""
    raw = dump(part)
    marked = mark(raw, _raw(markers))

    assert decode_any(marked) == decode_any(dump({**markers, **part}))
    assert decode_any(unmark(marked)) == decode_any(unmark(raw))
    assert markers.keys() - part.keys() or marked is raw


@pytest.mark.parametrize(
    "item",
    [b'"cache_control"', b'["cache_control"]', b"5", b"", b'{"text":"cache_control"}', b'{"a":{"cache_control":{}}}'],
)
def test_what_only_names_a_marker_has_none(item: bytes) -> None:
    """A marker is a member of the part itself."""
    assert find_markers(item) == {}
    assert unmark(item) is item


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"content": "cache_control"}, {}),
        ({"cache_control": 1, "content": "x"}, {"cache_control": 1}),
        ({"cache_control": 1}, {"cache_control": 1}),
        ({"content": [{"cache_control": 1}, {"cache_control": 2}, {"a": 3}]}, {"cache_control": 2}),
        ({"cache_control": 1, "content": [{"cache_control": 2}]}, {"cache_control": 2}),
        (
            {"content": [{"cache_control": 1}, "x", {"prompt_cache_breakpoint": 2}]},
            {"cache_control": 1, "prompt_cache_breakpoint": 2},
        ),
        ({"content": {"cache_control": 1}}, {}),
    ],
)
def test_the_last_marker_of_each_name_in_a_message_is_found(message: Any, expected: dict[str, Any]) -> None:
    """On the message, or on one of its parts."""
    assert _values(find_markers_within(orjson.dumps(message))) == expected


def test_a_damaged_part_keeps_its_markers() -> None:
    """A lone surrogate is repaired, because the part is written again."""
    part = b'{"text":"\\ud83d","cache_control":{"type":"ephemeral"}}'
    assert _values(find_markers(part)) == {"cache_control": {"type": "ephemeral"}}
    assert orjson.loads(unmark(part)) == {"text": "\ufffd"}
