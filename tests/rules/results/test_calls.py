"""Which call each tool result answers, and how it is treated."""

from dataclasses import replace

import orjson
from hypothesis import given
from support.builders import assistant, call, conversation, count, function_result, result, system, transcripts

from trimtab.rules.conversation import Message, Role, ToolCall
from trimtab.rules.policy import Policy, ToolRule, Treatment
from trimtab.rules.results.calls import (
    EDGE_CHARS,
    MAX_DEPTH,
    SHORT_CHARS,
    OpenCalls,
    _find_strings,
    find_results,
    has_argument,
    reads_json_file,
    says_failure,
    tells_failure,
    was_refused,
)
from trimtab.rules.results.pairing import pair_tool_calls

POLICY = Policy()


def calls_of(*messages: Message) -> list[str | None]:
    return [place.call and place.call.arguments for place in find_results(messages, POLICY)]


def test_a_result_has_the_last_call_of_its_id() -> None:
    """Ids are reused, and some clients leave them empty. A result without one has the last call of its tool."""
    first, second = call("a", arguments="1"), call("a", arguments="2")
    messages = (assistant(None, first), result("a"), assistant(None, second), result("a"), result("b"))
    assert calls_of(*messages) == ["1", "2", None]
    assert calls_of(*messages[:2]) == ["1"]
    calls = [call("", arguments=number) for number in "123"]
    messages = (assistant(None, *calls), *[result("")] * 3, assistant(None, calls[0]), result(""))
    assert calls_of(*messages) == ["1", "2", "3", "1"]
    places = find_results(messages, POLICY, 2)
    assert [place.call and place.call.arguments for place in places] == ["2", "3", "1"]
    called = assistant(None, call("a", "run", "1"), call("b", "read", "2"), call("c", "run", "3"))
    assert calls_of(called, function_result()) == ["3"]
    assert calls_of(assistant("nothing"), function_result()) == [None]


@given(transcripts())
def test_a_paired_result_has_its_call_wherever_one_begins_to_look(messages: tuple[Message, ...]) -> None:
    """It is the call with its id in the message before its step's results, whatever `start` is."""
    paired = pair_tool_calls(conversation(*messages), count=count).conversation.messages
    places = find_results(paired, POLICY)
    for place in places:
        answered = paired[place.at].answers
        if paired[place.at].wire_role != "function":
            assert place.call is None or place.call.id == answered
    for start in range(len(paired)):
        assert find_results(paired, POLICY, start) == [place for place in places if place.at >= start]


def test_every_call_of_a_message_is_answered_once() -> None:
    """A message that is not a result closes all earlier calls. Without a call, a result's own name tells its tool."""
    calls = OpenCalls()
    one, other = call("a", arguments="1"), call("b", arguments="2")
    seen = (assistant(None, one, other), result("b"), result("b"), result("a"), system(), result("a"))
    assert [calls.answer(message) for message in seen] == [None, other, None, one, None, None]
    assert calls.answer(Message(Role.TOOL, answers="a")) is None
    policy = replace(POLICY, tools=(ToolRule("search", Treatment(POLICY.result_budget, is_exempt=True)),))
    named = (result("a", name="search"), result("a", name="other"))
    assert [place.treatment.is_exempt for place in find_results(named, policy)] == [True, False]
    called = (assistant(None, call("a", "look"), call("b", "search")), result("a", name="search"), result("b"))
    assert [place.treatment.is_exempt for place in find_results(called, policy)] == [False, True]


FAILED = [
    "exit code: 1",
    "ok\n<returncode>1</returncode>\n<output>",
    "<returncode>-11</returncode>",
    "Exit code 2\nfoo",
    "CompletedProcess(args=['x'], returncode=1, stdout='')",
    "[The command completed with exit code 2.]",
    "The script exited with code 3, then",
    "error: command failed with exit code 1: npm test",
    "make failed with status 2",
    "returned non-zero exit status 1.",
    '{"exit_code": 1, "output": "x"}',
    '{"content":[],"isError":true}',
    "npm test (exit 1)",
    "Exit code: 1 (SIGHUP)",
    "failed: [web] => (rc=2)",
    "make: *** [all] Error 2",
    "Killed",
    "sh: line 1: 77 Segmentation fault      (core dumped) ./a.out",
    "npm ERR! errno 1",
]
WELL = [
    "", "exit code: 0", "exit code 00", "exit code: 0x0", "Exit code: none", "exit code", "exit code 0\n1",
    "<returncode>0</returncode>", "[The command completed with exit code 0.]", "process exited with code 0",
    "exited with code 0 after 10 s", '"exit_code": 0, "n": 1', "'isError': false", "the exit code is 1 when it fails",
    "returns exit code 1 if the file is missing", "Exit code 1 means failure, 2 means usage", "exit code 0.5",
    "exit codes: 1", "exit_codes = [1]", "def exit_code(x): return 1", "sys.exit(1)", "status code 1",
    "returned status 200 ok", "Request completed with status 200", "It finished with code that works",
    "return value: 1", "return value = 42", "'return_value': 7", "return status: 200", '"return_code": 200',
    "    return value 1", "    exit 1", "exit 0", "(exit 0)", "rc=0", "rc=1 if failed else 0", "arc=1",
    "process exited (0)", "exit 1 of 3", "Killed the old process", "A Segmentation fault is what happens then",
    "make: Nothing to be done for 'all'.", "web  Exited (1) 3 hours ago", "npm warn deprecated x",
]  # fmt: skip


def test_an_exit_code_that_is_not_0_is_a_failure() -> None:
    """In the first and in the last lines; not in a text that only mentions one, nor in the middle."""
    rest = "a line of output\n" * 200
    texts = [each for text in FAILED for each in (text, f"{text}\n{rest}", f"{rest}{text}")]
    assert [text for text in texts if not says_failure(text)] == []
    assert [text for text in WELL if says_failure(text) or says_failure(f"{text}\nmore\n")] == []
    edge = "a" * EDGE_CHARS
    assert not says_failure(f"{edge}\nexit code: 1\n{edge}")


REFUSED = [
    "Error: InputValidationError: TodoWrite failed due to the following issue",
    "<tool_use_error>InputValidationError: no</tool_use_error>",
    "The user doesn't want to proceed with this tool use. The tool use was rejected",
    "[Request interrupted by user for tool use]",
    "Permission to use Bash has been denied.",
]
BEGIN_FAILED = [
    "Error: no",
    '{"error": "no"}',
    '{"error": {"code": 3}}',
    "Traceback (most recent call last):\n  x",
    "Failed to write a.py",
    "Invalid arguments: todos",
    "String to replace not found in file.",
    "EACCES: permission denied, open '/etc/x'",
    "No replacement was performed, old_str did not appear",
    "ValueError: no",
    "MCP error -32602: no",
    "exit code: 1",
]
BEGIN_WELL = [
    "", "ok", '{"error": null, "ok": true}', '{"error": ""}', '{"errors": []}', "Errors are told below.",
    "Failed logins are counted.", "# Error: how to", "The user does it.", "Todos have been modified successfully",
]  # fmt: skip


def test_a_short_result_that_begins_like_an_error_is_a_failure() -> None:
    """A refused call was not carried out. A long text was read."""
    for text in [*REFUSED, *BEGIN_FAILED]:
        assert tells_failure(result("1", text))
        assert tells_failure(result("1", f"\n {text}"))
        assert was_refused(result("1", text)) == (text in REFUSED)
    for text in BEGIN_WELL:
        assert not tells_failure(result("1", text))
        assert not was_refused(result("1", text))
        assert tells_failure(replace(result("1", text), is_error=True))
    assert not tells_failure(result("1", "Error: no\n" + "x\n" * SHORT_CHARS))


def make_call(name: str, **arguments: object) -> ToolCall:
    return ToolCall("x", name, orjson.dumps(arguments).decode())


def shell(command: str) -> ToolCall:
    return make_call("bash", command=command)


READS = [
    make_call("read_file", path="src/a"),
    make_call("mcp__fs__read_text_file", path="C:\\app\\a"),
    make_call("ReadMcpResource", uri="file:///x/a"),
    make_call("find_symbol", relative_path="a", include_body=True),
    make_call("str_replace_editor", command="view", path="/testbed/package.json"),
    shell("cat package.json"),
    shell("cd /testbed && sed -n '10,40p' a.ipynb"),
    shell("git show HEAD~1:src/a.json"),
    shell("python3 -c \"print(open('a.json').read())\""),
    shell("cat a.json#L10-L20"),
    make_call("shell", command=["bash", "-lc", "cat composer.lock; ls -la"]),
    ToolCall("x", "open_page", '"a.json" 10'),
]
READS_NOT = [
    make_call("read_sensor", unit="kW", at="1.5"),
    make_call("open_page", url="https://example.org/a.json"),
    make_call("search", query="a json"),
    shell("python a.py"),
    shell("curl https://example.org/a.json"),
    ToolCall("x", "bash", "no JSON: cat"),
]


def test_reading_a_file_of_json() -> None:
    """The name of the tool shows it, or an argument that names such a file. URLs and programs are none."""
    for one in READS:
        assert reads_json_file(one)
    for one in READS_NOT:
        assert not reads_json_file(one)


def test_an_argument_that_a_glob_matches() -> None:
    """Any string in the arguments, or a word of a command, to some depth. Case matters; hostile ones are no matter."""
    for one, glob, expected in [
        (make_call("read", path="/repo/AGENTS.md"), "*AGENTS.md", True),
        (make_call("read", path="/repo/agents.md"), "*AGENTS.md", False),
        (shell("cd /repo && cat './AGENTS.md' | head"), "*AGENTS.md", True),
        (shell("cat AGENTS.md.bak"), "*AGENTS.md", False),
        (make_call("read", path="/repo/AGENTS.md:10-20"), "*AGENTS.md", True),
        (make_call("read", path=5), "*", False),
        (ToolCall("x", "read", "AGENTS.md"), "*AGENTS.md", True),
        (ToolCall("x", "read", "{"), "*AGENTS.md", False),
    ]:
        assert has_argument(one, ("nothing", glob)) is expected
    for arguments in [
        "[" * 200_000,
        '{"a":' * 100_000,
        orjson.dumps(["cat a.py;" * 200_000] * 3).decode(),
        "\ud800",
        '"\\ud800"',
    ]:
        one = ToolCall("x", "bash", arguments)
        assert reads_json_file(one) in {True, False}
        assert not has_argument(one, ("*AGENTS.md",))
    assert list(_find_strings({"a": ["cat", "x", 5], "b": ["one"], "c": "d"})) == ["cat x", "cat", "x", "one", "d"]
    found = []
    for depth in range(MAX_DEPTH + 2):
        for wrap in (lambda inner: {"a": inner}, lambda inner: [inner]):
            value: object = "x"
            for _ in range(depth):
                value = wrap(value)
            found += [depth] * len([*_find_strings(value)])
    assert found == [depth for depth in range(MAX_DEPTH + 1) for _ in range(2)]
