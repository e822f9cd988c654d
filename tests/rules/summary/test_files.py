"""Files that the tools of agents read, write and change."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tool_steps import answered

from trimtab.rules.summary.files import (
    MOST_STATES,
    FileAct,
    FileEvent,
    FileState,
    find_file_events,
    follow_events,
    is_same_path,
    normalise_path,
    take_name,
)
from trimtab.rules.text.markers import mark_middle, mark_pruned

BODY = "# Rules\nUse tabs."
WHOLE = [FileEvent("/r/A.md", FileAct.READ, BODY)]
PART = [FileEvent("/r/A.md", FileAct.READ, BODY, is_partial=True)]
CHANGED = [FileEvent("/r/A.md", FileAct.CHANGE)]
INTEGERS = st.integers(-(2**63), 2**64 - 1)
"""All that orjson can write, with which the calls of this test are made."""


def find(name: str, arguments: object, said: str = BODY, *, fails: bool = False) -> list[FileEvent]:
    """The events of Markdown files."""
    return list(find_file_events(answered(name, arguments, said, fails=fails), lambda path: path.endswith(".md")))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("Read", {"file_path": "/r/A.md"}),
        ("Read", {"file_path": "/r/A.md", "limit": 3, "offset": 1}),
        ("read", {"filePath": "/r/A.md", "offset": None}),
        ("ReadFile", {"path": "/r/A.md", "line_offset": 1, "n_lines": 1000}),
        ("read_file", {"absolute_path": "/r/A.md"}),
        ("read_files", {"files": [{"path": "/r/A.md", "start_line": None}]}),
        ("readfile", {"filepath": "/r/A.md"}),
        ("mcp__fs__read_multiple_files", {"paths": ["/r/A.md"]}),
        ("str_replace_editor", {"command": "view", "path": "/r/A.md"}),
        ("open", {"path": "/r/A.md"}),
        ("shell", {"command": ["bash", "-lc", "cat /r/A.md"]}),
        ("shell", {"command": ["cat", "/r/A.md"]}),
        ("run_commands", {"commands": ["cat /r/A.md"]}),
        ("exec_command", {"cmd": "cat /r/A.md"}),
    ],
)
def test_a_file_is_read(name: str, arguments: object) -> None:
    """The tools are those of Claude Code, opencode, Kimi CLI, Gemini CLI, Cline, OpenHands, Codex and others."""
    assert find(name, arguments) == WHOLE


@pytest.mark.parametrize(
    "arguments",
    [{"offset": 10}, {"limit": 2}, {"view_range": [1, 9]}, {"end_line": 2}, {"start_line": 5, "end_line": 99}],
)
def test_a_part_of_a_file_is_marked_as_partial(arguments: dict[str, object]) -> None:
    """The call asked for some lines."""
    assert find("read_file", {"path": "/r/A.md", **arguments}) == PART


@pytest.mark.parametrize("end", [mark_middle(9, 99, "tokens"), "(File has more lines.)", "... [truncated]"])
def test_a_result_may_say_that_it_is_a_part(end: str) -> None:
    """In the tool's words or in our marker."""
    (event,) = find("Read", {"file_path": "/r/A.md"}, f"{BODY}\n{end}")
    assert event.is_partial


@pytest.mark.parametrize(
    "said", ["", "cat: /r/A.md: No such file or directory", "Error: File not found", "ENOENT", "x\n[exit code: 1]"]
)
def test_a_failed_read_does_not_count(said: str) -> None:
    """Nothing was read."""
    assert find("Read", {"file_path": "/r/A.md"}, said) == []
    assert find("Read", {"file_path": "/r/A.md"}, fails=True) == []


def test_only_the_path_is_known_of_a_removed_result() -> None:
    """Our own marker is not a file's text."""
    assert find("Read", {"file_path": "/r/A.md"}, mark_pruned(9)) == [FileEvent("/r/A.md", FileAct.READ)]


def test_the_texts_of_several_files_are_not_separated() -> None:
    """Even if only one of them is wanted."""
    assert find("read_files", {"files": [{"path": "/r/A.md"}, {"path": "b"}]}) == [FileEvent("/r/A.md", FileAct.READ)]


def test_the_output_is_taken_out_of_a_result_in_json() -> None:
    """Codex sends results in this form."""
    assert find("shell", {"command": ["cat", "/r/A.md"]}, '{"output":"# Rules\\nUse tabs.","metadata":{}}') == WHOLE


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("Write", {"file_path": "/r/A.md", "content": BODY}),
        ("str_replace_editor", {"command": "create", "path": "/r/A.md", "file_text": BODY}),
        ("apply_patch", {"input": "*** Begin Patch\n*** Add File: /r/A.md\n+# Rules\n+Use tabs.\n*** Add File: b\n+x"}),
        ("apply_patch", "*** Begin Patch\n*** Add File: /r/A.md\n+# Rules\n+Use tabs."),
    ],
)
def test_a_file_is_written(name: str, arguments: object) -> None:
    """Its text is known."""
    assert find(name, arguments, "ok") == [FileEvent("/r/A.md", FileAct.WRITE, BODY)]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("Edit", {"file_path": "/r/A.md", "old_string": "a", "new_string": "b"}),
        ("edit", {"filePath": "/r/A.md", "oldString": "a", "newString": "b"}),
        ("str_replace_editor", {"command": "str_replace", "path": "/r/A.md", "old_str": "a", "new_str": "b"}),
        ("editor", {"path": "/r/A.md", "old_text": "a", "new_text": "b"}),
    ],
)
def test_a_file_is_edited(name: str, arguments: object) -> None:
    """One piece of text is replaced by another."""
    assert find(name, arguments, "ok") == [FileEvent("/r/A.md", FileAct.EDIT, "b", "a")]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("edit", {"path": "/r/A.md", "edits": [{"oldText": "a", "newText": "b"}]}),
        ("WriteFile", {"path": "/r/A.md", "content": "x", "mode": "append"}),
        ("delete_file", {"path": "/r/A.md"}),
        ("str_replace_editor", {"command": "insert", "path": "/r/A.md", "insert_line": 1, "new_str": "x"}),
        ("apply_patch", {"patch": "*** Begin Patch\n*** Update File: /r/A.md\n-a\n+b"}),
        ("bash", {"command": "sed -i s/a/b/ /r/A.md"}),
    ],
)
def test_a_file_is_changed_in_ways_that_are_not_followed(name: str, arguments: object) -> None:
    """The event is a change of unknown content."""
    assert find(name, arguments, "ok") == CHANGED


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("Grep", {"pattern": "x", "path": "/r/A.md"}),
        ("list_directory", {"path": "/r/A.md"}),
        ("find_file", {"file_name": "/r/A.md"}),
        ("frobnicate", {"path": "/r/A.md"}),
        ("Skill", {"skill": "pdf"}),
        ("Read", '{"file_path": "/r/A.md'),
        ("Read", {"file_path": 7, "path": None}),
    ],
)
def test_other_calls_do_nothing_to_a_file(name: str, arguments: object) -> None:
    """A search does not read a file."""
    assert find(name, arguments, "Launching skill: pdf") == []


def test_a_skill_that_a_tool_shows_is_its_file_read() -> None:
    """By convention, the file is SKILL.md in the folder with the skill's name."""
    assert find("skill", {"name": "pdf"}) == [FileEvent("pdf/SKILL.md", FileAct.READ, BODY)]


@given(
    name=st.sampled_from(["Read", "edit", "bash", "skill", "apply_patch"]),
    arguments=st.dictionaries(
        st.sampled_from(["path", "files", "command", "content", "name", "offset"]),
        st.none() | INTEGERS | st.text(max_size=9) | st.lists(st.text(max_size=3) | INTEGERS, max_size=3),
    ),
    said=st.text(),
)
def test_any_call_is_read(name: str, arguments: object, said: str) -> None:
    """No call raises an exception."""
    list(find_file_events(answered(name, arguments, said), lambda _path: True))


# The state of files after events.

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
