"""Tool results that a client wrote as text are tool results; they go out in the role in which they came."""

from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.codec import Counting
from trimtab.proxy.wire.dialects import name_codec
from trimtab.rules.conversation import Conversation, Message, Role

HEADERS = {
    "[tool: read_file]": "read_file",
    "[Tool: read_file(path=a.py, lines=[1, 2])]": "read_file",
    "[tool result: mcp__git__log]": "mcp__git__log",
    "[TOOL_RESULT: read]:": "read",
    "[Tool result for `ls`]": "ls",
    "[tool bash result]": "bash",
    "[tool:7zip]": "7zip",
    "EXECUTION RESULT of [execute_bash]:": "execute_bash",
}
OTHERS = (
    "[tool:]", "[tool: ]", "[tool: two words]", "[tool: a](http://x)", "tool: read", "[tools: read]",
    "see [tool: read]", "[note: read]", "[tool", "[tool: read", "[read_file for 'a.py'] Result:", "",
)  # fmt: skip
DIALECTS = ("chat", "responses", "messages")
dialects = pytest.mark.parametrize("dialect", DIALECTS)


def say(role: str, text: object) -> dict[str, object]:
    """An element of a transcript, in any dialect."""
    return {"role": role, "content": text}


def decode(dialect: str, *said: dict[str, object], counting: Counting | None = None) -> Conversation:
    """The transcript as the codec reads it."""
    key = "input" if dialect == "responses" else "messages"
    request = name_codec(dialect).read(orjson.dumps({"model": "m", key: said}))
    return request.codec.decode(request, counting or Counting(count_by_heuristic, make_known()))


BEGINNING = (say("system", "s"), say("user", "Do it."), say("assistant", "I read."))


@dialects
@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("role", ["user", "system"])
def test_each_form_is_recognised(dialect: str, header: str, role: str) -> None:
    """The result has the tool's name, its own role on the wire, and the size and the digest of the message."""
    text = f"{header}\nfound 3 errors"
    message = decode(dialect, *BEGINNING, say(role, text)).messages[-1]
    plain = decode(dialect, say(role, text)).messages[-1]

    assert (message.role, message.name, message.answers) == (Role.TOOL, HEADERS[header], None)
    assert (message.is_written, message.speaker, message.role_name) == (True, plain.role, role)
    assert (message.header + message.text, message.text) == (text, "found 3 errors")
    assert (message.tokens, message.digest, message.raw) == (plain.tokens, plain.digest, plain.raw)
    assert message.as_said() == replace(plain, name=HEADERS[header], wire_role=role)


@dialects
@pytest.mark.parametrize("text", OTHERS)
def test_other_texts_are_left_alone(dialect: str, text: str) -> None:
    """Prose, headers of Cline, and what only begins like a header."""
    message = decode(dialect, *BEGINNING, say("user", f"{text} and more")).messages[-1]
    assert (message.role, message.header) == (Role.USER, "")


@dialects
def test_the_beginning_is_never_recognised(dialect: str) -> None:
    """A leading system message and the task statement stay; neither is a message of the assistant ever a result."""
    text = "[tool: read]\nfound"
    said = [say("system", text), say("user", text), say("assistant", text), say("user", text)]
    roles = [message.role for message in decode(dialect, *said).messages]
    assert roles == [Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.TOOL]


@dialects
@given(
    said=st.lists(
        st.tuples(
            st.sampled_from(["user", "assistant", "system"]), st.sampled_from(["hi", "[tool: read]\nx", "[tool: ls] y"])
        ),
        max_size=8,
    ),
    parts=st.integers(0, 8),
)
def test_a_longer_transcript_changes_nothing_before(dialect: str, said: list[tuple[str, str]], parts: int) -> None:
    """What was recognised stays, and equal texts at equal sides of the first message are the same objects."""
    elements = [say(*one) for one in said]
    counting = Counting(count_by_heuristic, make_known())
    whole = decode(dialect, *elements, counting=counting).messages
    # The last unit of a response may grow, so the model's own messages are not compared there.
    early = [
        one for one in decode(dialect, *elements[:parts], counting=counting).messages if one.role is not Role.ASSISTANT
    ]
    late = [one for one in whole if one.role is not Role.ASSISTANT]
    assert all(left is right for left, right in zip(early, late, strict=False))
    results = {id(one) for one in whole if one.is_written and one.texts == ("x",) and one.wire_role == "user"}
    assert len(results) <= 1


def test_several_texts_are_results_only_together() -> None:
    """A user's words behind a result in the same message are not treated as a result."""
    texts = [{"type": "text", "text": text} for text in ("[tool: a]\nx", "[tool: b]\ny", "Now go on.")]
    both, mixed = (decode("messages", *BEGINNING, say("user", texts[:stop])).messages[-1] for stop in (2, 3))
    assert (both.role, both.texts, both.header) == (Role.TOOL, ("x", "[tool: b]\ny"), "[tool: a]\n")
    assert mixed.role is Role.USER


@pytest.mark.parametrize("text", ["[tool: read]", "[tool: read]\n  ", f"[tool: read({'x' * 90})] found"])
def test_a_header_stays_in_the_text_if_it_is_long_or_all(text: str) -> None:
    """No text becomes empty, and a placeholder has room behind a header."""
    message = decode("chat", *BEGINNING, say("user", text)).messages[-1]
    assert (message.role, message.header, message.texts) == (Role.TOOL, "", (text,))


def test_a_result_in_an_element_with_other_results_is_recognised() -> None:
    """In the Messages API a text can stand behind the blocks of results."""
    call = {"type": "tool_use", "id": "c", "name": "ls", "input": {}}
    blocks = [{"type": "tool_result", "tool_use_id": "c", "content": "x"}, {"type": "text", "text": "[tool: read]\ny"}]
    said = (say("user", "Do it."), say("assistant", [call]), say("user", blocks))
    messages = decode("messages", *said).messages
    assert [message.is_written for message in messages] == [False, False, False, True]


def edit(message: Message) -> Message:
    """The message with another text."""
    return message.shorten(("short",), 1)


@dialects
def test_an_edited_result_keeps_its_role_its_header_and_its_members(dialect: str) -> None:
    """Only the text behind the header is replaced."""
    key = "input" if dialect == "responses" else "messages"
    said = [*BEGINNING, {**say("user", "[tool: read]\nlong text"), "extra": 1.50}, say("assistant", "Done.")]
    request = name_codec(dialect).read(orjson.dumps({"model": "m", key: said}))
    before = request.codec.decode(request, Counting(count_by_heuristic, make_known()))
    messages = [edit(message) if message.is_written else message for message in before.messages]
    written = orjson.loads(b"".join(request.codec.encode(request, before, before.edit(messages))))[key]

    assert written[:3] + written[4:] == [*said[:3], *said[4:]]
    assert {**written[3], "content": 0} == {**said[3], "content": 0}
    assert orjson.dumps(written[3]["content"]).count(b"[tool: read]\\nshort") == 1


def test_an_edited_system_message_of_the_messages_api_is_written() -> None:
    """Such messages stay as they are unless they are results."""
    said = [*BEGINNING, say("system", "[tool: read]\nlong text"), say("system", "reminder"), say("assistant", "Done.")]
    request = name_codec("messages").read(orjson.dumps({"model": "m", "messages": said}))
    before = request.codec.decode(request, Counting(count_by_heuristic, make_known()))
    messages = [edit(message) if message.is_written else message for message in before.messages]
    written = orjson.loads(b"".join(request.codec.encode(request, before, before.edit(messages))))["messages"]
    assert written == [*said[:3], say("system", "[tool: read]\nshort"), *said[4:]]
