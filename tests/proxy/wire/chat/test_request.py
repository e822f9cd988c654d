"""Chat requests: bytes <-> Conversation."""

from dataclasses import replace

import orjson
import pytest

from proxy.compaction.caches import make_known
from proxy.compaction.tokenizers.exact import count_by_heuristic
from proxy.wire.chat.codec import CHAT
from proxy.wire.chat.message import decode_message, encode_message
from proxy.wire.codec import Counting, UndecodableError
from rules.conversation import Media, Message, Role, ToolCall
from rules.results.work import LargeWorkError
from rules.tokens.families import GENERIC

SYSTEM = b'{ "role": "system",\n  "content": "Be \\"brief\\" ]}, \\u00e9 \\\\" }'
USER = b'{"content":"hi","role":"user","content":"h\xc3\xa9llo","seed":123456789012345678901234567890}'
CALLER = (
    b'{"role":"assistant","content":null,"reasoning_content":"hm","tool_calls":[{"id":"c1","type":"function",'
    b'"function":{"name":"ls","arguments":"{\\"a\\": 1}"}}],"x_unknown":{"b":1.50,"a":null}}'
)
RESULT = b'{"tool_call_id":"c1","content":"a.txt\\nb.txt","role":"tool","name":"ls"}'
PRETTY = b"".join(
    [
        b'\n{"model" : "m" , "metadata":{"messages":[1]}, "messages":[{"role":"user"}], "x":"\\"messages\\": [",\n',
        b'  "messages" : [ \n',
        b" ,\n  ".join([SYSTEM, USER, CALLER, RESULT, USER]),
        b'\n ]\t,  "stream":true,"tail":{"messages":[{"role":"user"}]}, "n": 1e2 }\n\n',
    ]
)


@pytest.fixture
def counting() -> Counting:
    return Counting(count_by_heuristic, make_known())


def _body(*messages: bytes) -> bytes:
    return b'{"model":"m","messages":[' + b",".join(messages) + b"]}"


def _edit(message: Message, *texts: str) -> Message:
    return replace(message, texts=texts, edited=True)


def _decode(raw: bytes) -> Message:
    return decode_message(raw, count_by_heuristic, GENERIC.costs)


def test_a_message_is_decoded_to_what_it_says() -> None:
    """Role, texts, calls, answer and name, with the client's own bytes; the last of duplicate keys wins."""
    kept = [replace(_decode(raw), digest=b"", tokens=0, has_reasoning=False) for raw in (SYSTEM, USER, CALLER, RESULT)]

    assert kept == [
        Message(Role.SYSTEM, ('Be "brief" ]}, é \\',), raw=SYSTEM),
        Message(Role.USER, ("héllo",), raw=USER),
        Message(Role.ASSISTANT, tool_calls=(ToolCall("c1", "ls", '{"a": 1}'),), raw=CALLER),
        Message(Role.TOOL, ("a.txt\nb.txt",), answers="c1", name="ls", raw=RESULT),
    ]


def test_what_stands_outside_the_messages_is_read() -> None:
    """Model, stream, the completion limit under either key, and the JSON that costs tokens."""
    body = (
        b'{"tools":[ {"a":1} ],"functions":null,"tool_choice":"none","response_format":{},"max_tokens":5,'
        b'"messages":[],"model":"m"}'
    )
    request = CHAT.read(body)
    other = CHAT.read(b'{"messages":[],"max_completion_tokens":7,"max_tokens":5,"stream":true,"model":3}')

    assert (request.model, request.stream, request.max_tokens, request.is_reasoning) == ("m", False, 5, False)
    assert (request.raws, request.fixed) == ((), (b'[ {"a":1} ]', b"", b'"none"', b"", b"{}"))
    assert (other.model, other.stream, other.max_tokens) == ("", True, 7)
    assert other.is_reasoning


@pytest.mark.parametrize(
    ("options", "asks_usage"),
    [
        ('{"include_usage":true}', True),
        ('{"include_usage":false}', False),
        ('{"include_usage":1}', False),
        ("{}", False),
        ("null", False),
        ('"x"', False),
    ],
)
def test_a_request_may_want_its_usage(options: str, *, asks_usage: bool) -> None:
    """A value of another type does not count; the upstream decides about it."""
    assert CHAT.read(b'{"messages":[],"stream_options":%b}' % options.encode()).asks_usage is asks_usage


@pytest.mark.parametrize("wanted", ["true", "1.5", '"8"', "null", "[]", "{}"])
def test_an_odd_maximum_is_no_maximum(counting: Counting, wanted: str) -> None:
    """The upstream decides about a value that is not a whole number. The transcript is read."""
    request = CHAT.read(b'{"messages":[{"role":"user"}],"max_tokens":%s}' % wanted.encode())

    assert request.max_tokens is None
    assert len(CHAT.decode(request, counting).messages) == 1


def test_tools_cost_the_same_however_they_are_spaced(counting: Counting) -> None:
    """White space between the tokens of a schema is not counted."""
    tools = (b'[{"function":{"a":1}}]', b'[ { "function" :\n{"a":1 } } ]', b"null")
    fixed = [CHAT.decode(CHAT.read(b'{"messages":[],"tools":%s}' % each), counting).fixed_tokens for each in tools]

    assert fixed == [fixed[2] + count_by_heuristic(tools[0].decode())] * 2 + [fixed[2]]


def test_a_large_body_is_not_mended_where_that_would_take_too_long() -> None:
    """A body that needs no repair is still split. Without a bound, any body is repaired."""
    plain, damaged = _body(USER), _body(USER, b'{"role":"user","content":"\\ud83d"}')
    assert len(CHAT.read(plain, max_chars=10).raws) == 1
    assert len(CHAT.read(damaged, max_chars=len(damaged)).raws) == len(CHAT.read(damaged).raws) == 2
    with pytest.raises(LargeWorkError):
        CHAT.read(damaged, max_chars=len(damaged) - 1)


def test_an_unchanged_conversation_is_the_body_itself(counting: Counting) -> None:
    """If there is nothing to do, the same object is returned."""
    request = CHAT.read(PRETTY)
    conversation = CHAT.decode(request, counting)

    assert CHAT.encode(request, conversation, conversation)[0] is PRETTY


def test_an_equal_conversation_is_the_body_byte_for_byte(counting: Counting) -> None:
    """Even if the conversation was built again from the same messages, two of them equal."""
    request = CHAT.read(PRETTY)
    conversation = CHAT.decode(request, counting)

    assert b"".join(CHAT.encode(request, conversation, replace(conversation))) == PRETTY


def test_only_the_edited_message_differs(counting: Counting) -> None:
    """Keys, order, big integers, unknown keys, separators and everything around stay as the client wrote them."""
    request = CHAT.read(PRETTY)
    conversation = CHAT.decode(request, counting)
    messages = list(conversation.messages)
    messages[3] = _edit(messages[3], 'cut "short"\n')

    encoded = b"".join(CHAT.encode(request, conversation, conversation.edit(messages)))
    assert encoded == PRETTY.replace(b"a.txt\\nb.txt", b'cut \\"short\\"\\n')


def test_made_and_dropped_messages_stand_in_their_places(counting: Counting) -> None:
    """A made message gets plain commas. Neighbours that stay neighbours keep the bytes between them."""
    request = CHAT.read(PRETTY)
    original = CHAT.decode(request, counting)
    system, user, caller, result, last = original.messages
    made = Message(Role.TOOL, ("aborted",), answers="c2", edited=True)
    first, _, third, fourth, fifth = original.origins

    messages = (system, made, caller, result, made, last)
    after = replace(original, messages=messages, origins=(first, None, third, fourth, None, fifth))
    encoded = b"".join(CHAT.encode(request, original, after))
    aborted = b'{"role":"tool","content":"aborted","tool_call_id":"c2"}'
    head, tail = PRETTY.split(SYSTEM)[0], PRETTY.rpartition(USER)[2]
    kept = CALLER + b" ,\n  " + RESULT
    assert encoded == head + b",".join([SYSTEM, aborted, kept, aborted]) + b" ,\n  " + USER + tail
    after = replace(original, messages=(made, user), origins=(None, original.origins[1]))
    assert orjson.loads(b"".join(CHAT.encode(request, original, after)))["messages"][0]["role"] == "tool"


def test_equal_messages_are_told_apart_by_their_places(counting: Counting) -> None:
    """The same message twice, and once edited: each is written at its own position."""
    same = b'{"role":"tool","tool_call_id":"1","content":"x"}'
    body = b'{"messages":[' + same + b" , " + same + b"  ,  " + same + b"]}"
    request = CHAT.read(body)
    original = CHAT.decode(request, counting)
    first, second, third = original.messages

    encoded = b"".join(CHAT.encode(request, original, original.edit((first, _edit(second, "y"), third))))
    assert encoded == b'{"messages":[' + same + b" , " + same.replace(b'"x"', b'"y"') + b"  ,  " + same + b"]}"


def test_messages_under_an_escaped_key_cannot_be_spliced(counting: Counting) -> None:
    """Such a body is forwarded unchanged: the codec raises an error instead of guessing."""
    request = CHAT.read(b'{"m\\u0065ssages":[{"role":"user","content":"x"}]}')
    original = CHAT.decode(request, counting)

    with pytest.raises(UndecodableError):
        b"".join(CHAT.encode(request, original, original.edit((_edit(original.messages[0], "y"),))))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'"old"', b'"new"'),
        (b"null", b'"new"'),
        (b"[]", b'[{"type":"text","text":"new"}]'),
        (b"5", b'[{"type":"text","text":"new"},5]'),
        (b'{"a":1}', b'[{"type":"text","text":"new"},{"a":1}]'),
        (b'[{"type":"text","text":"old"}]', b'[{"type":"text","text":"new"}]'),
        (b'[{"text":"a","type":"text"},{"type":"text","text":"b"}]', b'[{"text":"new","type":"text"}]'),
        (
            b'[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}, {"type":"image_url"}]',
            b'[{"type":"text","text":"new","cache_control":{"type":"ephemeral"}},{"type":"image_url"}]',
        ),
        (b'[{"type":"text"}]', b'[{"type":"text"},{"type":"text","text":"new"}]'),
        (
            b'[{"type":"text","text":"a"},{"type":"text","text":"b","cache_control":{"x":1}}]',
            b'[{"type":"text","text":"new","cache_control":{"x":1}}]',
        ),
        (
            b'[{"type":"text","text":"a","cache_control":{"x":1}},{"type":"text","text":"b","cache_control":{"x":2}}]',
            b'[{"type":"text","text":"new","cache_control":{"x":1}}]',
        ),
        (
            b'[{"type":"text","text":"a"},{"type":"text","text":"b","cache_control":{"x":1}},{"type":"image_url"}]',
            b'[{"type":"text","text":"new"},{"type":"image_url","cache_control":{"x":1}}]',
        ),
        (
            b'[{"type":"text","text":"a"},{"type":"text","text":"b","cache_control":{"x":1}},"cache_control"]',
            b'[{"type":"text","text":"new"},"cache_control"]',
        ),
        (
            b'[{"type":"text","text":"a"},{"type":"text","text":"b","prompt_cache_breakpoint":{"mode":"explicit"}}]',
            b'[{"type":"text","text":"new","prompt_cache_breakpoint":{"mode":"explicit"}}]',
        ),
        (
            b'[{"type":"text","text":"a","cache_control":{"x":1}},{"type":"text","text":"b","prompt_cache_breakpoint":{}}]',
            b'[{"type":"text","text":"new","cache_control":{"x":1},"prompt_cache_breakpoint":{}}]',
        ),
    ],
)
def test_new_content_keeps_the_clients_form(content: bytes, expected: bytes) -> None:
    """A string stays a string, parts stay parts with their own keys, and other parts stay in place.

    A cache breakpoint on a part that is gone moves to the last part.
    """
    before, after = (b'{"role":"tool","content":%s,"tool_call_id":"1"}' % item for item in (content, expected))

    assert encode_message(_edit(_decode(before), "new")) == after


def test_an_absent_content_is_added() -> None:
    """A message without content gets one after its other keys."""
    assert encode_message(_edit(_decode(b'{"role":"tool"}'), "new")) == b'{"role":"tool","content":"new"}'


def test_unchanged_parts_keep_their_bytes() -> None:
    """Only the part with a new text is written again."""
    raw = b'{"role":"tool","content":[{"text" : "a" ,"type":"text"},{"type":"text","text":"b"}]}'

    edited = encode_message(_edit(_decode(raw), "a", "c"))
    assert edited == raw.replace(b'"b"', b'"c"')


IMAGES = tuple(b'{"type":"image_url","image_url":{"url":"%d"}}' % number for number in range(2))
WITH_IMAGES = b'{"role":"user","content":[%s,{"type":"text","text":"a"},%s]}' % IMAGES


@pytest.mark.parametrize(
    ("media", "content"),
    [
        (IMAGES, [IMAGES[0], b'{"type":"text","text":"b"}', IMAGES[1]]),
        ((), [b'{"type":"text","text":"b"}']),
        (IMAGES[:1], [IMAGES[0], b'{"type":"text","text":"b"}']),
        (IMAGES[1:], [IMAGES[1], b'{"type":"text","text":"b"}']),
        ((*IMAGES, b"{}"), [IMAGES[0], b'{"type":"text","text":"b"}', IMAGES[1], b"{}"]),
    ],
)
def test_exactly_the_media_of_the_message_go_out(media: tuple[bytes, ...], content: list[bytes]) -> None:
    """If images are kept, dropped or added, exactly those of the message are written."""
    edited = replace(_edit(_decode(WITH_IMAGES), "b"), media=tuple(Media(part, 85) for part in media))

    assert encode_message(edited) == b'{"role":"user","content":[' + b",".join(content) + b"]}"


def test_a_string_with_added_media_becomes_parts() -> None:
    """A task statement that takes in a kept image can no longer be a string."""
    edited = replace(_edit(_decode(b'{"role":"user","content":"a"}'), "a", "b"), media=(Media(IMAGES[0], 85),))

    texts = b'{"type":"text","text":"a"},{"type":"text","text":"b"},'
    assert encode_message(edited) == b'{"role":"user","content":[' + texts + IMAGES[0] + b"]}"


MARKED = b'{"role":"user","content":[{"type":"text","text":"k","prompt_cache_breakpoint":{"mode":"explicit"}}]}'


@pytest.mark.parametrize(
    ("taken_in", "content"),
    [
        ((MARKED,), b'[{"type":"text","text":"a\\n\\nk","prompt_cache_breakpoint":{"mode":"explicit"}}]'),
        (
            (MARKED, b'{"role":"user","content":"k","cache_control":{"type":"ephemeral"}}', MARKED),
            b'[{"type":"text","text":"a\\n\\nk",%s}]'
            % b'"prompt_cache_breakpoint":{"mode":"explicit"},"cache_control":{"type":"ephemeral"}',
        ),
        ((b'{"role":"user","content":"cache_control"}',), b'"a\\n\\nk"'),
    ],
)
@pytest.mark.parametrize("base", [b'{"role":"user","content":"a"}', None])
def test_a_marker_of_a_message_that_was_taken_in_goes_along(
    base: bytes | None, taken_in: tuple[bytes, ...], content: bytes
) -> None:
    """On the last part; a string becomes one part of the same text, so that the same prompt is rendered."""
    message = _edit(_decode(base), "a", "k") if base else Message(Role.USER, ("a", "k"), edited=True)
    encoded = encode_message(replace(message, taken_in=taken_in))
    assert encoded == b'{"role":"user","content":' + content + b"}"


def test_a_marker_that_was_taken_in_stands_on_the_last_part() -> None:
    """If the task statement has parts, the marker follows all of them."""
    base = b'{"role":"user","content":[{"type":"text","text":"a"}]}'
    encoded = encode_message(replace(_edit(_decode(base), "a", "k"), taken_in=(MARKED,)))
    assert orjson.loads(encoded)["content"] == [
        {"type": "text", "text": "a"},
        {"type": "text", "text": "k", "prompt_cache_breakpoint": {"mode": "explicit"}},
    ]


def test_a_message_of_ours_goes_out_with_its_media() -> None:
    """An image that the user sent stays an image in a message that a rule made."""
    made = Message(Role.USER, ("a",), media=(Media(IMAGES[0], 85),), edited=True)
    assert encode_message(made) == b'{"role":"user","content":[{"type":"text","text":"a"},' + IMAGES[0] + b"]}"


def test_a_message_seen_before_is_not_counted_again(counting: Counting) -> None:
    """Only what is new in a longer request is decoded; the rest is the same object."""
    first, longer = CHAT.read(_body(SYSTEM, USER)), CHAT.read(_body(SYSTEM, USER, RESULT))

    assert CHAT.uncounted_bytes(longer, counting) == len(SYSTEM) + len(USER) + len(RESULT)
    conversation = CHAT.decode(first, counting)
    assert CHAT.uncounted_bytes(longer, counting) == len(RESULT)
    assert all(map(lambda old, new: old is new, conversation.messages, CHAT.decode(longer, counting).messages))
