"""Items: words and status stand as the agent wrote them, within bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.summary.carried.item import ITEM_CHARS, Item, Rank, is_status, make_item, rank_status


def test_an_item_is_written_with_its_status_and_name() -> None:
    """Further lines of its words are indented, as it is itself in others."""
    assert make_item("Fix it\nsoon", "in_progress", name="3").write() == "- [in_progress] 3: Fix it\n  soon"
    assert make_item("修复", depth=1).write() == "  - 修复"


def test_a_line_stands_as_it_is_until_it_changes() -> None:
    """What is not said anew stays."""
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
def test_a_status_tells_how_urgent_an_item_is(status: str, rank: Rank) -> None:
    """One that nobody knows leaves it open."""
    assert rank_status(status) is rank
    assert is_status(status) == (status != "whatever")


@given(label=st.text(max_size=40) | st.text(min_size=1).map(lambda text: text * ITEM_CHARS), status=st.text())
def test_an_item_is_bounded_and_its_status_is_of_one_line(label: str, status: str) -> None:
    """Whatever a client says."""
    item = make_item(label, status, name=status)
    assert len(item.label) <= ITEM_CHARS + 1
    assert len(item.write()) <= 4 * ITEM_CHARS
    assert len(item.status.splitlines()) <= 1
    assert item.label.startswith(label.strip()[:20].rstrip()[:10])
