"""Items of a task list: label and status as the agent wrote them, within bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.rules.summary.carried.items import ITEM_CHARS, Item, Rank, is_status, make_item, rank_status


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
