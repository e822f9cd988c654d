"""One record of a collection, and the strings in it."""

import json  # noqa: TID251 - the oracle; it reads lone surrogates, too
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.builders import count

from trimtab.rules.results.excerpt.json_records import (
    MARKER_CHARS,
    MAX_ITEMS,
    MAX_PLAIN_ITEMS,
    Document,
    Record,
    cut_string,
    read_news,
)
from trimtab.rules.results.excerpt.json_spans import Part, read_signs

STRINGS = st.text(st.sampled_from('a"\\\n\0é漢\u0301\U0001f600\ud800\udc00'), max_size=200)


def brief(records: list[Any], number: int, tokens: float) -> str:
    """One of the records, in this many tokens."""
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


def test_the_first_record_is_whole_where_it_fits() -> None:
    """It shows the members that the others lack."""
    records = [{"a": 1, "b": [{"c": None}], "d": "x"} for _ in range(9)]
    assert json.loads(brief(records, 0, 100)) == records[0]


def test_of_an_array_only_the_first_items_are_read() -> None:
    """Of plain values fewer than of others."""
    plain, lists = [*range(100, 150)], [[number] for number in range(100, 150)]
    for items, most in ((plain, MAX_PLAIN_ITEMS), (lists, MAX_ITEMS)):
        record = {"list": items}
        *kept, marker = json.loads(brief([record], 0, count(json.dumps(record)) - 1))["list"]
        assert kept == items[:most]
        assert marker == f"[trimtab: omitted {50 - most} of 50 items]"


def test_members_keep_their_order_and_items_are_counted() -> None:
    """Items of arrays that are read only in part are counted, too."""
    records = [{"z": "one word", "list": list(range(number, number + 5000)), "a": "two words"} for number in range(6)]
    short = json.loads(brief(records, 3, 40))
    assert list(short) == [key for key in records[3] if key in short]
    *items, marker = short.get("list", ["[trimtab: omitted 5000 of 5000 items]"])
    assert marker == f"[trimtab: omitted {5000 - len(items)} of 5000 items]"
    assert items == list(range(3, 3 + len(items)))
