"""Large documents: containers with very many parts are thinned out while they are read. The bounds are small here."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from unittest import mock

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import count
from support.markers import check_markers

from trimtab.rules.results import json_document
from trimtab.rules.results.json_document import excerpt_json
from trimtab.rules.results.json_records import MIN_WINDOW, Part, Thinning, split_parts

VALUES = st.recursive(
    st.one_of(st.integers(-(2**53), 2**53), st.text(max_size=20), st.booleans()),
    lambda inner: st.one_of(st.lists(inner, max_size=6), st.dictionaries(st.text(max_size=4), inner, max_size=6)),
    max_leaves=12,
)
DOCUMENTS = st.one_of(
    st.builds(lambda items, times: items * times, st.lists(VALUES, min_size=1, max_size=8), st.integers(1, 30)),
    st.builds(lambda value, size: {f"k{number}": value for number in range(size)}, VALUES, st.integers(1, 90)),
    st.builds(lambda value, size: [{"a": number, "b": value} for number in range(size)], VALUES, st.integers(1, 90)),
)


@pytest.fixture(autouse=True)
def _small_bounds() -> Iterator[None]:
    bounds = {"LARGE_DOCUMENT_CHARS": 100, "WINDOW_PARTS": 40, "WINDOW_CHARS": 400, "MIN_HEAD": 4, "MIN_TAIL": 2}
    with mock.patch.multiple(json_document, **bounds):
        yield


@given(DOCUMENTS, st.integers(30, 300))
def test_what_was_json_stays_json_and_its_markers_are_true(value: object, limit: int) -> None:
    """Within the limit, and the same each time. Markers also count the parts that were thinned out."""
    text = orjson.dumps(value).decode()
    short = excerpt_json(text, limit, count)
    assert short == excerpt_json(text, limit, count)
    if short is not None:
        assert count(short) <= limit
        assert orjson.loads(short) is not None
        check_markers(short, text, count)


def test_the_news_of_very_many_records_is_kept_wherever_it_stands() -> None:
    """The record that differs from thousands of others is kept, in whichever window it is."""
    for place in (3, 2500, 4990):
        records = [{"name": f"n{number % 3}", "state": "ok"} for number in range(5000)]
        records[place] = {"name": "n1", "state": "broken"}
        with mock.patch.multiple(json_document, WINDOW_CHARS=40_000, WINDOW_PARTS=1000):
            short = excerpt_json(orjson.dumps(records).decode(), 300, count)
        assert short is not None
        assert '"broken"' in short
        assert "of 5000 items, others" in short


def _thin(text: str, head: int, tail: int, choose: Callable[[Sequence[Part]], Iterable[int]]) -> tuple[list[str], int]:
    parts = split_parts(text, 0, len(text), Thinning(head, tail, MIN_WINDOW, len(text), choose))
    return [text[part.start : part.stop] for part in parts], parts.total


@given(st.integers(0, 400), st.integers(0, 40), st.integers(0, 40))
def test_the_parts_at_both_ends_are_kept_and_all_are_counted(size: int, head: int, tail: int) -> None:
    items = [f'{{"a":{number}}}' for number in range(size)]
    kept, total = _thin("[" + ",".join(items) + "]", head, tail, lambda _: [1])
    assert total == size
    assert kept[:head] == items[:head]
    assert kept[len(kept) - min(tail, size) :] == items[size - min(tail, size) :]
    assert kept == [item for item in items if item in set(kept)]
    assert len(kept) <= head + tail + MIN_WINDOW + size // (MIN_WINDOW - 1) + 1
