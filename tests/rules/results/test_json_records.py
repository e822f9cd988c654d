"""One record of a collection, and the strings in it."""

import json  # noqa: TID251 - the oracle; it reads lone surrogates, too
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import count

from trimtab.rules.results.json_document import _is_place, read_news
from trimtab.rules.results.json_records import (
    MARKER_CHARS,
    MAX_ITEMS,
    MAX_PLAIN_ITEMS,
    Document,
    NotJsonError,
    Part,
    Record,
    cut_string,
    read_signs,
    split_parts,
    split_string,
    unbreak,
)

STRINGS = st.text(st.sampled_from('a"\\\n\0é漢\u0301\U0001f600\ud800\udc00'), max_size=200)


def brief(records: list[Any], number: int, tokens: float) -> str:
    text = json.dumps(records[number])
    news = read_news(records, len(records))
    document = Document(text, count(text) / len(text), read_signs(text))
    return Record(document, Part("", 0, len(text)), number, news).write(tokens)


@given(STRINGS, st.integers(-9, 250), st.booleans())
def test_a_cut_string_is_a_string(value: str, max_chars: int, escaped: bool) -> None:  # noqa: FBT001
    """No escape, surrogate pair or character is cut. The result is not longer and begins like the string."""
    raw = json.dumps(value, ensure_ascii=escaped)
    short = cut_string(raw, max_chars)
    assert len(short) <= len(raw)
    if short != raw:
        head = json.loads(short).partition(" [trimtab: ")[0]
        assert value.startswith(head)
        assert len(short) <= max(max_chars, 12 + MARKER_CHARS) + 2
        assert short.endswith(' characters]"')


def test_of_an_array_only_the_first_items_are_read() -> None:
    plain, lists = [*range(100, 150)], [[number] for number in range(100, 150)]
    for items, most in ((plain, MAX_PLAIN_ITEMS), (lists, MAX_ITEMS)):
        record = {"list": items}
        *kept, marker = json.loads(brief([record], 0, count(json.dumps(record)) - 1))["list"]
        assert kept == items[:most]
        assert marker == f"[trimtab: omitted {50 - most} of 50 items]"


# The news: records that stand out among many similar ones.


def read(records: list[Any]) -> list[int]:
    return read_news(records, len(records)).order


def test_the_largest_number_is_news() -> None:
    """Unless the numbers are positions or identifiers. What all share tells nothing, and a long key costs little."""
    records = [{"id": number * 7 % 100, "load": number * 31 % 50} for number in range(100)]
    records[42]["load"] = 9000
    assert read(records)[0] == 42
    assert _is_place(".id")
    assert _is_place(".range.start_line")
    assert not _is_place(".load")
    assert read([{"a": 1, "b": ["c"]}] * 50) == []
    assert read_news([{"a": 1}] * 50, 50).info[".a"] < 0.1
    records = [{"k" * 100_000: {f"a{number}": 1 for number in range(300)}} for _ in range(5)]
    assert sum(map(len, read_news(records, 5).info)) < 100_000


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
    """Brackets of any depth, and strings of any length. What has no end is no JSON."""
    for depth in [1, 4, 5, 1024, 5000]:
        for opening, closing in (("[", "]"), ('{"a":', "}"), ('[{"b":', "}]")):
            inner = opening * depth + "1" + closing * depth
            text = f"[0,{inner},2]"
            first, part, last = split_parts(text, 0, len(text))
            assert text[part.start : part.stop] == inner
            assert text[first.start] + text[last.start] == "02"
    for chars in [1, 40_000]:
        for unit in ("a", '\\"', "\\\\", "[", ","):
            string = f'"{unit * chars}"'
            text = f"[{string},1]"
            part, _ = split_parts(text, 0, len(text))
            assert part.stop - part.start == len(string)
    for text in ["[1,2", "[1]]", '["a]', '["a\\"]', "[[[[[1]]]]", "[1]]]]]", "{]", "[" * 90, '["' + '\\"' * 900 + "]"]:
        if text == "{]":
            assert list(split_parts(text, 0, 2)) == []
            return
        with pytest.raises(NotJsonError):
            split_parts(text, 0, len(text))


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
