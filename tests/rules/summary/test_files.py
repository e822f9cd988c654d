"""Files that the tools of agents read, write and change."""

import pytest
from support.steps import count_steps
from support.tool_steps import answered

from trimtab.rules.summary.files import (
    MOST_STATES,
    FileAct,
    FileEvent,
    FileState,
    find_file_events,
    find_shell_events,
    follow_events,
    normalise_path,
    take_name,
)
from trimtab.rules.text.markers import mark_middle, mark_pruned

BODY = "# Rules\nUse tabs."
WHOLE = [FileEvent("/r/A.md", FileAct.READ, BODY)]
PART = [FileEvent("/r/A.md", FileAct.READ, BODY, is_partial=True)]
CHANGED = [FileEvent("/r/A.md", FileAct.CHANGE)]


def find(name: str, arguments: object, said: str = BODY, *, fails: bool = False) -> list[FileEvent]:
    return list(find_file_events(answered(name, arguments, said, fails=fails), lambda path: path.endswith(".md")))


def test_a_file_is_read() -> None:
    """Whole or in part, which the call may say or the result. A failed read counts for nothing."""
    for name, arguments in [
        ("Read", {"file_path": "/r/A.md"}),
        ("read", {"filePath": "/r/A.md", "offset": None}),
        ("ReadFile", {"path": "/r/A.md", "line_offset": 1, "n_lines": 1000}),
        ("read_files", {"files": [{"path": "/r/A.md", "start_line": None}]}),
        ("view_file", {"path": "/r/A.md", "start_line": 1, "end_line": -1}),
        ("mcp__fs__read_multiple_files", {"paths": ["/r/A.md"]}),
        ("str_replace_editor", {"command": "view", "path": "/r/A.md"}),
        ("shell", {"command": ["bash", "-lc", "cat /r/A.md"]}),
    ]:
        assert find(name, arguments) == WHOLE
    for arguments in [
        {"offset": 10},
        {"limit": 2},
        {"view_range": [1, 9]},
        {"end_line": 2},
        {"start_line": 5, "end_line": 99},
    ]:
        assert find("read_file", {"path": "/r/A.md", **arguments}) == PART
    for end in [mark_middle(9, 99, "tokens"), "(File has more lines.)", "... [truncated]"]:
        (event,) = find("Read", {"file_path": "/r/A.md"}, f"{BODY}\n{end}")
        assert event.is_partial
    for said in ["", "cat: /r/A.md: No such file or directory", "Error: File not found", "ENOENT", "x\n[exit code: 1]"]:
        assert find("Read", {"file_path": "/r/A.md"}, said) == []
        assert find("Read", {"file_path": "/r/A.md"}, fails=True) == []


def test_of_some_reads_only_the_path_is_known() -> None:
    """Our own marker is no text of a file, those of several files are not separated, and Codex sends JSON."""
    assert find("Read", {"file_path": "/r/A.md"}, mark_pruned(9)) == [FileEvent("/r/A.md", FileAct.READ)]
    assert find("read_files", {"files": [{"path": "/r/A.md"}, {"path": "b"}]}) == [FileEvent("/r/A.md", FileAct.READ)]
    assert find("shell", {"command": ["cat", "/r/A.md"]}, '{"output":"# Rules\\nUse tabs.","metadata":{}}') == WHOLE
    assert find("skill", {"name": "pdf"}) == [FileEvent("pdf/SKILL.md", FileAct.READ, BODY)]


def test_a_file_is_written_or_edited() -> None:
    """Of what is not followed only the change is known; a search does nothing."""
    for name, arguments in [
        ("Write", {"file_path": "/r/A.md", "content": BODY}),
        ("apply_patch", {"input": "*** Begin Patch\n*** Add File: /r/A.md\n+# Rules\n+Use tabs.\n*** Add File: b\n+x"}),
        ("apply_patch", "*** Begin Patch\n*** Add File: /r/A.md\n+# Rules\n+Use tabs."),
    ]:
        assert find(name, arguments, "ok") == [FileEvent("/r/A.md", FileAct.WRITE, BODY)]
    for name, arguments in [
        ("Edit", {"file_path": "/r/A.md", "old_string": "a", "new_string": "b"}),
        ("str_replace_editor", {"command": "str_replace", "path": "/r/A.md", "old_str": "a", "new_str": "b"}),
    ]:
        assert find(name, arguments, "ok") == [FileEvent("/r/A.md", FileAct.EDIT, "b", "a")]
    for name, arguments in [
        ("edit", {"path": "/r/A.md", "edits": [{"oldText": "a", "newText": "b"}]}),
        ("WriteFile", {"path": "/r/A.md", "content": "x", "mode": "append"}),
        ("delete_file", {"path": "/r/A.md"}),
        ("str_replace_editor", {"command": "insert", "path": "/r/A.md", "insert_line": 1, "new_str": "x"}),
        ("apply_patch", {"patch": "*** Begin Patch\n*** Update File: /r/A.md\n-a\n+b"}),
        ("bash", {"command": "sed -i s/a/b/ /r/A.md"}),
    ]:
        assert find(name, arguments, "ok") == CHANGED
    for name, arguments in [
        ("Grep", {"pattern": "x", "path": "/r/A.md"}),
        ("find_file", {"file_name": "/r/A.md"}),
        ("Skill", {"skill": "pdf"}),
        ("Read", '{"file_path": "/r/A.md'),
        ("Read", {"file_path": 7, "path": None}),
    ]:
        assert find(name, arguments, "Launching skill: pdf") == []


# The state of files after events.

READ = FileEvent("a", FileAct.READ, "one two")


def follow(*events: FileEvent) -> FileState:
    return follow_events(events)["a"]


def test_the_newest_text_is_known() -> None:
    """A part does not replace the whole, and an edit is followed if it is clear. The number of files is bounded."""
    assert follow(READ, FileEvent("a", FileAct.READ, "three")) == FileState("a", "three", was_read=True)
    assert follow(READ, FileEvent("a", FileAct.WRITE, "three")) == FileState("a", "three", was_read=True)
    assert follow(FileEvent("a", FileAct.WRITE, "three")) == FileState("a", "three")
    part = FileEvent("a", FileAct.READ, "two", is_partial=True)
    change = FileEvent("a", FileAct.CHANGE)
    assert follow(READ, part).text == "one two"
    assert follow(READ, change, part) == FileState("a", "two", is_partial=True, was_read=True)
    assert follow(part, READ) == FileState("a", "one two", was_read=True)
    edit = FileEvent("a", FileAct.EDIT, "2", "two")
    assert follow(READ, edit) == FileState("a", "one 2", was_read=True, edits=1)
    assert follow(READ, FileEvent("a", FileAct.EDIT, "2", "three")).is_changed
    assert follow(READ, FileEvent("a", FileAct.EDIT, "2", "o")).is_changed
    assert follow(FileEvent("a", FileAct.READ), edit).is_changed
    assert follow(READ, FileEvent("/r/a", FileAct.CHANGE)).is_changed
    assert not follow(READ, FileEvent("ba", FileAct.CHANGE)).is_changed
    assert not follow_events((FileEvent("ba", FileAct.READ, "x"), FileEvent("a", FileAct.CHANGE)))["ba"].is_changed
    other = FileEvent("b", FileAct.READ, "x")
    assert list(follow_events((READ, other, READ))) == ["b", "a"]
    many = follow_events(FileEvent(str(number), FileAct.READ, "x") for number in range(MOST_STATES + 1))
    assert list(many) == [str(number) for number in range(1, MOST_STATES + 1)]


@pytest.mark.parametrize(
    ("path", "plain"),
    [("./a/b.md", "a/b.md"), ("'a.md'", "a.md"), ("a\\b.md", "a/b.md"), ("a.md:10-20", "a.md"), ("a.md#L3", "a.md"),
     ("file:///a.md", "/a.md"), (" a.md ", "a.md")],
)  # fmt: skip
def test_paths_are_written_in_one_way(path: str, plain: str) -> None:
    """Without the signs that tools add."""
    assert normalise_path(path) == plain
    assert take_name(plain).endswith(".md")


def find_in_shell(command: str, result: str = BODY) -> list[FileEvent]:
    return list(find_shell_events(command, result, lambda path: path.endswith(".md")))


def test_a_plain_command_reads_a_file() -> None:
    """Whole, if fewer lines came than were asked for. Mixed output is not its text, and naming it does nothing."""
    for command, path, is_partial in [
        ("cat a.md", "a.md", False),
        ("/bin/cat ./a.md", "a.md", False),
        ("nl -ba a.md", "a.md", False),
        ("sed -n '1,3p' a.md", "a.md", False),
        ("head -n 3 a.md", "a.md", False),
        ("sed -n '1,2p' a.md", "a.md", True),
        ("sed -n '7,90p' a.md", "a.md", True),
        ("tail a.md", "a.md", True),
        ("cat a.md | head", "a.md", True),
    ]:
        text = "" if "|" in command else BODY
        assert find_in_shell(command) == [FileEvent(path, FileAct.READ, text, is_partial=is_partial)]
    for command in ["ls; cat a.md", "cat a.md b.txt; git log", "cat a.md && cat c.md", "cat a.md\nls"]:
        assert find_in_shell(command)[0] == FileEvent("a.md", FileAct.READ)
    for command in ["grep x a.md", "ls a.md", "wc -l a.md", "echo a.md", "cat b.txt", "", "a.md"]:
        assert find_in_shell(command) == []


def test_other_programs_change_a_file() -> None:
    """A here-document is its text, else that is unknown."""
    for command in [
        "sed -i s/a/b/ a.md",
        "mv x a.md",
        "echo x >> a.md",
        "git checkout a.md",
        "python - > a.md <<A\nx\nA",
    ]:
        assert find_in_shell(command) == [FileEvent("a.md", FileAct.CHANGE)]
    for command in ["cat > a.md <<'A'\n- [ ] x\n\nA\nls", "cat <<A > a.md\n- [ ] x\n\nA", "cat <<-A >a.md\n- [ ] x\n"]:
        assert find_in_shell("python - <<B\nprint()\nB\n" + command) == [FileEvent("a.md", FileAct.WRITE, "- [ ] x\n")]


@pytest.mark.parametrize("piece", ["<<A\n", "'", "cat a.md;", "x a.md\n"])
def test_twice_the_command_takes_at_most_twice_the_work(piece: str) -> None:
    small, large = (count_steps(lambda n=n: find_in_shell("cat a.md " + piece * n)) for n in (400, 800))
    assert large <= 2 * small
