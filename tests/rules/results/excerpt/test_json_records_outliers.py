"""The news: records that stand out among many similar ones."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trimtab.rules.results.excerpt.json_records import _is_place, read_news

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
