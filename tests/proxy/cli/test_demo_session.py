"""The demo's session and the repository that it is about."""

import re
from hashlib import sha256

import msgspec

from trimtab.proxy.cli.demo import PACKAGES, SEARCH_HITS, WINDOW_TOKENS, Project, make_session
from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.chat.message import decode_message
from trimtab.proxy.wire.codec import Counting
from trimtab.rules.results.pairing import pair_tool_calls
from trimtab.rules.tokens.families import GENERIC


def test_session_is_a_valid_transcript_of_several_windows(count) -> None:
    """Results follow their calls at once. The whole is larger than three windows and than 120,000 tokens."""
    session = make_session()
    request = CHAT.read(session.request_body(len(session.messages)))
    conversation = CHAT.decode(request, Counting(count, make_known()))
    assert pair_tool_calls(conversation, count=count).conversation is conversation
    assert conversation.tokens > max(3 * WINDOW_TOKENS, 120_000)
    roles = [message.role for message in conversation.messages]
    assert (roles[:2], roles[-1]) == (["system", "user"], "assistant")
    assert [index for index, role in enumerate(roles) if role == "assistant"] == list(session.turns)
    ids = [call.id for message in conversation.messages for call in message.tool_calls]
    assert len(ids) == len(set(ids)) > 140
    assert roles.count("user") == 5
    assert any(len(message.tool_calls) > 1 for message in conversation.messages)


def test_session_is_the_same_every_time() -> None:
    """Two sessions of one length are equal. All but the last message of a shorter one begin a longer one."""
    assert make_session(7) == make_session(7)
    short, long = make_session(5), make_session(7)
    assert long.messages[: len(short.messages) - 1] == short.messages[:-1]


def test_tools_of_the_session_are_those_that_it_calls() -> None:
    """A call names a tool of the schema, and passes the arguments that the schema requires."""
    session = make_session()
    required = {
        tool["function"]["name"]: set(tool["function"]["parameters"]["required"])
        for tool in msgspec.json.decode(session.tools)
    }
    messages = [decode_message(raw, count_by_heuristic, GENERIC.costs) for raw in session.messages]
    called = [call for message in messages for call in message.tool_calls]
    assert {call.name for call in called} == set(required)
    assert all(set(msgspec.json.decode(call.arguments)) == required[call.name] for call in called)


def test_the_session_is_the_one_of_which_the_pages_tell() -> None:
    """Its figures stand in the README and in the tutorial: a new digest means that they are measured again."""
    session = make_session(9)
    told = sha256(session.request_body(len(session.messages))).hexdigest()
    assert told[:16] == "bd64fe0cb0503d9c"


SOURCE, TESTS = "ferry/fares/pricing.py", "tests/fares/test_pricing.py"


def test_the_project_is_the_same_every_time() -> None:
    """The demo's figures are those of one session: nothing in it is drawn by chance."""
    assert Project().files == Project().files


def test_functions_of_a_module_have_names_of_their_own() -> None:
    """No module of the invented repository defines a name twice."""
    for package, names in PACKAGES.items():
        for name in names:
            functions = re.findall(r"def (\w+)", Project().files[f"ferry/{package}/{name}.py"])
            assert len(set(functions)) == len(functions) >= 4


def test_tools_do_what_they_say() -> None:
    """What is written is found and read. A search shows a bounded number of lines and counts all."""
    project = Project()
    assert project.write_file(SOURCE, "one: float\ntwo") == f"{SOURCE}: 2 lines written"
    assert project.read_file(SOURCE) == "    1  one: float\n    2  two"
    assert project.search("float", SOURCE) == f"{SOURCE}:1: one: float\n(1 matches in all)"
    assert (SOURCE in project.list_files("ferry"), TESTS in project.list_files("ferry")) == (True, False)
    assert len(project.search("def ", "").splitlines()) == SEARCH_HITS + 1


def test_tests_fail_while_a_module_and_its_tests_disagree() -> None:
    """Only the tests of the module fail, and all of them. They pass again when both files use cents."""
    project = Project()
    assert "FAILED" not in project.run_tests("tests")
    project.write_file(SOURCE, re.sub(r"\bfloat\b", "Cents", project.files[SOURCE]))
    failed = [line for line in project.run_tests("tests").splitlines() if " FAILED " in line]
    assert {line.split("::")[0] for line in failed} == {TESTS}
    assert "PASSED" not in project.run_tests(TESTS)
    project.write_file(TESTS, project.files[TESTS].replace(".25", "25"))
    assert "FAILED" not in project.run_tests("tests")
