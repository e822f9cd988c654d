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


# The news: records that stand out among many similar ones.

VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.sampled_from(["", "a", "failed", "1.5", "2024-01-05T10:00:00", "9" * 400, "-1"]),
        st.just(10**400),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)),
    max_leaves=8,
)


def read(records: list[Any]) -> list[int]:
    """The numbers of the records that stand out, strongest first."""
    return read_news(records, len(records)).order


@given(st.lists(VALUES, max_size=40))
def test_the_news_are_records(records: list[Any]) -> None:
    """For records of any form: each number at most once, and the same ones each time."""
    order = read(records)
    assert len(order) == len(set(order))
    assert set(order) <= set(range(len(records)))
    assert order == read(records)


def test_a_rare_value_is_news() -> None:
    """It stands out more than values that others have too."""
    records = [{"state": "ready", "zone": "ab"[number % 2]} for number in range(100)]
    records[42]["state"] = "gone"
    assert read(records)[0] == 42


def test_the_largest_number_is_news() -> None:
    """Unless the numbers are positions or identifiers."""
    records = [{"id": number * 7 % 100, "load": number * 31 % 50} for number in range(100)]
    records[42]["load"] = 9000
    assert read(records)[0] == 42
    assert _is_place(".id")
    assert _is_place(".range.start_line")
    assert not _is_place(".load")


def test_a_key_that_others_lack_is_news() -> None:
    """Whatever its value is."""
    records: list[dict[str, Any]] = [{"a": "x"} for _ in range(100)]
    records[42]["extra"] = None
    assert read(records)[0] == 42


def test_what_all_share_tells_nothing() -> None:
    """Equal records are no news."""
    assert read([{"a": 1, "b": ["c"]}] * 50) == []
    assert read_news([{"a": 1}] * 50, 50).info[".a"] < 0.1


def test_very_long_keys_cost_no_more_than_their_length() -> None:
    """Paths hold the beginning of a key only."""
    records = [{"k" * 100_000: {f"a{number}": 1 for number in range(300)}} for _ in range(5)]
    assert sum(map(len, read_news(records, 5).info)) < 100_000
