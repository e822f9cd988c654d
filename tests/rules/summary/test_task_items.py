"""Items of a task list: label and status as the agent wrote them, within bounds."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.steps import count_steps

from trimtab.rules.summary.task_items import (
    ITEM_CHARS,
    MOST_ITEMS,
    Item,
    Rank,
    have_statuses,
    is_status,
    make_item,
    rank_status,
    read_any,
    read_item,
    read_items,
    read_markdown,
    read_prose,
    strip_line_numbers,
)


def test_an_item_is_written_with_its_status_and_name() -> None:
    """Further lines of its label are indented, as is a nested item."""
    assert make_item("Fix it\nsoon", "in_progress", name="3").write() == "- [in_progress] 3: Fix it\n  soon"
    assert make_item("修复", depth=1).write() == "  - 修复"


def test_a_line_is_unchanged_until_its_item_changes() -> None:
    """A change keeps all that it does not specify."""
    item = Item("a", "x", Rank.CLOSED, "1", line="* [x] a")
    assert item.write() == "* [x] a"
    assert item.change(make_item("", "pending")) == Item("a", "pending", Rank.OPEN, "1")


@pytest.mark.parametrize(
    ("status", "rank"),
    [
        ("in_progress", Rank.ACTIVE), ("In Progress", Rank.ACTIVE), ("doing", Rank.ACTIVE), ("进行中", Rank.ACTIVE),
        ("~", Rank.ACTIVE), ("pending", Rank.OPEN), ("not-started", Rank.OPEN), (" ", Rank.OPEN), ("", Rank.OPEN),
        ("whatever", Rank.OPEN), ("COMPLETE", Rank.CLOSED), ("done", Rank.CLOSED), ("X", Rank.CLOSED),
        ("cancelled", Rank.CLOSED), ("✅", Rank.CLOSED),
    ],
)  # fmt: skip
def test_the_status_decides_the_rank(status: str, rank: Rank) -> None:
    """An unknown status counts as open."""
    assert rank_status(status) is rank
    assert is_status(status) == (status != "whatever")


@given(label=st.text(max_size=40) | st.text(min_size=1).map(lambda text: text * ITEM_CHARS), status=st.text())
def test_an_item_is_bounded_and_its_status_is_one_line(label: str, status: str) -> None:
    """For any input."""
    item = make_item(label, status, name=status)
    assert len(item.label) <= ITEM_CHARS + 1
    assert len(item.write()) <= 4 * ITEM_CHARS
    assert len(item.status.splitlines()) <= 1
    assert item.label.startswith(label.strip()[:20].rstrip()[:10])


# Check lists in texts: items and the lines that belong to them, unchanged.

PLAN = """\
Here is what I will do.

## Erstens
Words between.
- [x] Lesen
  - mit Bedacht
* [ ] Schreiben
  in `a.py`
  und `b.py`

**Danach:**
1. [~] 检查

That is all.
"""


def test_the_lines_of_a_check_list_are_unchanged() -> None:
    """A heading above items is included; prose around them is not."""
    items = read_markdown(PLAN)
    assert [item.write() for item in items] == [
        "## Erstens", "- [x] Lesen", "* [ ] Schreiben", "**Danach:**", "1. [~] 检查",
    ]  # fmt: skip
    assert [item.rank for item in items] == [Rank.TITLE, Rank.CLOSED, Rank.OPEN, Rank.TITLE, Rank.ACTIVE]
    assert items[1].details == "  - mit Bedacht\n"
    assert items[2].details == "  in `a.py`\n  und `b.py`\n"


@pytest.mark.parametrize(
    "text",
    [
        "- [ ] alone",
        "- a\n- b",
        "x = [ ]\ny = [x]",
        "[ ] a\n[x] b",
        "see [x] and [ ]",
        "- [link](a)\n- [link](b)",
        "- [ ]\n- [ ] \n",
    ],
)
def test_other_texts_are_not_check_lists(text: str) -> None:
    """An example of one item is not a check list, either."""
    assert read_markdown(text) == ()


@pytest.mark.parametrize(
    ("line", "status", "name"),
    [
        ("[x] a", "x", ""), ("[-] a", "-", ""), ("-[/] a", "/", ""), ("1. [completed] a", "completed", ""),
        ("#3 [in_progress] a", "in_progress", "3"), ("☐ a", "☐", ""), ("- ✅ a", "✅", ""), ("  ☑️ a", "☑", ""),
        ("- [✓] a", "✓", ""),
    ],
)  # fmt: skip
def test_a_tool_of_lists_may_write_them_in_other_forms(line: str, status: str, name: str) -> None:
    """Roo Code, Augment, Factory, Claude Code and others do so."""
    (item,) = read_any(line)
    assert (item.label, item.status, item.id, item.write()) == ("a", status, name, line)


def test_a_word_in_brackets_that_is_no_status_makes_no_item() -> None:
    """Such as the level in a line of a log."""
    assert read_any("[INFO] started\n12 [main] ok\n- [docs] a") == ()


def test_a_plan_in_prose_is_kept_whole() -> None:
    """A single line is not a plan."""
    assert [item.write() for item in read_prose("\n# Plan\n\nDo it.\n")] == ["# Plan\n\nDo it."]
    assert read_prose("do it") == ()


def test_line_numbers_of_a_tool_are_removed() -> None:
    """Unless only a few lines have them."""
    assert strip_line_numbers("     1→- [ ] a\n     2→\n    10\tb") == "- [ ] a\n\nb"
    assert strip_line_numbers("1\ta\nb\nc") == "1\ta\nb\nc"


@pytest.mark.parametrize("line", ["- [ ] a\n", "[ ]\n", "  x\n", "#### \n", "- [ ]" + " " * 60 + "\n"])
def test_twice_the_lines_take_at_most_twice_the_work(line: str) -> None:
    """No line is read twice, and the length of a list is bounded."""
    small, large = (count_steps(lambda n=n: read_markdown("- [ ] a\n- [x] b\n" + line * n)) for n in (300, 600))
    assert large <= 2 * small
    assert len(read_markdown("- [ ] a\n" * 5000)) == MOST_ITEMS


# Lists of items in JSON: recognised by their shape, of bounded size.

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
    assert len(huge.write()) < 3000
