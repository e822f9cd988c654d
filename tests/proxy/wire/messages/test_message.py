"""An element is decoded to what it says."""

from dataclasses import replace

import msgspec
import orjson
import pytest

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.codec import Counting
from trimtab.proxy.wire.content import guess_data
from trimtab.proxy.wire.messages.message import (
    SEALED_CHARS_PER_TOKEN,
    count_block,
    count_said,
    decode_element,
    decode_system,
    read_tools_and_format,
    shares_element,
    write_element,
)
from trimtab.proxy.wire.tools import read_fixed
from trimtab.proxy.wire.transcript.body import UndecodableError
from trimtab.proxy.wire.transcript.elements import Placed
from trimtab.rules.conversation import Message, Origin, Role, Served, ToolCall
from trimtab.rules.tokens.families import GENERIC
from trimtab.rules.tokens.messages import NO_CHOICE

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


def test_results_and_what_the_user_says_are_messages_of_their_own() -> None:
    """A string is one text."""
    raw = b'{"content":"hi","role":"user","content":"h\xc3\xa9"}'
    assert _decode(raw) == (Message(Role.USER, ("hé",), raw=raw),)
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


def test_calls_of_the_server_connect_messages() -> None:
    """If the result is in another message than the call. A call of the client's may belong to one of the server's."""
    code = {"type": "server_tool_use", "id": "s1", "name": "code_execution", "input": {}}
    found = {"type": "mcp_tool_result", "tool_use_id": "s2", "content": []}
    called = {**orjson.loads(USE), "caller": {"type": "code_execution_20260120", "tool_id": "s3"}}
    (message,) = _decode({"role": "assistant", "content": [found, code, called]})
    assert message.served == Served(("s1",), ("s2",), ("s3",))
    assert _decode({"role": "user", "content": [found]})[0].served == Served(closes=("s2",))


# The elements of a changed transcript: valid, with the client's own bytes in all that no rule touched.

MARKER = b'"cache_control":{"type":"ephemeral"}'
ONE = b'{ "tool_use_id":"a", "type":"tool_result","content":"one", "x":1.50 }'
TWO = b'{"type":"tool_result","tool_use_id":"b","content":[{"type":"text","text":"two"}],%b}' % MARKER
PLACE_TEXT = b'{"type" : "text", "text":"go \\ud83d on"}'
IMAGE = b'{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"},%b}' % MARKER
TAKEN = b"{%b}" % MARKER


def _place_user(*blocks: bytes) -> bytes:
    return b'{"role":"user", "content":[' + b" , ".join(blocks) + b'],"n":12345678901234567890123}'


def _place(raw: bytes, start: int = 0) -> list[Placed]:
    return [(one, Origin(start, start + 1, part)) for part, one in enumerate(decode_element(COUNTING, raw))]


def _edit(placed: Placed, *texts: str) -> Placed:
    return replace(placed[0], texts=texts, edited=True), placed[1]


def _blocks(written: bytes) -> list[dict]:
    return orjson.loads(written.replace(b"\\ud83d", b""))["content"]


def test_an_edited_result_leaves_all_else() -> None:
    """Other members of it, its marker, and the bytes of the text beside it, which has a lone surrogate."""
    raw = _place_user(ONE, TWO, PLACE_TEXT)
    first, *others = _place(raw)
    written = write_element([raw], [_edit(first, "short"), *others])
    edited = ONE.replace(b'"one"', b'"short"').replace(b" ", b"")
    assert written == b'{"role":"user","content":[%b,%b,%b],"n":12345678901234567890123}' % (edited, TWO, PLACE_TEXT)
    raw = _place_user(ONE, TWO)
    one, two = _place(raw)
    assert TWO.replace(b"two", b"short") in write_element([raw], [one, _edit(two, "short")])


def test_results_come_first() -> None:
    """However the rules have ordered the messages."""
    raw = _place_user(PLACE_TEXT, ONE)
    made = (Message(Role.TOOL, ("aborted",), answers="c", edited=True), None)
    blocks = _blocks(write_element([raw], [*_place(raw), made]))
    assert [block["type"] for block in blocks] == ["tool_result", "tool_result", "text"]
    assert blocks[1] == {"type": "tool_result", "tool_use_id": "c", "content": "aborted", "is_error": True}


def test_a_string_stays_a_string_unless_blocks_join_it() -> None:
    """An added text is a paragraph of the string; a result makes a block of it."""
    raw = b'{"role":"user","content":"task"}'
    (task,) = _place(raw)
    assert orjson.loads(write_element([raw], [_edit(task, "task", "summary")]))["content"] == "task\n\nsummary"
    made = (Message(Role.TOOL, ("aborted",), answers="c", edited=True), None)
    assert _blocks(write_element([raw], [task, made]))[1] == {"type": "text", "text": "task"}
    for empty in (b'{"role":"user","content":[]}', b'{"role":"user","content":""}', b'{"role":"user"}'):
        assert len(_blocks(write_element([empty], [*_place(empty), made]))) == 1


def test_a_marker_that_is_taken_in_is_put_on_the_last_block() -> None:
    """On a text, if need be a string becomes one; on the result itself."""
    raw = b'{"role":"user","content":"task"}'
    ((task, origin),) = _place(raw)
    (block,) = _blocks(write_element([raw], [(replace(task, taken_in=(TAKEN,)), origin)]))
    assert block == {"type": "text", "text": "task", "cache_control": {"type": "ephemeral"}}
    results = _place_user(ONE)
    ((result, place),) = _place(results)
    (block,) = _blocks(write_element([results], [(replace(result, taken_in=(TAKEN,), edited=True), place)]))
    assert block == {**orjson.loads(ONE), "cache_control": {"type": "ephemeral"}}


def test_a_message_of_ours_is_written_and_an_answer_without_a_text_never_altered() -> None:
    """Images stand behind the text, as they came."""
    raw = b'{ "role":"assistant", "content":[{"type":"thinking","thinking":"hm","signature":"cw=="}] }'
    ((message, origin),) = _place(raw)
    assert write_element([raw], [_edit((message, origin), "other")]) is raw
    made = Message(Role.ASSISTANT, ("Understood.",), edited=True)
    assert orjson.loads(write_element([], [(made, None)])) == {"role": "assistant", "content": "Understood."}
    image = _place(_place_user(PLACE_TEXT, IMAGE))[0][0].media
    made = Message(Role.USER, ("look",), media=image)
    written = write_element([], [(made, None)])
    assert [block["type"] for block in _blocks(written)] == ["text", "image"]
    assert IMAGE in written


def test_an_answer_with_shortened_arguments_keeps_all_else() -> None:
    raw = b'{"role":"assistant", "content":[ %b, %b ,%b]}' % (TEXT, USE, USE.replace(b"c1", b"c2"))
    ((message, origin),) = _place(raw)
    calls = (message.tool_calls[0], replace(message.tool_calls[1], arguments='{"a":2}'))
    blocks = _blocks(write_element([raw], [(replace(message, tool_calls=calls, edited=True), origin)]))
    assert blocks == [orjson.loads(one) for one in (TEXT, USE, USE.replace(b"c1", b"c2").replace(b"1}", b"2}"))]


def test_only_the_users_side_shares_elements_and_what_is_left_of_one_keeps_its_members() -> None:
    """A rule may drop the result beside a text."""
    user, tool, model = (Message(role) for role in (Role.USER, Role.TOOL, Role.ASSISTANT))
    assert shares_element(user, tool)
    assert shares_element(user, user)
    assert not shares_element(user, model)
    assert not shares_element(model, model)
    assert not shares_element(Message(Role.SYSTEM), user)
    raw = _place_user(ONE, PLACE_TEXT)
    assert (
        write_element([raw], _place(raw)[1:])
        == b'{"role":"user","content":[%b],"n":12345678901234567890123}' % PLACE_TEXT
    )


@pytest.mark.parametrize("own", [b"", b',"content":null'])
def test_a_system_element_without_content_takes_in_the_one_behind_it(own: bytes) -> None:
    raw = b'{"role":"system"%b,"n":1}' % own
    written = write_element([raw], [_edit(_place(raw)[0], "Be brief.")])
    assert orjson.loads(written) == {"role": "system", "content": "Be brief.", "n": 1}
    assert write_element([raw], [_edit(_place(raw)[0])]) == raw


def test_a_removed_image_leaves_its_marker() -> None:
    """In a user's message and in a result; another image keeps its own."""
    result = b'{"type":"tool_result","tool_use_id":"a","content":[%b]}' % IMAGE
    for raw in (_place_user(IMAGE, IMAGE), _place_user(result, PLACE_TEXT)):
        (message, origin), *others = _place(raw)
        without = replace(message, media=(message.media[0].remove(), *message.media[1:]), edited=True)
        written = write_element([raw], [(without, origin), *others])
        assert written.count(MARKER) == raw.count(MARKER)
        assert message.media[0].line.encode() in written


# What costs prompt tokens is counted, in the same way as in the other dialects.


def count(text: str) -> int:
    return len(text)


SCHEMA = {"type": "object", "properties": {"path": {"type": "string", "description": "where"}}, "required": ["path"]}


def _think(**block: str) -> int:
    raws = {name: msgspec.Raw(orjson.dumps(value)) for name, value in block.items()}
    bare = count_said(Message(Role.ASSISTANT), (), count, GENERIC.costs)
    return count_said(Message(Role.ASSISTANT), (raws,), count, GENERIC.costs) - bare


def test_thinking_and_pages_count_what_is_shown_or_what_is_encrypted() -> None:
    """The larger of the two: shown text may be only a summary, or empty. Results of web search hold encrypted pages."""
    assert _think(thinking="x" * 100, signature="s" * 60) == 100
    assert _think(thinking="", signature="s" * 6000) == 6000 // SEALED_CHARS_PER_TOKEN
    assert _think(data="s" * 600) == 600 // SEALED_CHARS_PER_TOKEN
    page = {"type": "web_search_result", "url": "https://x", "encrypted_content": "A" * 6000}
    block = {"type": "web_search_tool_result", "tool_use_id": "s", "content": [page]}
    without = {**block, "content": [{"type": "web_search_result", "url": "https://x"}]}
    tokens = count(orjson.dumps(without).decode())
    assert count_block(orjson.dumps(block), count, GENERIC.costs).tokens == tokens + 6000 // SEALED_CHARS_PER_TOKEN


@pytest.mark.parametrize(
    ("source", "tokens"),
    [
        ({"type": "text", "media_type": "text/plain", "data": "x" * 90}, 90),
        ({"type": "content", "content": [{"type": "text", "text": "x" * 20}, {"type": "text", "text": "y"}]}, 21),
        ({"type": "base64", "media_type": "application/pdf", "data": "A" * 4000}, guess_data("A" * 4000)),
        ({"type": "file", "file_id": "file_1"}, guess_data(None)),
    ],
)
def test_documents_count_their_text_or_a_guess(source: object, tokens: int) -> None:
    """With title and context."""
    block = {"type": "document", "source": source, "title": "abc", "context": "de"}
    assert count_block(orjson.dumps(block), count, GENERIC.costs).tokens == tokens + 5


def test_tools_of_the_server_count_by_their_json() -> None:
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}
    custom = {"type": "custom", "name": "ls", "input_schema": SCHEMA}
    around = read_fixed((orjson.dumps([search, custom]), b'{"type":"none"}', b"", b""), read_tools_and_format)
    assert around.others == [orjson.dumps(search).decode()]
    assert around.functions == [{"name": "ls", "parameters": SCHEMA}]
    assert around.choice == NO_CHOICE


def test_very_many_tools_are_counted_undecoded() -> None:
    """And so is a nesting that no decoder follows."""
    for tools in (b"[" + b",".join([b"1"] * 200_000) + b"]", b"[" * 100_000 + b"]" * 100_000):
        assert read_fixed((tools, b"", b"", b""), read_tools_and_format).others == (tools.decode(),)
    assert count_block(b'{"type":"x","y":%b1%b}' % (b"[" * 900, b"]" * 900), count, GENERIC.costs).tokens > 900
