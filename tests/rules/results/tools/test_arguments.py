"""What tool calls ask for."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sessions import needs_data, read_rows, recorded_files

from rules.conversation import ToolCall
from rules.results.tools.arguments import has_argument, reads_file


def call(name: str, **arguments: object) -> ToolCall:
    """A call with these arguments."""
    return ToolCall("x", name, orjson.dumps(arguments).decode())


def shell(command: str) -> ToolCall:
    """A call of a shell."""
    return call("bash", command=command)


READS = [
    call("read_file", path="src/a.py"),
    call("Read", filepath="/home/dev/app/index.ts"),
    call("read_files", files=[{"path": "/x/config.yaml"}]),
    call("view", file_path="README.md", view_range=[1, 20]),
    call("open", path="astropy/table.py", line_number=10),
    call("getFileContents", path="package.json"),
    call("mcp__fs__read_text_file", path="C:\\app\\main.cs"),
    call("read", filePath="a.go:10-20"),
    call("str_replace_editor", command="view", path="/testbed/a.py"),
    call("str_replace_based_edit_tool", command="view", path="Makefile"),
    shell("cat src/a.py"),
    shell("cd /testbed && sed -n '10,40p' django/db/models/query.py"),
    shell("cat a.py | sed -n 1,20p"),
    shell("nl -ba 'a b/c.rs' | head -50"),
    shell("head -40 main.py other.py 2>/dev/null"),
    shell("LC_ALL=C sudo cat /etc/app.toml"),
    call("shell", command=["bash", "-lc", "cat notes.md; ls -la"]),
    call("run_commands", commands=["ls", "cat index.html"]),
    call("powershell", command="Get-Content app.config.json"),
    call("run_shell_command", command="tail -n 5 x.csv"),
    call("read_file", path="build/output.log"),
    call("read_file", path="notes"),
    call("read", path=".eslintrc"),
    call("Read", file_path="/x/My notes.txt"),
    call("open_file", path="infra/main.tfstate"),
    call("repo_browser.open_file", path="Dockerfile.dev"),
    call("cat", args=["README", "x"], path="README"),
    call("display_file", at="src/a"),
    call("ReadMcpResource", uri="file:///x/a"),
    call("find_symbol", relative_path="a", include_body=True),
    ToolCall("x", "open", '"a.py" 10'),
    *(
        call(name, **{key: "cat a.py\n"})
        for name, key in {
            "run": "command",
            "sandbox_run": "command",
            "tmux": "keys",
            "write_stdin": "chars",
            "exec_command": "cmd",
            "local_shell": "command",
            "run_in_terminal": "command",
            "container.exec": "cmd",
        }.items()
    ),
    call("execute_ipython_cell", code="print(open('a.py').read())"),
]
READS_NOT = [
    call("list_files", path="a.py"),
    call("search_files", path="a.py"),
    call("read_lints", paths=["a.py"]),
    call("view_directory", path="src/a.py"),
    call("read_sensor", unit="kW", at="1.5"),
    call("view", path="src/"),
    call("read_url", url="https://example.org/a.html"),
    call("open_page", url="https://example.org/index.html"),
    call("write_file", path="a.py", content="x"),
    call("read_or_create_file", path="a.py"),
    call("get_user_details", user_id="a.py"),
    call("str_replace_editor", command="create", path="a.py", file_text="x"),
    call("search", query="a.py"),
    shell("python a.py"),
    shell("grep -n foo a.py"),
    shell("sed -i s/a/b/ a.py"),
    shell("cat a.py > b.py"),
    shell("cat > a.py << 'EOF'\nx = 1\nEOF"),
    shell("cat build.log"),
    shell("ls src"),
    shell("echo 'cat a.py' > run"),
    ToolCall("x", "bash", "no JSON: cat"),
    ToolCall("x", "read_file", ""),
    ToolCall("x", "", "{}"),
]


@pytest.mark.parametrize("one", READS, ids=lambda one: one.arguments)
def test_reading_a_file_of_code(one: ToolCall) -> None:
    """By tools that read, by editors that view, and by what prints a file in a shell."""
    assert reads_file(one)


@pytest.mark.parametrize("one", READS_NOT, ids=lambda one: one.arguments)
def test_anything_else(one: ToolCall) -> None:
    """Logs, addresses, what is run, searched or written."""
    assert not reads_file(one)


@pytest.mark.parametrize(
    ("one", "glob", "expected"),
    [
        (call("read", path="/repo/AGENTS.md"), "*AGENTS.md", True),
        (call("read", path="/repo/agents.md"), "*AGENTS.md", False),
        (call("read", files=[{"path": "skills/x/SKILL.md"}]), "*/SKILL.md", True),
        (shell("cd /repo && cat './AGENTS.md' | head"), "*AGENTS.md", True),
        (shell("cat AGENTS.md.bak"), "*AGENTS.md", False),
        (call("shell", command=["bash", "-lc", "cat AGENTS.md"]), "AGENTS.md", True),
        (call("read", path="/repo/AGENTS.md:10-20"), "*AGENTS.md", True),
        (shell("cat AGENTS.md#L10-L20"), "AGENTS.md", True),
        (call("read", path=5), "*", False),
        (ToolCall("x", "read", "AGENTS.md"), "*AGENTS.md", True),
        (ToolCall("x", "read", "{"), "*AGENTS.md", False),
    ],
)
def test_an_argument_that_a_glob_matches(one: ToolCall, glob: str, *, expected: bool) -> None:
    """Any text in the arguments, or a word of a command; case counts."""
    assert has_argument(one, ("nothing", glob)) is expected


JSON = st.recursive(st.text(), st.lists).map(orjson.dumps).map(bytes.decode)


@given(st.text() | JSON)
def test_any_arguments_will_do(arguments: str) -> None:
    """What a model writes need not be JSON."""
    for name in ("bash", "read_file", "str_replace_editor", arguments):
        one = ToolCall("x", name, arguments)
        assert reads_file(one) in {True, False}
        assert has_argument(one, ("*.md",)) in {True, False}


@pytest.mark.parametrize(
    "arguments",
    ["[" * 200_000, '{"a":' * 100_000, orjson.dumps(["cat a.py;" * 200_000] * 3).decode(), "\ud800", '"\\ud800"'],
    ids=["brackets", "nested", "long", "surrogate", "escaped surrogate"],
)
def test_hostile_arguments_are_no_matter(arguments: str) -> None:
    """However deep, however long."""
    one = ToolCall("x", "bash", arguments)
    assert reads_file(one) in {True, False}
    assert not has_argument(one, ("*AGENTS.md",))


@needs_data
def test_recorded_editors_read_when_they_view_a_file() -> None:
    """Of the recorded calls of editors, those that view a source are found, and no other."""
    found = set()
    for file in recorded_files("conversations"):
        for row in read_rows(file):
            for message in row["messages"]:
                for one in message.get("tool_calls") or ():
                    function = one["function"]
                    if "editor" in function["name"] and '"command"' in function["arguments"]:
                        reads = reads_file(ToolCall("", function["name"], function["arguments"]))
                        found.add((orjson.loads(function["arguments"])["command"], reads))
    assert ("view", True) in found
    assert {command for command, reads in found if reads} == {"view"}
