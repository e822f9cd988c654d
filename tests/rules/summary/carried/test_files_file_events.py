"""The state of files after events."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.rules.summary.carried.files import (
    MOST_STATES,
    FileAct,
    FileEvent,
    FileState,
    follow_events,
    is_same_path,
    normalise_path,
    take_name,
)

READ = FileEvent("a", FileAct.READ, "one two")
EVENTS = st.builds(
    FileEvent,
    st.sampled_from(["a", "/r/a", "b"]),
    st.sampled_from(FileAct),
    st.sampled_from(["", "one", "one two"]),
    st.sampled_from(["", "one"]),
    st.booleans(),
)


def follow(*events: FileEvent) -> FileState:
    """The state of `a`."""
    return follow_events(events)["a"]


def test_the_newest_text_is_known() -> None:
    """A text that was written counts like one that was read."""
    assert follow(READ, FileEvent("a", FileAct.READ, "three")) == FileState("a", "three", was_read=True)
    assert follow(READ, FileEvent("a", FileAct.WRITE, "three")) == FileState("a", "three", was_read=True)
    assert follow(FileEvent("a", FileAct.WRITE, "three")) == FileState("a", "three")


def test_a_part_does_not_replace_the_whole() -> None:
    """Unless the whole has changed."""
    part = FileEvent("a", FileAct.READ, "two", is_partial=True)
    change = FileEvent("a", FileAct.CHANGE)
    assert follow(READ, part).text == "one two"
    assert follow(READ, change, part) == FileState("a", "two", is_partial=True, was_read=True)
    assert follow(part, READ) == FileState("a", "one two", was_read=True)


def test_an_edit_is_followed_if_it_is_unambiguous() -> None:
    """Otherwise the file counts as changed: the old piece occurs never or twice, or the file's text is unknown."""
    edit = FileEvent("a", FileAct.EDIT, "2", "two")
    assert follow(READ, edit) == FileState("a", "one 2", was_read=True, edits=1)
    assert follow(READ, FileEvent("a", FileAct.EDIT, "2", "three")).is_changed
    assert follow(READ, FileEvent("a", FileAct.EDIT, "2", "o")).is_changed
    assert follow(FileEvent("a", FileAct.READ), edit).is_changed
    assert follow(READ, FileEvent("/r/a", FileAct.CHANGE)).is_changed
    assert not follow(READ, FileEvent("ba", FileAct.CHANGE)).is_changed


def test_files_are_in_the_order_in_which_they_were_last_seen() -> None:
    """The number of files is bounded."""
    other = FileEvent("b", FileAct.READ, "x")
    assert list(follow_events((READ, other, READ))) == ["b", "a"]
    many = follow_events(FileEvent(str(number), FileAct.READ, "x") for number in range(MOST_STATES + 1))
    assert list(many) == [str(number) for number in range(1, MOST_STATES + 1)]


@given(events=st.lists(EVENTS, max_size=12))
def test_a_text_that_does_not_count_as_changed_is_in_the_transcript(events: list[FileEvent]) -> None:
    """It was read or written, and then possibly edited."""
    states = follow_events(events)
    assert all(
        state.edits or not state.text or state.text in {event.text for event in events} for state in states.values()
    )
    assert states == follow_events(events)


@pytest.mark.parametrize(
    ("path", "plain"),
    [("./a/b.md", "a/b.md"), ("'a.md'", "a.md"), ("a\\b.md", "a/b.md"), ("a.md:10-20", "a.md"), ("a.md#L3", "a.md"),
     ("file:///a.md", "/a.md"), (" a.md ", "a.md")],
)  # fmt: skip
def test_paths_are_written_in_one_way(path: str, plain: str) -> None:
    """Without the signs that tools add."""
    assert normalise_path(path) == plain
    assert take_name(plain).endswith(".md")


def test_a_path_may_end_with_another() -> None:
    """An absolute path may end with a relative one."""
    assert is_same_path("/r/a.md", "a.md")
    assert not is_same_path("/r/ba.md", "a.md")
