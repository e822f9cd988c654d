"""Positions of the parts of JSON texts."""

import json  # noqa: TID251 - the oracle
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.rules.results.json_records import NotJsonError, split_parts, split_string, unbreak

SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.text(st.sampled_from('a "\\\n[]{}:,'), max_size=9))
KEYS = st.text(st.sampled_from('a"\\:[{,'), max_size=4)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=6), st.dictionaries(KEYS, inner, max_size=6)),
    max_leaves=30,
)


@given(st.one_of(st.lists(VALUES, max_size=8), st.dictionaries(KEYS, VALUES, max_size=8)), st.sampled_from([None, 1]))
def test_the_parts_are_those_of_the_value(value: object, indent: int | None) -> None:
    """Each keeps its text, whatever strings and keys contain."""
    text = json.dumps(value, indent=indent)
    parts = [
        (part.key and json.loads(part.key), text[part.start : part.stop]) for part in split_parts(text, 0, len(text))
    ]
    expected = list(value.items()) if isinstance(value, dict) else [("", item) for item in value]  # type: ignore[attr-defined]
    assert [(key, json.loads(written)) for key, written in parts] == expected
    assert all(written == written.strip() for _, written in parts)


def test_what_is_deep_or_long_is_one_part() -> None:
    """Brackets of any depth, and strings of any length, also if they are escapes alone."""
    for depth in [1, 4, 5, 1024, 50_000]:
        for opening, closing in (("[", "]"), ('{"a":', "}"), ('[{"b":', "}]")):
            inner = opening * depth + "1" + closing * depth
            text = f"[0,{inner},2]"
            first, part, last = split_parts(text, 0, len(text))
            assert text[part.start : part.stop] == inner
            assert text[first.start] + text[last.start] == "02"
    for chars in [1, 200_000]:
        for unit in ("a", '\\"', "\\\\", "[", ","):
            string = f'"{unit * chars}"'
            text = f"[{string},1]"
            part, _ = split_parts(text, 0, len(text))
            assert part.stop - part.start == len(string)


@pytest.mark.parametrize(
    "text", ["[1,2", "[1]]", '["a]', '["a\\"]', "[[[[[1]]]]", "[1]]]]]", "{]", "[" * 90, '["' + '\\"' * 900 + "]"]
)
def test_what_has_no_end_is_no_json(text: str) -> None:
    """A container that ends before the text ends is not JSON, either."""
    if text == "{]":
        assert list(split_parts(text, 0, 2)) == []
        return
    with pytest.raises(NotJsonError):
        split_parts(text, 0, len(text))


@given(st.text(st.sampled_from('[]{}:,"\\1 '), max_size=12), st.sampled_from(["[]", "{}"]))
def test_any_text_is_no_json_or_has_its_parts_in_order(inner: str, ends: str) -> None:
    text = f"{ends[0]}{inner}{ends[1]}"
    with suppress(NotJsonError):
        places = [place for part in split_parts(text, 0, len(text)) for place in (part.start, part.stop)]
        assert sorted({0, len(text), *places}) == [0, *places, len(text)]


@given(VALUES, st.sampled_from([1, 4, "\t"]))
def test_line_breaks_go_but_for_those_in_strings(value: object, indent: int | str) -> None:
    text = json.dumps(value, indent=indent)
    short = unbreak(text)
    assert "\n" not in short
    assert json.loads(short) == value
    assert unbreak(short) is short
    assert unbreak('["a\nb",\n 1]') == '["a\nb",1]'


@given(
    st.lists(
        st.sampled_from(
            ["a", "d83d", "\\\\", "\\n", "\\u00e9", "\\ud83d\\ude00", "\\ud83d", "\\ude00", '\\"', "\u6f22"]
        ),
        max_size=60,
    ),
    st.sampled_from([1, 20, 400]),
)
def test_a_string_in_pieces_says_the_same(parts: list[str], times: int) -> None:
    """No piece ends within an escape, nor between the two escapes of one character."""
    raw = '"' + "".join(parts) * times + '"'
    assert "".join(map(json.loads, split_string(raw))) == json.loads(raw)


def test_a_long_string_comes_in_many_pieces() -> None:
    """Strings of plain characters and of escapes: decoding a piece takes little time."""
    for raw in (json.dumps("x" * 600_000), json.dumps("\U0001f600" * 100_000)):
        pieces = list(split_string(raw))
        assert max(map(len, pieces)) <= 300_000
        assert "".join(map(json.loads, pieces)) == json.loads(raw)
