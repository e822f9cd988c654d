"""An element is decoded to what it says."""

from dataclasses import replace

import orjson
import pytest

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.codec import Counting
from trimtab.proxy.wire.messages.message import decode_element, decode_system
from trimtab.proxy.wire.transcript.body import UndecodableError
from trimtab.rules.conversation import Message, Role, Served, ToolCall

COUNTING = Counting(count_by_heuristic, make_known())
THINKING = {"type": "thinking", "thinking": "Let me see.", "signature": "c2ln"}
USE = b'{"type":"tool_use","id":"c1","name":"ls","input":{"a": 1}}'
RESULT = b'{"tool_use_id":"c1","type":"tool_result","content":"a.txt","is_error":true}'
TEXT = b'{"type":"text","text":"go on"}'


def _decode(element: object) -> tuple[Message, ...]:
    raw = element if isinstance(element, bytes) else orjson.dumps(element)
    return tuple(replace(one, digest=b"", tokens=0) for one in decode_element(COUNTING, raw))


def _user(*blocks: bytes) -> bytes:
    return b'{"role":"user","content":[' + b",".join(blocks) + b"]}"


def test_a_string_is_one_text() -> None:
    raw = b'{"content":"hi","role":"user","content":"h\xc3\xa9"}'
    assert _decode(raw) == (Message(Role.USER, ("hé",), raw=raw),)


def test_results_and_what_the_user_says_are_messages_of_their_own() -> None:
    other = (
        b'{"type":"tool_result","tool_use_id":"c2","content":[{"type":"text","text":"x"},{"type":"text","text":"y"}]}'
    )
    assert _decode(_user(RESULT, other, TEXT, TEXT)) == (
        Message(Role.TOOL, ("a.txt",), answers="c1", raw=RESULT, is_error=True),
        Message(Role.TOOL, ("x", "y"), answers="c2", raw=other),
        Message(Role.USER, ("go on", "go on"), raw=b"[%b,%b]" % (TEXT, TEXT)),
    )


def test_an_assistant_element_is_one_message() -> None:
    """Texts and calls. Thinking is only counted; tools of the server and unknown blocks are kept as they are."""
    search = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
    said = {"type": "text", "text": "I look."}
    blocks = [THINKING, said, search, found, orjson.loads(USE), {"type": "of_the_future", "x": 1}]
    raw = b'{"role":"assistant","content":' + orjson.dumps(blocks).replace(b'{"a":1}', b'{"a": 1}') + b"}"
    (message,) = _decode(raw)
    assert (message.role, message.texts, message.raw) == (Role.ASSISTANT, ("I look.",), raw)
    assert message.tool_calls == (ToolCall("c1", "ls", '{"a": 1}'),)
    assert [orjson.loads(part.raw) for part in message.media] == [search, found, {"type": "of_the_future", "x": 1}]
    assert message.has_reasoning


@pytest.mark.parametrize(("wire", "role"), [("system", Role.SYSTEM), ("tool", Role.OTHER), ("human", Role.OTHER)])
def test_other_roles_are_kept(wire: str, role: Role) -> None:
    (message,) = _decode({"role": wire, "content": [orjson.loads(RESULT)]})
    assert (message.role, message.role_name, len(message.media)) == (role, wire, 1)


@pytest.mark.parametrize(
    ("element", "stays"),
    [
        ({"role": "system", "content": "x", "output_config": {}}, True),
        ({"role": "system", "content": "x"}, False),
        ({"role": "user", "content": "x", "output_config": {}}, False),
    ],
)
def test_a_message_that_changes_a_setting_stays(element: object, *, stays: bool) -> None:
    """The setting is for all that comes after it."""
    assert [message.stays for message in _decode(element)] == [stays]


@pytest.mark.parametrize(
    ("content", "keeps"), [("summary", True), ([], True), (None, False)], ids=["text", "blocks", "failed"]
)
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_a_compaction_block_keeps_what_is_before_it(role: str, content: object, *, keeps: bool) -> None:
    """Without content it comes from a compaction that failed, and servers ignore it."""
    (message,) = _decode({"role": role, "content": [{"type": "compaction", "content": content}]})
    assert message.keeps_before is keeps


@pytest.mark.parametrize(
    ("element", "has"),
    [
        ({"role": "user", "content": "x", "metadata": "y" * 40}, True),
        ({"role": "user", "content": [{"type": "text", "text": "x", "citations": [{"cited_text": "y" * 40}]}]}, False),
        ({"role": "user", "content": [{"type": "text", "text": "x", "future": "y" * 40}]}, True),
        ({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "future": "y" * 40}]}, True),
        ({"role": "assistant", "content": [{**THINKING, "future": "y" * 40}]}, True),
    ],
)
def test_members_that_are_not_counted_are_noticed(element: object, *, has: bool) -> None:
    """All of an unknown block is counted by its JSON."""
    assert _decode(element)[0].has_uncounted is has


@pytest.mark.parametrize("raw", [b"1", b'"x"', b"{}", b'{"role":1}', b'{"content":[]}'])
def test_an_element_without_a_role_is_refused(raw: bytes) -> None:
    with pytest.raises((UndecodableError, ValueError)):
        decode_element(COUNTING, raw)


def test_an_empty_element_is_a_message() -> None:
    """Otherwise it would be lost when the transcript is written."""
    for content in ([], "", None):
        assert len(_decode({"role": "user", "content": content})) == 1
    assert len(_decode({"role": "user", "content": [], "x": "tool_result"})) == 1
    assert len(_decode({"role": "assistant"})) == 1


def test_a_system_prompt_is_one_message() -> None:
    """As a string or as blocks; its markers change nothing."""
    block = {"type": "text", "text": "Be brief."}
    (one,) = decode_system(COUNTING, b'"Be brief."')
    (two,) = decode_system(COUNTING, orjson.dumps([block, {**block, "cache_control": {"type": "ephemeral"}}]))
    assert (one.role, one.texts, two.texts) == (Role.SYSTEM, ("Be brief.",), ("Be brief.", "Be brief."))
    assert two.tokens == one.tokens + count_by_heuristic("Be brief.")


CODE = {"type": "server_tool_use", "id": "s1", "name": "code_execution", "input": {}}
DONE = {"type": "code_execution_tool_result", "tool_use_id": "s1", "content": {}}
FOUND = {"type": "mcp_tool_result", "tool_use_id": "s2", "content": []}


@pytest.mark.parametrize(
    ("role", "blocks", "served"),
    [
        ("assistant", [FOUND, CODE, {"type": "text", "text": "a"}], Served(("s1",), ("s2",))),
        ("assistant", [CODE, DONE], Served()),
        ("user", [FOUND], Served(closes=("s2",))),
        (
            "assistant",
            [{**orjson.loads(USE), "caller": {"type": "code_execution_20260120", "tool_id": "s1"}}],
            Served(goes_on=("s1",)),
        ),
    ],
)
def test_calls_of_the_server_connect_messages(role: str, blocks: list[object], served: Served) -> None:
    """If the result is in another message than the call. A call of the client's may belong to one of the server's."""
    (message,) = _decode({"role": role, "content": blocks})
    assert message.served == served
