"""The demo's session and the repository that it is about."""

import re
from hashlib import sha256

from trimtab.proxy.cli.demo import WINDOW_TOKENS, Project, make_session
from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.codec import Counting
from trimtab.rules.results.pairing import pair_tool_calls


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


def test_the_session_is_the_one_of_which_the_pages_tell() -> None:
    """Its figures stand in the README and in the tutorial: a new digest means that they are measured again."""
    session = make_session(9)
    told = sha256(session.request_body(len(session.messages))).hexdigest()
    assert told[:16] == "bd64fe0cb0503d9c"


SOURCE, TESTS = "ferry/fares/pricing.py", "tests/fares/test_pricing.py"


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
