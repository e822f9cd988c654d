"""What tool calls ask for."""

import orjson
import pytest

from trimtab.rules.conversation import ToolCall
from trimtab.rules.results.calls import MAX_DEPTH, _find_strings, has_argument, reads_json_file


def call(name: str, **arguments: object) -> ToolCall:
    return ToolCall("x", name, orjson.dumps(arguments).decode())


def shell(command: str) -> ToolCall:
    return call("bash", command=command)


READS = [
    call("read_file", path="src/a"),
    call("mcp__fs__read_text_file", path="C:\\app\\a"),
    call("repo_browser.open_file", path="a"),
    call("ReadMcpResource", uri="file:///x/a"),
    call("find_symbol", relative_path="a", include_body=True),
    call("str_replace_editor", command="view", path="/testbed/package.json"),
    call("view_range", path="data/map.geojson:10-20"),
    shell("cat package.json"),
    shell("cd /testbed && sed -n '10,40p' a.ipynb"),
    shell("nl -ba 'a b/c.jsonc' | head -50"),
    shell("git show HEAD~1:src/a.json"),
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
    call("search", query="a json"),
    shell("python a.py"),
    shell("curl https://example.org/a.json"),
    ToolCall("x", "bash", "no JSON: cat"),
    ToolCall("x", "", "{}"),
]


def test_reading_a_file_of_json() -> None:
    """The name of the tool shows it, or an argument that names such a file. URLs and programs are none."""
    for one in READS:
        assert reads_json_file(one)
    for one in READS_NOT:
        assert not reads_json_file(one)


@pytest.mark.parametrize(
    ("one", "glob", "expected"),
    [
        (call("read", path="/repo/AGENTS.md"), "*AGENTS.md", True),
        (call("read", path="/repo/agents.md"), "*AGENTS.md", False),
        (call("read", files=[{"path": "skills/x/SKILL.md"}]), "*/SKILL.md", True),
        (shell("cd /repo && cat './AGENTS.md' | head"), "*AGENTS.md", True),
        (shell("cat AGENTS.md.bak"), "*AGENTS.md", False),
        (call("read", path="/repo/AGENTS.md:10-20"), "*AGENTS.md", True),
        (call("read", path=5), "*", False),
        (ToolCall("x", "read", "AGENTS.md"), "*AGENTS.md", True),
        (ToolCall("x", "read", "{"), "*AGENTS.md", False),
    ],
)
def test_an_argument_that_a_glob_matches(one: ToolCall, glob: str, *, expected: bool) -> None:
    """Any string in the arguments, or a word of a command. Case matters."""
    assert has_argument(one, ("nothing", glob)) is expected


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


def test_arguments_are_read_to_a_depth() -> None:
    """A list of strings is also a command line."""
    assert list(_find_strings({"a": ["cat", "x", 5], "b": ["one"], "c": "d"})) == ["cat x", "cat", "x", "one", "d"]
    found = []
    for depth in range(MAX_DEPTH + 2):
        for wrap in (lambda inner: {"a": inner}, lambda inner: [inner]):
            value: object = "x"
            for _ in range(depth):
                value = wrap(value)
            found += [depth] * len([*_find_strings(value)])
    assert found == [depth for depth in range(MAX_DEPTH + 1) for _ in range(2)]
