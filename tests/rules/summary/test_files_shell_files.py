"""Files that command lines read, write and change."""

import pytest
from support.steps import count_steps

from trimtab.rules.summary.files import FileAct, FileEvent, find_shell_events

BODY = "# Rules\nUse tabs."


def find(command: str, result: str = BODY) -> list[FileEvent]:
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
        assert find(command) == [FileEvent(path, FileAct.READ, text, is_partial=is_partial)]
    for command in ["ls; cat a.md", "cat a.md b.txt; git log", "cat a.md && cat c.md", "cat a.md\nls"]:
        assert find(command)[0] == FileEvent("a.md", FileAct.READ)
    for command in ["grep x a.md", "ls a.md", "wc -l a.md", "echo a.md", "cat b.txt", "", "a.md"]:
        assert find(command) == []


def test_other_programs_change_a_file() -> None:
    """A here-document is its text, else that is unknown."""
    for command in [
        "sed -i s/a/b/ a.md",
        "mv x a.md",
        "echo x >> a.md",
        "git checkout a.md",
        "python - > a.md <<A\nx\nA",
    ]:
        assert find(command) == [FileEvent("a.md", FileAct.CHANGE)]
    for command in ["cat > a.md <<'A'\n- [ ] x\n\nA\nls", "cat <<A > a.md\n- [ ] x\n\nA", "cat <<-A >a.md\n- [ ] x\n"]:
        assert find("python - <<B\nprint()\nB\n" + command) == [FileEvent("a.md", FileAct.WRITE, "- [ ] x\n")]


@pytest.mark.parametrize("piece", ["<<A\n", "'", "cat a.md;", "x a.md\n"])
def test_twice_the_command_takes_at_most_twice_the_work(piece: str) -> None:
    """For any command."""
    small, large = (count_steps(lambda n=n: find("cat a.md " + piece * n)) for n in (400, 800))
    assert large <= 2 * small
