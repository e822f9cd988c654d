"""What a shell's command line prints."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.results.tools.shell import names_code, prints_code, without_lines

PRINTS = [
    "sed -n '1,40p;80,120p' a.py",
    "sed '10,20!d' a.py",
    "sed -En '1,5p' a.py",
    "awk 'NR>=10 && NR<=20 {print; x}' a.py",
    "git show HEAD~1:src/a.py",
    "git -C x cat-file -p HEAD:package.json | head",
    "python3 -c \"print(open('a.py').read())\"",
    'python3 -c "print(open(\\"a.py\\").read())"',
    "timeout 10 cat a.py",
    "nice -n 5 cat a.py",
    "sudo -u web env X=1 cat a.py",
    "if [ -f a.py ]; then cat a.py; fi",
    'for f in a.py b.py; do cat "$f"; done',
    "docker exec -it web cat /app/a.py",
    "docker compose exec web sh -c 'cat /app/a.py'",
    "kubectl exec pod -- cat /app/a.py",
    "ssh host 'cat /etc/nginx/nginx.conf'",
    "ssh -p 22 host cat /etc/nginx/nginx.conf",
    "bash -lc 'cd /x && cat a.py'",
    '/bin/bash -c "cat \\"a.py\\""',
    "find . -name '*.py' | xargs cat",
    "find . -name '*.py' -exec cat {} \\;",
    "cat a.py >&2",
    "cat a.py 2>/dev/null",
    "cat a.py > /dev/stderr",
    "cat < a.py",
    "cat 'my file.py'",
    "cat a\\ b.py",
    "(cat a.py)",
    "tmux send-keys 'cat a.py' Enter",
]
PRINTS_NOT = [
    "",
    "cat",
    "cat build.log",
    "cat notes.txt",
    "cat a.py > b.py",
    "cat a.py >> b.py",
    "cat a.py 1> b.py",
    "cat a.py &> b.py",
    "cat > a.py",
    "cat <<'EOF' > a.py\nx = 1\nEOF",
    "sed -Ei 's/a/b/' a.py",
    "sed --in-place s/a/b/ a.py",
    "git show HEAD",
    "git log a.py",
    "timeout 10 python a.py",
    "sudo npm test a.py",
    "echo 'cat a.py'",
    "find . -name '*.py' | xargs wc -l",
    "for f in a.py; do wc $f; done",
    "python3 -c \"s = open('a.py').read(); open('a.py', 'w').write(s); print(s)\"",
    "bash -c 'npm test'",
]


@pytest.mark.parametrize("command", PRINTS)
def test_what_prints_a_file_of_code(command: str) -> None:
    """Whoever runs it, and however it is quoted."""
    assert prints_code(command)


@pytest.mark.parametrize("command", PRINTS_NOT)
def test_what_prints_none(command: str) -> None:
    """Logs, other programs, and what goes into a file."""
    assert not prints_code(command)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.py", True), ("src/a.py:10-20", True), ("C:\\x\\a.cs", True), ("Makefile", True), ("Dockerfile.dev", True),
        (".eslintrc", True), ("main.tfstate", True), (".env.local", True), ("App.xaml", True), ("configure.ac", True),
        ("build.log", False), ("notes.txt", False), ("README", False), ("https://example.org/a.py", False), ("", False),
    ],
)  # fmt: skip
def test_what_names_a_file_of_code(path: str, *, expected: bool) -> None:
    """By its extension, or by a name that such a file has."""
    assert names_code(path) is expected


def test_a_path_is_told_without_its_lines() -> None:
    """In the forms of editors and of GitHub."""
    assert [*map(without_lines, ["a.py:10-20", "a.py:3", "a.py#L10-L20", "a.py"])] == ["a.py"] * 4


@given(st.text(st.sampled_from("cat a.py'\"\\;|&<>()`$ \n{}2"), max_size=60))
def test_any_command_line_will_do(command: str) -> None:
    """However it is quoted, or not."""
    assert prints_code(command) in {True, False}


@pytest.mark.parametrize("piece", ["'", '"', "\\", "'\"", "(", "cat ", "> ", "<<", "a\\'\"", "bash -c 'x y' "])
def test_a_hostile_command_line_is_no_matter(piece: str) -> None:
    """Of the length that is read at most."""
    assert not prints_code(piece * (4096 // len(piece)))
