"""One record of a collection, and the strings in it."""

import json  # noqa: TID251 - the oracle; it reads lone surrogates, too
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.builders import count

from trimtab.rules.results.json_document import _is_place, read_news
from trimtab.rules.results.json_records import (
    MARKER_CHARS,
    MAX_ITEMS,
    MAX_PLAIN_ITEMS,
    Document,
    Part,
    Record,
    cut_string,
    read_signs,
)

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


def test_of_an_array_only_the_first_items_are_read() -> None:
    """Of plain values fewer than of others."""
    plain, lists = [*range(100, 150)], [[number] for number in range(100, 150)]
    for items, most in ((plain, MAX_PLAIN_ITEMS), (lists, MAX_ITEMS)):
        record = {"list": items}
        *kept, marker = json.loads(brief([record], 0, count(json.dumps(record)) - 1))["list"]
        assert kept == items[:most]
        assert marker == f"[trimtab: omitted {50 - most} of 50 items]"


# The news: records that stand out among many similar ones.


def read(records: list[Any]) -> list[int]:
    """The numbers of the records that stand out, strongest first."""
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
