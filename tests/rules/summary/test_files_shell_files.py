"""Files that command lines read, write and change."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.steps import count_steps

from trimtab.rules.summary.files import FileAct, FileEvent, find_shell_events

BODY = "# Rules\nUse tabs."
WORDS = st.lists(
    st.sampled_from(["cat", "a.md", "<<A", "\n", "A", ">", ">>", ";", "|", "'", '"', "\0", "&&", "sed -n", "1,9p"])
)


def find(command: str, result: str = BODY) -> list[FileEvent]:
    """The events of Markdown files."""
    return list(find_shell_events(command, result, lambda path: path.endswith(".md")))


@pytest.mark.parametrize(
    ("command", "path", "is_partial"),
    [
        ("cat a.md", "a.md", False),
        ("cd /r && cat 'd/a.md'", "d/a.md", False),
        ("/bin/cat ./a.md", "a.md", False),
        ("nl -ba a.md", "a.md", False),
        ("Get-Content a.md", "a.md", False),
        ("sed -n '1,3p' a.md", "a.md", False),
        ("head -n 3 a.md", "a.md", False),
        ("sed -n '1,2p' a.md", "a.md", True),
        ("sed -n '7,90p' a.md", "a.md", True),
        ("head -2 a.md", "a.md", True),
        ("tail a.md", "a.md", True),
        ("cat a.md | head", "a.md", True),
    ],
)
def test_a_plain_command_reads_a_file(command: str, path: str, *, is_partial: bool) -> None:
    """The whole file, if fewer lines came than were asked for."""
    text = "" if "|" in command else BODY
    assert find(command) == [FileEvent(path, FileAct.READ, text, is_partial=is_partial)]


@pytest.mark.parametrize("command", ["ls; cat a.md", "cat a.md b.txt; git log", "cat a.md && cat c.md", "cat a.md\nls"])
def test_mixed_output_is_not_the_files_text(command: str) -> None:
    """It is still known that the file was read."""
    assert find(command)[0] == FileEvent("a.md", FileAct.READ)


@pytest.mark.parametrize(
    "command",
    ["sed -i s/a/b/ a.md", "rm a.md", "mv x a.md", "echo x >> a.md", "echo x > a.md", "git checkout a.md", "tee a.md",
     "python - > a.md <<A\nx\nA"],
)  # fmt: skip
def test_other_programs_change_a_file(command: str) -> None:
    """The new text is unknown."""
    assert find(command) == [FileEvent("a.md", FileAct.CHANGE)]


@pytest.mark.parametrize("command", ["grep x a.md", "ls a.md", "wc -l a.md", "echo a.md", "cat b.txt", "", "a.md"])
def test_other_commands_do_nothing_to_a_file(command: str) -> None:
    """Even if they name it."""
    assert find(command) == []


@pytest.mark.parametrize(
    "command", ["cat > a.md <<'A'\n- [ ] x\n\nA\nls", "cat <<A > a.md\n- [ ] x\n\nA", "cat <<-A >a.md\n- [ ] x\n"]
)
def test_a_here_document_is_the_text_of_the_file(command: str) -> None:
    """If there are several here-documents, the one of the same line."""
    assert find("python - <<B\nprint()\nB\n" + command) == [FileEvent("a.md", FileAct.WRITE, "- [ ] x\n")]


@given(command=WORDS.map(" ".join), result=st.text(max_size=20))
def test_any_command_is_read(command: str, result: str) -> None:
    """No command raises an exception, and no text is invented."""
    assert all(event.text in command.replace("\0", "") or event.text == result for event in find(command, result))


@pytest.mark.parametrize("piece", ["<<A", "<<A\n", "'", "; ", "> ", "cat a.md;", "x a.md\n", "\0"])
def test_twice_the_command_takes_at_most_twice_the_work(piece: str) -> None:
    """For any command."""
    small, large = (count_steps(lambda n=n: find("cat a.md " + piece * n)) for n in (400, 800))
    assert large <= 2 * small
