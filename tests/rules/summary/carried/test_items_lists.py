"""Lists of items in JSON: recognised by their shape, of bounded size."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.rules.summary.carried.items import MOST_ITEMS, have_statuses, make_item, read_item, read_items

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["content", "status", "id", "items", "done", "x"]), inner, max_size=4)
    ),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ({"content": "a", "status": "pending", "activeForm": "Doing a"}, "- [pending] a"),
        ({"step": "a", "status": "completed"}, "- [completed] a"),
        ({"title": "a", "status": "done"}, "- [done] a"),
        ({"id": 1, "title": "a", "description": "d", "status": "not-started"}, "- [not-started] 1: a"),
        ({"description": "a", "status": "cancelled"}, "- [cancelled] a"),
        ({"task_id": "7", "state": "COMPLETE"}, "- [COMPLETE] 7: "),
        ({"text": "a", "done": True}, "- [done] a"),
        ({"text": "a", "completed": False}, "- [not done] a"),
    ],
)
def test_an_object_is_an_item_in_the_words_of_any_tool(value: dict[str, Any], line: str) -> None:
    """The status stays as it was written."""
    item = read_item(value)
    assert item is not None
    assert item.write() == line


@pytest.mark.parametrize(
    "value", [{}, {"status": "pending"}, {"content": " "}, {"title": "a", "prompt": "do"}, {"x": "a"}]
)
def test_other_objects_are_not_items(value: dict[str, Any]) -> None:
    """An object that starts an agent is not an item, either."""
    assert read_item(value) is None


def test_nested_items_follow_their_parent() -> None:
    """Further text of an item is its details."""
    value = [{"title": "a", "notes": "n", "subtasks": [{"title": "b", "status": "done"}]}, "c"]
    assert read_items(value) == (make_item("a", details="n"), make_item("b", "done", depth=1), make_item("c"))


def test_a_list_may_be_encoded_twice() -> None:
    """Some models write it as a string."""
    assert read_items('[{"content":"a"}]') == (make_item("a"),)
    assert read_items('[{"content":') is None


@pytest.mark.parametrize("value", [None, 1, "a", {"content": "a"}, [1], [[]], [{"x": 1}], [""], [None]])
def test_other_values_are_not_lists(value: object) -> None:
    """One value that is not an item makes the list none."""
    assert read_items(value) is None


def test_whether_all_items_have_a_status() -> None:
    """A known status."""
    assert have_statuses((make_item("a", "done"), make_item("b", "todo")))
    assert not have_statuses((make_item("a", "done"), make_item("b")))
    assert not have_statuses((make_item("a", "shipped to Bonn"),))
    assert not have_statuses((make_item("", "done", name="1"),))
    assert have_statuses((make_item("", "done", name="1"),), have_labels=False)


@given(value=JSON)
def test_any_json_is_read_in_bounds(value: object) -> None:
    """No value raises an exception."""
    items = read_items(value)
    assert items is None or all(item.label or item.id for item in items)


def test_size_and_depth_are_bounded() -> None:
    """However long or deep the input is."""
    value: list[Any] = []
    for _ in range(50):
        value = [{"content": "a", "subtasks": value}]
    assert len(read_items(value) or ()) == 4
    assert len(read_items([{"content": "a"}] * 5000) or ()) == MOST_ITEMS
    huge = read_item({"content": "a" * 10**6, "id": 10**400, "status": "b" * 10**6})
    assert huge is not None
    assert len(huge.write()) < 3000
