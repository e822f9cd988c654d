"""What tool calls ask for."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.rules.conversation import ToolCall
from trimtab.rules.results.calls import MAX_DEPTH, _find_strings, has_argument, reads_json_file


def call(name: str, **arguments: object) -> ToolCall:
    """A call with these arguments."""
    return ToolCall("x", name, orjson.dumps(arguments).decode())


def shell(command: str) -> ToolCall:
    """A call of a shell."""
    return call("bash", command=command)


READS = [
    call("read_file", path="src/a"),
    call("Read", filepath="/home/dev/app/package"),
    call("read_files", files=[{"path": "/x/config"}]),
    call("open", path="a", line_number=10),
    call("getFileContents", path="a"),
    call("mcp__fs__read_text_file", path="C:\\app\\a"),
    call("read", filePath="a:10-20"),
    call("repo_browser.open_file", path="a"),
    call("ReadMcpResource", uri="file:///x/a"),
    call("find_symbol", relative_path="a", include_body=True),
    call("str_replace_editor", command="view", path="/testbed/package.json"),
    call("view_range", path="data/map.geojson:10-20"),
    shell("cat package.json"),
    shell("cd /testbed && sed -n '10,40p' a.ipynb"),
    shell("nl -ba 'a b/c.jsonc' | head -50"),
    shell("head -40 .eslintrc other 2>/dev/null"),
    shell("git show HEAD~1:src/a.json"),
    shell("ssh host 'cat /x/main.tfstate'"),
    shell("python3 -c \"print(open('a.json').read())\""),
    shell("cat a.json#L10-L20"),
    call("shell", command=["bash", "-lc", "cat composer.lock; ls -la"]),
    call("run_commands", commands=["ls", "cat a.JSON"]),
    ToolCall("x", "open_page", '"a.json" 10'),
]
READS_NOT = [
    call("read_sensor", unit="kW", at="1.5"),
    call("read_url", url="https://example.org/a"),
    call("open_page", url="https://example.org/a.json"),
    call("get_user_details", user_id="a_1"),
    call("search", query="a json"),
    shell("python a.py"),
    shell("curl https://example.org/a.json"),
    shell("npm ls --json"),
    shell("ls src"),
    ToolCall("x", "bash", "no JSON: cat"),
    ToolCall("x", "", "{}"),
]


@pytest.mark.parametrize("one", READS, ids=lambda one: one.arguments)
def test_reading_a_file_of_json(one: ToolCall) -> None:
    """The name of the tool shows it, or an argument that names such a file."""
    assert reads_json_file(one)


@pytest.mark.parametrize("one", READS_NOT, ids=lambda one: one.arguments)
def test_anything_else(one: ToolCall) -> None:
    """Services, URLs and programs are not files."""
    assert not reads_json_file(one)


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
    """Any string in the arguments, or a word of a command. Case matters."""
    assert has_argument(one, ("nothing", glob)) is expected


JSON = st.recursive(st.text(), st.lists).map(orjson.dumps).map(bytes.decode)


@given(st.text() | JSON)
def test_any_arguments_will_do(arguments: str) -> None:
    """The arguments that a model writes need not be JSON."""
    for name in ("bash", "read_file", "str_replace_editor", arguments):
        one = ToolCall("x", name, arguments)
        assert reads_json_file(one) in {True, False}
        assert has_argument(one, ("*.md",)) in {True, False}


@pytest.mark.parametrize(
    "arguments",
    ["[" * 200_000, '{"a":' * 100_000, orjson.dumps(["cat a.py;" * 200_000] * 3).decode(), "\ud800", '"\\ud800"'],
    ids=["brackets", "nested", "long", "surrogate", "escaped surrogate"],
)
def test_hostile_arguments_are_no_matter(arguments: str) -> None:
    """However deep, however long."""
    one = ToolCall("x", "bash", arguments)
    assert reads_json_file(one) in {True, False}
    assert not has_argument(one, ("*AGENTS.md",))


def test_a_list_of_strings_is_also_a_command_line() -> None:
    """A single string is only itself."""
    assert list(_find_strings({"a": ["cat", "x", 5], "b": ["one"], "c": "d"})) == ["cat x", "cat", "x", "one", "d"]


def test_arguments_are_read_to_a_depth() -> None:
    """What lies deeper is not looked at."""
    found = []
    for depth in range(MAX_DEPTH + 2):
        for wrap in (lambda inner: {"a": inner}, lambda inner: [inner]):
            value: object = "x"
            for _ in range(depth):
                value = wrap(value)
            found += [depth] * len([*_find_strings(value)])
    assert found == [depth for depth in range(MAX_DEPTH + 1) for _ in range(2)]
