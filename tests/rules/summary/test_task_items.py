"""Items of a task list: label and status as the agent wrote them, within bounds."""

from typing import Any

from support.steps import count_steps

from trimtab.rules.summary.task_items import (
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
    """A line is unchanged until its item changes, and that keeps all that it does not specify."""
    assert make_item("Fix it\nsoon", "in_progress", name="3").write() == "- [in_progress] 3: Fix it\n  soon"
    assert make_item("修复", depth=1).write() == "  - 修复"
    item = Item("a", "x", Rank.CLOSED, "1", "how", line="* [x] a")
    assert item.write() == "* [x] a"
    assert item.change(make_item("", "pending")) == Item("a", "pending", Rank.OPEN, "1", "how")


def test_the_status_decides_the_rank() -> None:
    """An unknown one counts as open, and is none."""
    for status, rank in [
        ("in_progress", Rank.ACTIVE), ("In Progress", Rank.ACTIVE), ("doing", Rank.ACTIVE), ("进行中", Rank.ACTIVE),
        ("~", Rank.ACTIVE), ("pending", Rank.OPEN), ("not-started", Rank.OPEN), (" ", Rank.OPEN), ("", Rank.OPEN),
        ("whatever", Rank.OPEN), ("COMPLETE", Rank.CLOSED), ("done", Rank.CLOSED), ("X", Rank.CLOSED),
        ("cancelled", Rank.CLOSED), ("✅", Rank.CLOSED),
    ]:  # fmt: skip
        assert rank_status(status) is rank
        assert is_status(status) == (status != "whatever")
    assert have_statuses((make_item("a", "done"), make_item("b", "todo")))
    assert not have_statuses((make_item("a", "done"), make_item("b")))
    assert not have_statuses((make_item("a", "shipped to Bonn"),))
    assert not have_statuses((make_item("", "done", name="1"),))
    assert have_statuses((make_item("", "done", name="1"),), have_labels=False)


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
    """A heading above items is included; prose around them is not. A plan in prose is kept whole."""
    items = read_markdown(PLAN)
    assert [item.write() for item in items] == [
        "## Erstens", "- [x] Lesen", "* [ ] Schreiben", "**Danach:**", "1. [~] 检查",
    ]  # fmt: skip
    assert [item.rank for item in items] == [Rank.TITLE, Rank.CLOSED, Rank.OPEN, Rank.TITLE, Rank.ACTIVE]
    assert items[1].details == "  - mit Bedacht\n"
    assert items[2].details == "  in `a.py`\n  und `b.py`\n"
    for text in ["- [ ] alone", "- a\n- b", "[ ] a\n[x] b", "- [ ]\n- [ ] \n"]:
        assert read_markdown(text) == ()
    assert [item.write() for item in read_prose("\n# Plan\n\nDo it.\n")] == ["# Plan\n\nDo it."]
    assert read_prose("do it") == ()
    assert strip_line_numbers("     1→- [ ] a\n     2→\n    10\tb") == "- [ ] a\n\nb"
    assert strip_line_numbers("1\ta\nb\nc") == "1\ta\nb\nc"


def test_a_tool_of_lists_may_write_them_in_other_forms() -> None:
    """Roo Code, Augment, Factory, Claude Code and others do so. A log's level in brackets is no status."""
    for line, status, name in [
        ("[x] a", "x", ""), ("[-] a", "-", ""), ("-[/] a", "/", ""), ("1. [completed] a", "completed", ""),
        ("#3 [in_progress] a", "in_progress", "3"), ("☐ a", "☐", ""), ("- ✅ a", "✅", ""), ("  ☑️ a", "☑", ""),
        ("- [✓] a", "✓", ""),
    ]:  # fmt: skip
        (item,) = read_any(line)
        assert (item.label, item.status, item.id, item.write()) == ("a", status, name, line)
    assert read_any("[INFO] started\n12 [main] ok\n- [docs] a") == ()


def test_size_and_depth_are_bounded() -> None:
    """However long or deep the input is; no line is read twice."""
    value: list[Any] = []
    for _ in range(50):
        value = [{"content": "a", "subtasks": value}]
    assert len(read_items(value) or ()) == 4
    assert len(read_items([{"content": "a"}] * 5000) or ()) == MOST_ITEMS
    huge = read_item({"content": "a" * 10**6, "id": 10**400, "status": "b" * 10**6})
    assert len(huge.write()) < 3000
    for line in ("- [ ] a\n", "- [ ]" + " " * 60 + "\n"):
        texts = ["- [ ] a\n- [x] b\n" + line * number for number in (300, 600)]
        small, large = (count_steps(lambda text=text: read_markdown(text)) for text in texts)
        assert large <= 2 * small
    assert len(read_markdown("- [ ] a\n" * 5000)) == MOST_ITEMS


def test_an_object_is_an_item_in_the_words_of_any_tool() -> None:
    """The status stays as it was written. Nested items follow their parent; other values are no lists."""
    for value, line in [
        ({"content": "a", "status": "pending", "activeForm": "Doing a"}, "- [pending] a"),
        ({"id": 1, "title": "a", "description": "d", "status": "not-started"}, "- [not-started] 1: a"),
        ({"task_id": "7", "state": "COMPLETE"}, "- [COMPLETE] 7: "),
        ({"text": "a", "done": True}, "- [done] a"),
        ({"text": "a", "completed": False}, "- [not done] a"),
    ]:
        item = read_item(value)
        assert item.write() == line
    for other in ({"status": "pending"}, {"content": " "}, {"title": "a", "prompt": "do"}):
        assert read_item(other) is None
    assert read_items('[{"content":"a"}]') == (make_item("a"),)
    value = [{"title": "a", "notes": "n", "subtasks": [{"title": "b", "status": "done"}]}, "c"]
    assert read_items(value) == (make_item("a", details="n"), make_item("b", "done", depth=1), make_item("c"))
    for value in [None, 1, "a", {"content": "a"}, [1], [[]], [{"x": 1}], [""], [None]]:
        assert read_items(value) is None
