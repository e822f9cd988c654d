"""The elements of a changed transcript: valid, with the client's own bytes in all that no rule touched."""

from dataclasses import replace

import orjson

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.codec import Counting
from trimtab.proxy.wire.messages.message import decode_element, shares_element, write_element
from trimtab.proxy.wire.transcript.elements import Placed
from trimtab.rules.conversation import Message, Origin, Role

COUNTING = Counting(count_by_heuristic, make_known())
MARKER = b'"cache_control":{"type":"ephemeral"}'
ONE = b'{ "tool_use_id":"a", "type":"tool_result","content":"one", "x":1.50 }'
TWO = b'{"type":"tool_result","tool_use_id":"b","content":[{"type":"text","text":"two"}],%b}' % MARKER
TEXT = b'{"type" : "text", "text":"go \\ud83d on"}'
IMAGE = b'{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"},%b}' % MARKER
TAKEN = b"{%b}" % MARKER


def _user(*blocks: bytes) -> bytes:
    return b'{"role":"user", "content":[' + b" , ".join(blocks) + b'],"n":12345678901234567890123}'


def _place(raw: bytes, start: int = 0) -> list[Placed]:
    return [(one, Origin(start, start + 1, part)) for part, one in enumerate(decode_element(COUNTING, raw))]


def _edit(placed: Placed, *texts: str) -> Placed:
    return replace(placed[0], texts=texts, edited=True), placed[1]


def _blocks(written: bytes) -> list[dict]:
    return orjson.loads(written.replace(b"\\ud83d", b""))["content"]


def test_an_edited_result_leaves_all_else() -> None:
    """Other members of it, the marker of its neighbour, and the bytes of the text, which has a lone surrogate."""
    raw = _user(ONE, TWO, TEXT)
    first, *others = _place(raw)
    written = write_element([raw], [_edit(first, "short"), *others])
    edited = ONE.replace(b'"one"', b'"short"').replace(b" ", b"")
    assert written == b'{"role":"user","content":[%b,%b,%b],"n":12345678901234567890123}' % (edited, TWO, TEXT)


def test_an_edited_result_keeps_its_marker() -> None:
    raw = _user(ONE, TWO)
    one, two = _place(raw)
    assert TWO.replace(b"two", b"short") in write_element([raw], [one, _edit(two, "short")])


def test_results_come_first() -> None:
    """However the rules have ordered the messages."""
    raw = _user(TEXT, ONE)
    made = (Message(Role.TOOL, ("aborted",), answers="c", edited=True), None)
    blocks = _blocks(write_element([raw], [*_place(raw), made]))
    assert [block["type"] for block in blocks] == ["tool_result", "tool_result", "text"]
    assert blocks[1] == {"type": "tool_result", "tool_use_id": "c", "content": "aborted", "is_error": True}


def test_a_made_result_can_be_an_element_of_its_own() -> None:
    made = Message(Role.TOOL, ("aborted",), answers="c", edited=True)
    element = {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "c", "content": "aborted", "is_error": True}],
    }
    assert orjson.loads(write_element([], [(made, None)])) == element


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
    results = _user(ONE)
    ((result, place),) = _place(results)
    (block,) = _blocks(write_element([results], [(replace(result, taken_in=(TAKEN,), edited=True), place)]))
    assert block == {**orjson.loads(ONE), "cache_control": {"type": "ephemeral"}}


def test_an_assistant_element_without_a_text_is_never_altered() -> None:
    raw = b'{ "role":"assistant", "content":[{"type":"thinking","thinking":"hm","signature":"cw=="}] }'
    ((message, origin),) = _place(raw)
    assert write_element([raw], [_edit((message, origin), "other")]) is raw
    made = Message(Role.ASSISTANT, ("Understood.",), edited=True)
    assert orjson.loads(write_element([], [(made, None)])) == {"role": "assistant", "content": "Understood."}


def test_a_part_that_is_left_over_keeps_the_members_of_its_element() -> None:
    """A rule dropped the result beside it."""
    raw = _user(ONE, TEXT)
    assert write_element([raw], _place(raw)[1:]) == b'{"role":"user","content":[%b],"n":12345678901234567890123}' % TEXT


def test_only_the_users_side_shares_elements() -> None:
    user, tool, model = (Message(role) for role in (Role.USER, Role.TOOL, Role.ASSISTANT))
    assert shares_element(user, tool)
    assert shares_element(user, user)
    assert not shares_element(user, model)
    assert not shares_element(model, model)
    assert not shares_element(Message(Role.SYSTEM), user)


def test_a_message_that_a_rule_made_shows_its_images() -> None:
    """Behind its text, as they came."""
    image = _place(_user(TEXT, IMAGE))[0][0].media
    made = Message(Role.USER, ("look",), media=image)
    written = write_element([], [(made, None)])
    assert [block["type"] for block in _blocks(written)] == ["text", "image"]
    assert IMAGE in written


def test_a_removed_image_leaves_its_marker() -> None:
    """In a user's message and in a result; another image keeps its own."""
    result = b'{"type":"tool_result","tool_use_id":"a","content":[%b]}' % IMAGE
    for raw in (_user(IMAGE, IMAGE), _user(result, TEXT)):
        (message, origin), *others = _place(raw)
        without = replace(message, media=(message.media[0].remove(), *message.media[1:]), edited=True)
        written = write_element([raw], [(without, origin), *others])
        assert written.count(MARKER) == raw.count(MARKER)
        assert message.media[0].line.encode() in written
