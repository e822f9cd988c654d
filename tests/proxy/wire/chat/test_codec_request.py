"""Chat requests: bytes <-> Conversation."""

from dataclasses import replace
from typing import Any

import msgspec
import orjson
import pytest

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.compactor import Compacted, Compactor
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.chat.codec import CHAT, drop_thinking
from trimtab.proxy.wire.chat.message import decode_message, encode_message
from trimtab.proxy.wire.codec import Counting
from trimtab.rules.conversation import Media, Message, Role, ToolCall
from trimtab.rules.policy import OverflowStrategy, Policy
from trimtab.rules.results.work import LargeWorkError
from trimtab.rules.tokens.families import GENERIC

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
        Message(
            Role.ASSISTANT,
            tool_calls=(ToolCall("c1", "ls", '{"a": 1}'),),
            raw=CALLER,
            beside=(("reasoning_content", b'" "'),),
        ),
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


CALLED = b'"function_call":{"name":"draw","arguments":"{}"}'


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (b'{"role":"assistant","content":null,' + CALLED + b"}", [b"draw"]),
        (b'{"role":"user","content":"x",' + CALLED + b"}", []),
        (b'{"role":"assistant","content":"\\"function_call\\" draw"}', []),
        (b'{"role":"assistant","content":"x","function_call":{"name":5}}', []),
        (b'{"role":"assistant","content":"x","function_call":"draw"}', []),
        (CALLER[:-1] + b"," + CALLED + b"}", [b"ls"]),
    ],
)
def test_a_function_that_was_called_in_the_legacy_form_keeps_its_declaration(
    said: bytes, kept: list[bytes], counting: Counting
) -> None:
    """Only an answer calls it, by a name, and not beside calls in the newer form."""
    body = b'{"functions":[{"name":"draw"},{"name":"other"},{"name":"ls"}],' + _body(USER, said)[1:]
    request = CHAT.read(body)
    left, saved = CHAT.drop_tools(request, CHAT.decode(request, counting), ("*",), counting)

    assert [name for name in (b"draw", b"other", b"ls") if b'{"name":"%s"}' % name in left] == kept
    assert saved > 0


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


def test_an_absent_content_is_added() -> None:
    """A message without content gets one after its other keys."""
    assert encode_message(_edit(_decode(b'{"role":"tool"}'), "new")) == b'{"role":"tool","content":"new"}'


IMAGE = b'{"type":"image_url","image_url":{"url":"0"}}'


def test_new_content_stands_in_the_place_of_the_old() -> None:
    """All other members keep their bytes and their order. The form of the content is what the client chose."""
    before = b'{"role":"tool","content":%s,"tool_call_id":"1","x":1.50}'
    for old, new in (
        (b'"old"', b'"new"'),
        (b"null", b'"new"'),
        (b'[{"type":"text","text":"old"}]', b'[{"type":"text","text":"new"}]'),
    ):
        assert encode_message(_edit(_decode(before % old), "new")) == before % new


def test_a_marker_that_was_taken_in_makes_a_string_a_part() -> None:
    """Only a part can hold it."""
    marked = b'{"role":"user","content":[{"type":"text","text":"k","cache_control":{"x":1}}]}'
    for base in (_decode(b'{"role":"user","content":"a"}'), Message(Role.USER)):
        encoded = encode_message(replace(_edit(base, "a", "k"), taken_in=(marked,)))
        content = b'[{"type":"text","text":"a\\n\\nk","cache_control":{"x":1}}]'
        assert encoded == b'{"role":"user","content":' + content + b"}"


def test_a_message_of_ours_goes_out_with_its_media() -> None:
    """An image that the user sent stays an image in a message that a rule made."""
    made = Message(Role.USER, ("a",), media=(Media(IMAGE, 85),), edited=True)
    assert encode_message(made) == b'{"role":"user","content":[{"type":"text","text":"a"},' + IMAGE + b"]}"


PRUNES = Policy(context_window=4_000, completion_reserve=0, overflow_strategy=OverflowStrategy.PRUNE)
SEALED = {"thinking_blocks": [{"type": "thinking", "thinking": "so", "signature": "c2ln"}]}
DETAILS = {"reasoning_details": [{"type": "reasoning.text", "text": "so", "signature": "c2ln"}]}
TEXT = "".join(f"line {number}: nothing of note in here\n" for number in range(12))


def _compact(model: str, beside: dict[str, object], steps: int = 60) -> Compacted:
    messages: list[dict[str, object]] = [{"role": "user", "content": "Run all."}]
    for step in range(steps):
        call = {"id": f"c{step}", "type": "function", "function": {"name": "run", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": "so", **beside, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{step}", "content": f"{step}\n{TEXT}"})
    compactor = Compactor(count_by_heuristic)
    request = CHAT.read(orjson.dumps({"model": model, "messages": messages}))
    return compactor.apply(compactor.plan(request, PRUNES), None)


@pytest.mark.parametrize("beside", [SEALED, DETAILS])
def test_all_thinking_is_left_out_once_something_before_was_changed(beside):
    """Of all messages alike, and nothing else. A transcript that stays keeps it, and so does that of another model."""
    compacted = _compact("anthropic/claude-opus-5.5", beside)
    other = _compact("anthropic/claude-opus-4.8", beside)
    assert [one.rule for one in compacted.decisions] == [*(one.rule for one in other.decisions), "thinking"]
    left, messages = orjson.loads(compacted.body)["messages"], orjson.loads(other.body)["messages"]
    assert left == [{name: value for name, value in one.items() if name not in beside} for one in messages]
    assert any(name in one for name in beside for one in messages)
    short = _compact("anthropic/claude-opus-5.5", beside, steps=2)
    assert "thinking" not in {one.rule for one in short.decisions}


def test_only_answers_lose_members():
    """A text that names them is no member."""
    for raw in (b'{"role":"user","thinking_blocks":[]}', b'{"role":"assistant","content":"\\"thinking_blocks\\""}'):
        assert drop_thinking(raw) == raw


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        ({}, None),
        ({"thinking": {"type": "disabled"}}, None),
        ({"thinking": None}, None),
        ({"thinking": {"type": "enabled", "budget_tokens": 9000}}, 9000),
        ({"thinking": {"type": "adaptive"}}, 0),
        ({"extra_body": {"thinking": {"type": "enabled", "budget_tokens": 9000}}}, 9000),
        ({"extra_body": {"google": {"thinking_config": {"thinking_budget": 500}}}}, 500),
        ({"extra_body": {"reasoning": {"max_tokens": 70}, "max_tokens": 5}}, 70),
        ({"reasoning": {"max_tokens": 2000}}, 2000),
        ({"reasoning": {"effort": "high"}}, None),
        ({"thinking_budget": 700, "enable_thinking": True}, 700),
        ({"thinking_budget": -1}, None),
        ({"thinking_budget": 0}, None),
        ({"thinking_budget": 1}, 1),
        ({"thinking": {"type": "enabled", "budget_tokens": True}}, 0),
        ({"thinking": {"type": "enabled", "budget_tokens": 1e300}}, 0),
    ],
)
def test_a_budget_of_thinking_is_read_in_any_form(body: dict[str, Any], tokens: int | None) -> None:
    """None if the request does not turn thinking on itself, 0 if it names no budget."""
    kept = CHAT.copy_members(CHAT.read(orjson.dumps({"messages": [], **body})))
    assert kept is not None
    assert CHAT.read_thinking(kept) == tokens


# Which members of the client's request a summary request copies if it continues the conversation.

RENDERED = {
    "tools": [{"type": "function", "function": {"name": "ls"}}],
    "functions": [{"name": "ls"}],
    "parallel_tool_calls": False,
    "tool_choice": "auto",
    "function_call": "none",
    "response_format": {"type": "text"},
    "documents": [{"text": "d"}],
    "reasoning": {"effort": "high"},
    "reasoning_effort": "high",
    "verbosity": "low",
    "output_config": {"effort": "high"},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "thinking_budget": 100,
    "enable_thinking": True,
    "prompt_mode": "reasoning",
    "safe_prompt": True,
    "web_search_options": {},
    "plugins": [{"id": "file-parser"}],
    "chat_template": "{{ messages }}",
    "chat_template_kwargs": {"enable_thinking": False},
    "add_special_tokens": True,
    "mm_processor_kwargs": {"num_crops": 4},
    "preset": "p",
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "search_parameters": {"mode": "auto"},
    "enable_search": True,
    "search_options": {"forced_search": False},
    "preserve_thinking": True,
    "vl_high_resolution_images": True,
    "chat_template_args": {"enable_thinking": False},
    "extra_body": {"google": {"cached_content": "c"}},
}
CACHED = {
    "metadata": {"a": "b"},
    "model": "m",
    "models": ["m", "n"],
    "provider": {"order": ["p"]},
    "session_id": "s",
    "service_tier": "flex",
    "user": "u",
    "safety_identifier": "u",
    "prompt_cache_key": "k",
    "prompt_cache_retention": "24h",
    "prompt_cache_options": {"mode": "explicit", "ttl": "30m"},
    "prompt_cache_isolation_key": "i",
    "cache_control": {"type": "ephemeral"},
    "cache_prompt": True,
    "cache_salt": "s",
    "id_slot": 2,
    "lora": [{"id": 0, "scale": 0.5}],
    "store": False,
    "cached_content": "c",
    "data_parallel_rank": 1,
}
SAMPLED = {
    "messages": [],
    "stream": True,
    "stream_options": {"include_usage": True},
    "n": 2,
    "stop": ["x"],
    "seed": 1,
    "temperature": 0.9,
    "top_p": 0.5,
    "max_tokens": 5,
    "max_completion_tokens": 5,
    "logprobs": True,
    "logit_bias": {"1": 2},
    "prediction": {"type": "content", "content": "x"},
    "modalities": ["text", "audio"],
    "audio": {"voice": "v"},
    "guided_choice": ["a"],
    "continue_final_message": True,
    "unheard_of": 1,
}


def members(body: dict[str, Any]) -> dict[str, Any] | None:
    """What is taken over, decoded."""
    kept = CHAT.copy_members(CHAT.read(orjson.dumps({"messages": [], **body})))
    return None if kept is None else {name: msgspec.json.decode(value) for name, value in kept.items()}


def test_what_is_rendered_or_steers_the_cache_goes_along() -> None:
    """If the prompt or the cache were another one, the upstream would charge the full price."""
    alone = [{name: value} for name, value in (RENDERED | CACHED).items()]
    assert list(map(members, alone)) == alone


def test_what_says_how_to_answer_stays_behind() -> None:
    """Sampling parameters, the form of the response and unknown members are left out."""
    assert members(SAMPLED | RENDERED | CACHED) == RENDERED | CACHED


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "auto", "disable_parallel_tool_use": True},
        {"type": "none"},
        {"type": "allowed_tools", "mode": "auto", "tools": []},
        {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}},
    ],
)
def test_an_object_that_leaves_the_model_free_is_kept(choice: dict[str, Any]) -> None:
    """It does not force a call, and may be part of the prompt."""
    assert members({"tool_choice": choice}) == {"tool_choice": choice}


@pytest.mark.parametrize(
    "choice",
    [
        {"tool_choice": "required"},
        {"tool_choice": {"type": "any"}},
        {"tool_choice": {"type": "allowed_tools", "mode": "required"}},
        {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required"}}},
        {"tool_choice": {"type": "function", "function": {"name": "ls"}}},
        {"function_call": {"name": "ls"}},
    ],
)
def test_no_call_is_forced(choice: dict[str, Any]) -> None:
    """The model should write a summary. A choice that allows that is kept."""
    assert members(choice | {"model": "m"}) == {"model": "m"}


@pytest.mark.parametrize(
    "form",
    [
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}},
        {"response_format": 5},
        {"output_config": {"effort": "high", "format": {"type": "json_schema"}}},
    ],
)
def test_an_answer_of_a_prescribed_form_is_no_note(form: dict[str, Any]) -> None:
    """Without the form the prompt would differ; with it no summary can be written."""
    assert members(form | {"model": "m"}) is None


@pytest.mark.parametrize("nothing", [{"response_format": None}, {"output_config": None}, {"tool_choice": None}])
def test_a_null_prescribes_nothing(nothing: dict[str, Any]) -> None:
    """It means that nothing is requested."""
    assert members(nothing | {"model": "m"}) is not None
