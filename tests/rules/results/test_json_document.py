"""JSON that is too long stays JSON."""

import json  # noqa: TID251 - what it accepts is JSON, and it keeps lone surrogates and large numbers
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import count

from trimtab.rules.results.json_document import MAX_DEPTH, MAX_LARGE_DEPTH, excerpt_json

LIMITS = (100, 300)
DEEP = 5000
DOCUMENTS = {
    "large integers": json.dumps([10**30 + number for number in range(2000)]),
    "a float out of range": "[" + ",".join(f'{{"a":1e400,"v":1.10,"i":{number}}}' for number in range(500)) + "]",
    "equal keys": "{" + ",".join(f'"a":{number}' for number in range(2000)) + "}",
    "escaped NULs": "[" + ",".join(f'{{"a":"\\u0000x {number}"}}' for number in range(500)) + "]",
    "escaped quotes": '{"a":"' + '\\"' * 3000 + '"}',
    "escaped pairs, shifted": '{"a":"xxxxxxx' + "\\ud83d\\ude00" * 1000 + '"}',
    "lone surrogates": "[" + ",".join(f'{{"a":"\ud800 x {number}"}}' for number in range(500)) + "]",
    "deep arrays": "[" * DEEP + "]" * DEEP,
    "deep objects": '{"a":' * DEEP + "1" + "}" * DEEP,
    "deep records": "[" + ",".join([f'{{"a":{"[" * 400}{"]" * 400}}}'] * 10) + "]",
    "one long number": '{"a":' + "1" * 9000 + "}",
    "one long key": json.dumps({"k" * 9000: 1}),
    "all kinds": json.dumps([1, "a", None, True, {"x": 1}, [1, 2], "b" * 500] * 300),
    "a mark of byte order": "\ufeff" + json.dumps([{"a": number} for number in range(3000)]),
    "blanks around": "\n \t" + json.dumps([{"a": number} for number in range(3000)], indent=2) + "\n\n",
    "marks": json.dumps({"a": "e\u0301" * 3000}, ensure_ascii=False),
}

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.sampled_from('ab "\\\n\u0301\U0001f600\ud800[]{}:,'), max_size=300),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=12),
        st.dictionaries(st.text(st.sampled_from('ab"\\:['), max_size=6), inner, max_size=8),
    ),
    max_leaves=60,
)


@pytest.mark.parametrize(("chars", "levels"), [(90_000, MAX_DEPTH), (120_000, MAX_LARGE_DEPTH)])
def test_a_document_is_read_to_a_depth_that_is_less_if_it_is_large(chars: int, levels: int) -> None:
    """What is below is left out as a whole."""
    value: object = ["w" * 8] * (chars // 12)
    for level in range(MAX_DEPTH + 4):
        value = {f"level {level}": value}
    short = excerpt_json(json.dumps(value), 1000, count)
    assert short.count("level") == levels
    assert short.count("omitted") == 1


@pytest.mark.parametrize("name", DOCUMENTS)
def test_what_was_json_stays_json(name: str) -> None:
    """Within the limit, and of the same type at its top."""
    text = DOCUMENTS[name]
    for limit in LIMITS:
        short = excerpt_json(text, limit, count)
        assert count(short) <= limit
        json.loads(short)
        assert short[0] == text.strip().removeprefix("\ufeff")[0]


@given(st.lists(VALUES, min_size=1, max_size=30), st.integers(100, 400), st.sampled_from([None, 2]), st.booleans())
def test_any_document_stays_json(value: Any, limit: int, indent: int | None, escaped: bool) -> None:  # noqa: FBT001
    """Whatever it holds, however it is written."""
    text = json.dumps(value, indent=indent, ensure_ascii=escaped)
    short = excerpt_json(text, limit, count)
    assert short is not None
    json.loads(short)
    assert count(short) <= limit
    assert short == excerpt_json(text, limit, count)


def test_values_stay_as_they_are_written() -> None:
    """Numbers are no floats in between, keys keep their order, and escapes are not resolved."""
    record = '{"z":1.10,"a":12345678901234567890123,"m":"\\u00e9","b":1e400}'
    text = "[" + ",".join([record] * 200) + "]"
    short = excerpt_json(text, 200, count)
    assert short.startswith("[" + record)


@pytest.mark.parametrize(("lines", "is_text"), [(4, False), (5, True)])
def test_a_string_of_several_lines_keeps_its_end_too(lines: int, is_text: bool) -> None:  # noqa: FBT001
    """It is shortened as a text is. Of any other string, the beginning is kept."""
    text = json.dumps({"log": "\n".join(f"line {number} " + "word " * 200 for number in range(lines))})
    short = excerpt_json(text, 300, count, lambda *_: "a text")
    assert short is not None
    assert (short == '{"log": "a text"}') is is_text


def test_the_marker_takes_nobodys_place() -> None:
    """If the document already has the marker's key, the marker gets another key."""
    text = json.dumps({"[trimtab]": {"a": 1}, **{f"k{number}": {"a": number} for number in range(900)}})
    short = excerpt_json(text, 300, count)
    assert short is not None
    keys = [key for key, _ in json.loads(short, object_pairs_hook=list)]
    assert len(keys) == len(set(keys))
    assert json.loads(short)["[trimtab]"] == {"a": 1}
    assert " members omitted, others may be incomplete; narrow the query" in json.loads(short)["[trimtab 2]"]


def test_the_marker_counts_what_is_missing() -> None:
    """Kept and missing items add up to all items of an array; the first items are kept in their order."""
    short = excerpt_json(json.dumps(list(range(20_000))), 300, count)
    assert short is not None
    items = json.loads(short)
    [marker] = [item for item in items if isinstance(item, str)]
    found = re.fullmatch(r"\[trimtab: omitted (\d+) of 20000 items; narrow the query\]", marker)
    numbers = [item for item in items if not isinstance(item, str)]
    assert int(found[1]) + len(numbers) == 20_000
    assert all(before < after for before, after in pairwise(numbers))


@pytest.mark.parametrize(
    "text", ["", "  ", "[INFO] a [x]", "{a: 1}", "[1,2", '{"a":1}\n{"a":2}', '["', "word", "[}", "{]"]
)
def test_what_is_no_json_is_left_to_others(text: str) -> None:
    """An example is a text that looks like JSON at both ends."""
    assert excerpt_json(text * 300, 100, count) is None
