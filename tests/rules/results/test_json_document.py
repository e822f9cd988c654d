"""JSON that is too long stays JSON."""

import json  # noqa: TID251 - what it accepts is JSON, and it keeps lone surrogates and large numbers
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import count
from support.golden import check_golden

from trimtab.rules.results.json_document import MAX_DEPTH, MAX_LARGE_DEPTH, excerpt_json

LIMITS = (100, 300)
DEEP = 1500
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


@pytest.mark.parametrize(
    ("before", "chars", "levels"),
    [(0, 90_000, MAX_DEPTH), (0, 120_000, MAX_LARGE_DEPTH), (120_000, 90_000, MAX_DEPTH)],
)
def test_a_value_is_read_to_a_depth_that_is_less_if_it_is_large(before: int, chars: int, levels: int) -> None:
    """However much of the document stands before it."""
    value: object = ["w" * 8] * (chars // 12)
    for level in range(MAX_DEPTH + 4):
        value = {f"level {level}": value}
    document = {"before": ["w" * 8] * (before // 12), **value}
    short = excerpt_json(json.dumps(document), 1000, count)
    assert short.count("level") == levels
    assert short.count("omitted") == 1 + (before > 0)


def test_what_was_json_stays_json() -> None:
    """Within the limit, and of the same type at its top. What is none is left to others."""
    for text in DOCUMENTS.values():
        for limit in LIMITS:
            short = excerpt_json(text, limit, count)
            assert count(short) <= limit
            json.loads(short)
            assert short[0] == text.strip().removeprefix("\ufeff")[0]
    for text in ["", "  ", "[INFO] a [x]", "{a: 1}", "[1,2", '{"a":1}\n{"a":2}', '["', "word", "[}", "{]"]:
        assert excerpt_json(text * 300, 100, count) is None


@given(st.lists(VALUES, min_size=1, max_size=12), st.integers(100, 400), st.sampled_from([None, 2]), st.booleans())
def test_any_document_stays_json(value: Any, limit: int, indent: int | None, escaped: bool) -> None:  # noqa: FBT001
    text = json.dumps(value, indent=indent, ensure_ascii=escaped)
    short = excerpt_json(text, limit, count)
    assert short is not None
    json.loads(short)
    assert count(short) <= limit
    assert short == excerpt_json(text, limit, count)


def test_values_stay_as_they_are_written() -> None:
    """Numbers, order and escapes. A string of several lines is shortened as a text is."""
    record = '{"z":1.10,"a":12345678901234567890123,"m":"\\u00e9","b":1e400}'
    text = "[" + ",".join([record] * 200) + "]"
    short = excerpt_json(text, 200, count)
    assert short.startswith("[" + record)
    for lines, is_text in [(4, False), (5, True)]:
        text = json.dumps({"log": "\n".join(f"line {number} " + "word " * 200 for number in range(lines))})
        short = excerpt_json(text, 300, count, lambda *_: "a text")
        assert short is not None
        assert (short == '{"log": "a text"}') is is_text


def test_the_marker_counts_what_is_missing() -> None:
    """And takes nobody's place: a key that the document has is not its key."""
    short = excerpt_json(json.dumps(list(range(20_000))), 300, count)
    assert short is not None
    items = json.loads(short)
    [marker] = [item for item in items if isinstance(item, str)]
    found = re.fullmatch(r"\[trimtab: omitted (\d+) of 20000 items; narrow the query\]", marker)
    numbers = [item for item in items if not isinstance(item, str)]
    assert int(found[1]) + len(numbers) == 20_000
    assert all(before < after for before, after in pairwise(numbers))
    text = json.dumps({"[trimtab]": {"a": 1}, **{f"k{number}": {"a": number} for number in range(900)}})
    short = excerpt_json(text, 300, count)
    assert short is not None
    keys = [key for key, _ in json.loads(short, object_pairs_hook=list)]
    assert len(keys) == len(set(keys))
    assert json.loads(short)["[trimtab]"] == {"a": 1}
    assert " members omitted, others may be incomplete; narrow the query" in json.loads(short)["[trimtab 2]"]


STATES, ZONES = ("ready", "ready", "busy", "ready", "idle"), ("north", "south", "east")


def _make_service(number: int) -> dict[str, Any]:
    service: dict[str, Any] = {
        "id": 4000 + number,
        "name": f"service {number * 7 % 90}",
        "kind": "Service",
        "state": STATES[number % 5],
        "started": 1_700_000_000 + 60 * number,
        "load": [number * 37 % 50 + 1, number % 3],
        "place": {"zone": ZONES[number % 3], "rack": f"r{number % 11}", "spare": None, "unit": {"deep": number % 4}},
        "ports": [8000 + number, 9000 + number, 80, 443, 22, 25, 53][: number % 7],
        "note": f"it was checked by the night shift {number % 13} times and nothing was found",
    }
    return service


def _make_services(number: int) -> list[dict[str, Any]]:
    services = [_make_service(each) for each in range(number)]
    services[41]["state"] = "failed"
    services[17]["load"] = [9000, 1]
    services[58]["error"] = {"code": 137, "message": "the process was killed because it took too much memory"}
    services[33]["started"] = 1_700_000_000
    services[73]["place"]["zone"] = "west"
    return services


HISTORY = [
    {
        "at": number,
        "total": number * number,
        "change": round((number * 29 % 17) / 7, 3),
        "by": "anna" if number % 9 else "ben",
    }
    for number in range(60)
]
TREE = {
    "name": "harbour",
    "version": "2.4.1",
    "scripts": {name: f"run {name} --with {number} workers" for number, name in enumerate(("build", "test", "lint"))},
    "readme": "\n".join(
        f"Line {number} of the text: {'error: it failed' if number == 20 else 'all is well'}" for number in range(60)
    ),
    "keywords": [f"word{number}" for number in range(80)],
    "numbers": [number * 13 % 101 for number in range(200)],
    "dependencies": {f"package-{number}": f"^{number % 5}.{number % 7}.0" for number in range(50)},
    "nested": {"a": {"b": {"c": {"d": [[1, 2, [3, 4]], {"e": "f" * 300}]}}}},
    "long": "one long sentence without an end " * 30,
    "digits": int("1" * 90),
    "empty": {"list": [], "object": {}, "text": "", "none": None, "yes": True},
}
GOLDEN = {
    "services": json.dumps(_make_services(90)),
    "services-indented": json.dumps({"items": _make_services(40 + 40), "next": None, "total": 80}, indent=2),
    "few-records": json.dumps(_make_services(80)[55:60]),
    "history": json.dumps(HISTORY),
    "history-by-name": json.dumps({f"{row['by']} {row['at']}": row for row in HISTORY}, separators=(",", ":")),
    "tree": json.dumps(TREE),
    "tree-indented": json.dumps(TREE, indent=4),
    "table": json.dumps([[number, f"row {number}", number % 4 == 3, [number, number + 1]] for number in range(70)]),
    "texts": json.dumps([f"item {number}: {'x' * (number * 17 % 60)}" for number in range(120)]),
    "escapes": json.dumps({"text": 'a "quoted" word, a \\ and é漢\U0001f600 ' * 40, "more": ["\n\t" * 50] * 3}),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_an_excerpt_of_json_is_as_it_was(name: str) -> None:
    """Of records, of members and of items, with little room and with more."""
    text = GOLDEN[name]
    rooms = {f"{tokens} tokens": tokens for tokens in (90, 250, 700)}
    check_golden(
        f"excerpts/json-{name}", {title: str(excerpt_json(text, tokens, count)) for title, tokens in rooms.items()}
    )
