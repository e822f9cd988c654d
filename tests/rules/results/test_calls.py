"""Which call each tool result answers, and how it is treated."""

from dataclasses import replace

from hypothesis import given
from support.builders import assistant, call, conversation, count, function_result, result, system, transcripts

from trimtab.rules.conversation import Message, Role
from trimtab.rules.policy import Policy, ToolRule, Treatment
from trimtab.rules.results.calls import EDGE_CHARS, OpenCalls, find_results, says_failure
from trimtab.rules.results.pairing import pair_tool_calls

POLICY = Policy()


def calls_of(*messages: Message) -> list[str | None]:
    """The arguments of each result's call."""
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
    """A message that is not a result closes all earlier calls."""
    calls = OpenCalls()
    one, other = call("a", arguments="1"), call("b", arguments="2")
    seen = (assistant(None, one, other), result("b"), result("b"), result("a"), system(), result("a"))
    assert [calls.answer(message) for message in seen] == [None, other, None, one, None, None]
    assert calls.answer(Message(Role.TOOL, answers="a")) is None


def test_without_a_call_the_results_own_name_tells_its_tool() -> None:
    """Some clients name results. The call's name takes precedence."""
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
    "exit code -1",
    "Return code: 1",
    "CompletedProcess(args=['x'], returncode=1, stdout='')",
    "[The command completed with exit code 2.]",
    "<system>ERROR: Command failed with exit code: 3.</system>",
    "Process exited with code 127",
    "The script exited with code 3, then",
    "error: command failed with exit code 1: npm test",
    "make failed with status 2",
    "returned non-zero exit status 1.",
    "(exit code 2)",
    '{"exit_code": 1, "output": "x"}',
    '{"output":"x","metadata":{"exitCode":1}}',
    '{"content":[],"isError":true}',
    "npm test (exit 1)",
    "[exit 1]",
    "Exit code: 1 (SIGHUP)",
    "process exited (1)",
    "rc=1",
    "failed: [web] => (rc=2)",
    "make: *** [all] Error 2",
    "Killed",
    "Segmentation fault (core dumped)",
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
