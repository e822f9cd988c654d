"""Check lists in texts: items and the lines that belong to them, unchanged."""

import pytest
from support.steps import count_steps

from trimtab.rules.summary.carried.items import (
    MOST_ITEMS,
    Rank,
    read_any,
    read_markdown,
    read_prose,
    strip_line_numbers,
)

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
