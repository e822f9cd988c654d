"""In each dialect: which members are counted, and which a question of ours has of the client's request."""

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from support.odd_json import dump, odd_objects

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.answering import Question
from trimtab.proxy.wire.codec import Codec, Counting
from trimtab.proxy.wire.dialects import CODECS
from trimtab.proxy.wire.transcript.body import UndecodableError
from trimtab.rules.conversation import Role

Wire = dict[str, Any]
CHAT, RESPONSES, MESSAGES, _ = CODECS
THREE = (CHAT, RESPONSES, MESSAGES)
each_codec = pytest.mark.parametrize("codec", THREE, ids=lambda codec: codec.name)
QUESTION = Question("other", 400, 0.2)
TALK = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]


def _ask(codec: Codec, members: Wire, question: Question = QUESTION, *, is_apart: bool = False) -> Wire | None:
    request = codec.read(orjson.dumps({"model": "m", codec.transcript: TALK, **members}))
    prefix = codec.decode(request, Counting(count_by_heuristic, make_known()))
    if is_apart:
        pairs = [pair for pair in zip(prefix.messages, prefix.origins, strict=True) if pair[0].role is Role.SYSTEM]
        prefix = replace(prefix, messages=tuple(one for one, _ in pairs), origins=tuple(at for _, at in pairs))
    body = codec.ask_behind(request, prefix, question, "WRITE", is_apart=is_apart)
    asked = None if body is None else orjson.loads(body)
    if asked is not None:
        assert "WRITE" in orjson.dumps(asked.pop(codec.transcript)[-1]).decode()
    return asked


def _think(tokens: int) -> Wire:
    return {"type": "enabled", "budget_tokens": tokens}


OURS = {"temperature": 0.2, "max_tokens": 400, "stream": False}
OF_RESPONSES = {"temperature": 0.2, "max_output_tokens": 400, "stream": False}


@pytest.mark.parametrize(
    ("codec", "members", "expected"),
    [
        (CHAT, {"tools": [], "max_tokens": 7, "top_p": 0.5, "stream": True}, {"tools": [], **OURS}),
        (CHAT, {"thinking": _think(1000)}, {"thinking": _think(1000), "max_tokens": 1400, "stream": False}),
        (RESPONSES, {"instructions": "x", "max_output_tokens": 9}, {"instructions": "x", **OF_RESPONSES}),
        (RESPONSES, {"reasoning": {}}, {"reasoning": {}, "max_output_tokens": 400, "stream": False}),
        (RESPONSES, {"input": "a"}, OF_RESPONSES),
        (MESSAGES, {"system": "s", "tools": [], "temperature": 1}, {"system": "s", "tools": [], **OURS}),
    ],
)  # fmt: skip
def test_a_question_has_the_clients_prompt_and_its_own_parameters(codec: Codec, members: Wire, expected: Wire) -> None:
    """Thinking gets room in addition to the answer, and no temperature is sent with it."""
    assert _ask(codec, members) == {"model": "m", **expected}


@pytest.mark.parametrize(
    ("max_tokens", "budget", "expected"), [(9000, 1024, 1424), (9000, 8999, 9000), (2000, 1500, 1900), (500, 450, 850)]
)
def test_thinking_gets_room_within_the_clients_own_limit(max_tokens: int, budget: int, expected: int) -> None:
    """A model may refuse a larger limit. If the client's is small, the summary's is added."""
    asked = _ask(MESSAGES, {"max_tokens": max_tokens, "thinking": _think(budget)})
    assert (asked["max_tokens"], "temperature" in asked) == (expected, False)


@pytest.mark.parametrize(
    ("codec", "own", "others", "expected"),
    [
        (
            CHAT,
            {"user": "u", "store": False, "metadata": {"a": 1}, "prompt_cache_key": "k", "service_tier": "flex"},
            {"tools": [], "tool_choice": "auto", "response_format": {"type": "json_object"}, "max_tokens": 7, "n": 2},
            OURS,
        ),
        (
            RESPONSES,
            {"instructions": "x", "include": ["x"], "prompt_cache_key": "k", "client_metadata": {"a": "b"}},
            {"tools": [], "tool_choice": "required", "text": {"format": {"type": "json_schema"}}, "reasoning": {}},
            {"store": False, **OF_RESPONSES},
        ),
        (
            MESSAGES,
            {"system": [{"type": "text", "text": "s"}], "metadata": {"user_id": "u"}, "service_tier": "auto"},
            {"max_tokens": 9, "thinking": _think(1024), "tools": [], "output_config": {"format": {}}, "stream": True},
            OURS,
        ),
    ],
    ids=["chat", "responses", "messages"],
)
def test_a_question_of_its_own_is_of_the_clients_session(codec: Codec, own: Wire, others: Wire, expected: Wire) -> None:
    """It has the client's instructions, account and session, but neither its tools nor how it wants its answer."""
    assert _ask(codec, {**own, **others}, is_apart=True) == {"model": "other", **own, **expected}
    assert codec is not RESPONSES or _ask(codec, {"store": True}, is_apart=True)["store"] is True


@pytest.mark.parametrize(
    ("codec", "refused", "expected"),
    [
        (CHAT, {"temperature", "max_tokens", "stream"}, {"max_completion_tokens", "stream", "stream_options"}),
        (CHAT, {"temperature", "max_tokens", "stream", "max_completion_tokens", "stream=true"}, set()),
        (RESPONSES, {"temperature", "max_output_tokens", "stream", "store"}, {"stream"}),
        (MESSAGES, {"temperature", "limit>128", "stream"}, {"max_tokens", "stream"}),
    ],
)
def test_what_is_refused_is_not_sent(codec: Codec, refused: set[str], expected: set[str]) -> None:
    """The limit of a chat has a second name; a streamed question asks for its usage."""
    asked = orjson.loads(codec.ask(Question("m", 400, 0.2, refused=frozenset(refused)), "WRITE"))
    assert asked.keys() == {"model", codec.transcript, *expected}
    assert asked.get("stream", True) is True
    assert asked.get("max_tokens") in (None, 128)


def test_a_model_that_thinks_has_another_name_for_its_limit() -> None:
    """Only a question that follows nothing asks that nothing is kept of it."""
    asked = orjson.loads(CHAT.ask(Question("m", 400, None, is_reasoning=True), "WRITE"))
    assert (asked["max_completion_tokens"], asked.keys() & {"max_tokens", "temperature"}) == (400, set())
    alone = orjson.loads(RESPONSES.ask(QUESTION, "WRITE"))
    del alone["input"]
    assert alone == {"model": "other", "store": False, **OF_RESPONSES}


OF_CHAT = """
    functions parallel_tool_calls documents reasoning reasoning_effort verbosity output_config thinking_budget plugins
    enable_thinking prompt_mode safe_prompt web_search_options chat_template chat_template_kwargs add_special_tokens
    mm_processor_kwargs preset context_management search_parameters enable_search search_options preserve_thinking
    vl_high_resolution_images chat_template_args model models provider session_id user safety_identifier
    prompt_cache_retention prompt_cache_options prompt_cache_isolation_key cache_control cache_prompt cache_salt
    id_slot lora cached_content data_parallel_rank
"""
OF_OPENAI = "parallel_tool_calls truncation include prompt_cache_options service_tier user client_metadata model"
OF_ANTHROPIC = "context_management mcp_servers model"
RENDERED: dict[Codec, Wire] = {
    CHAT: {
        **dict.fromkeys(OF_CHAT.split(), "x"),
        "tools": [{"type": "function", "function": {"name": "ls"}}],
        "tool_choice": "auto",
        "function_call": "none",
        "response_format": {"type": "text"},
        "thinking": _think(1024),
        "extra_body": {"google": {"cached_content": "c"}},
        "metadata": {"a": "b"},
        "prompt_cache_key": "k",
        "service_tier": "flex",
        "store": False,
    },
    RESPONSES: {
        **dict.fromkeys(OF_OPENAI.split(), "x"),
        "instructions": "Be brief.",
        "tools": [{"type": "function", "name": "ls"}],
        "tool_choice": "auto",
        "text": {"verbosity": "low", "format": {"type": "text"}},
        "reasoning": {"effort": "low"},
        "prompt_cache_key": "k",
        "store": False,
        "metadata": {"a": "b"},
    },
    MESSAGES: {
        **dict.fromkeys(OF_ANTHROPIC.split(), "x"),
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "tools": [{"name": "ls"}],
        "tool_choice": {"type": "auto"},
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "high"},
        "metadata": {"user_id": "x"},
        "cache_control": {"type": "ephemeral"},
    },
}
SAMPLED = {
    "stream": True, "stream_options": {}, "n": 2, "stop": ["x"], "seed": 1, "temperature": 0.9, "top_p": 0.5,
    "max_tokens": 5, "max_completion_tokens": 5, "max_output_tokens": 5, "background": True, "unheard_of": 1,
}  # fmt: skip


def _copy(codec: Codec, members: Wire) -> Wire | None:
    copied = codec.copy_members(codec.read(orjson.dumps({codec.transcript: [], **members})))
    return None if copied is None else {name: orjson.loads(bytes(value)) for name, value in copied.items()}


@each_codec
def test_what_is_rendered_or_steers_the_cache_is_copied_and_how_to_answer_is_not(codec: Codec) -> None:
    """If the prompt or the cache were another one, the upstream would charge the full price."""
    assert _copy(codec, SAMPLED | RENDERED[codec]) == RENDERED[codec]
    assert codec.copy_members(codec.read(b'{"%b":[],"x":"\\ud83d"}' % codec.transcript.encode())) is None


ALLOWED = {"type": "allowed_tools", "mode": "auto", "tools": []}


@pytest.mark.parametrize(
    ("codec", "name", "choice", "is_kept"),
    [
        (CHAT, "tool_choice", ALLOWED, True),
        (CHAT, "tool_choice", None, True),
        (CHAT, "tool_choice", "required", False),
        (CHAT, "tool_choice", {"type": "function", "function": {"name": "ls"}}, False),
        (CHAT, "function_call", {"name": "ls"}, False),
        (RESPONSES, "tool_choice", ALLOWED, True),
        (RESPONSES, "tool_choice", {**ALLOWED, "mode": "required"}, False),
        (RESPONSES, "tool_choice", {"mode": ["x"]}, False),
        (MESSAGES, "tool_choice", {"type": "none"}, True),
        (MESSAGES, "tool_choice", {"type": "any"}, False),
    ],
)
def test_no_call_is_forced(codec: Codec, name: str, choice: object, *, is_kept: bool) -> None:
    """The model should write a summary. A choice that allows that may be part of the prompt."""
    assert _copy(codec, {"model": "m", name: choice}) == {"model": "m", **({name: choice} if is_kept else {})}


SCHEMA = {"type": "json_schema", "schema": {"type": "object"}}


@pytest.mark.parametrize(
    ("codec", "members", "is_free"),
    [
        (CHAT, {"response_format": {"type": "json_object"}}, False),
        (CHAT, {"output_config": {"effort": "high", "format": SCHEMA}}, False),
        (CHAT, {"response_format": None, "output_config": None}, True),
        (RESPONSES, {"text": {"format": {"type": "json_object"}}}, False),
        (RESPONSES, {"text": 7}, True),
        (RESPONSES, {"text": {"format": {"type": "text"}}}, True),
        (RESPONSES, {"previous_response_id": "resp_1"}, False),
        (RESPONSES, {"conversation": {"id": "conv_1"}}, False),
        (RESPONSES, {"previous_response_id": None, "conversation": None}, True),
        (RESPONSES, {"input": [{"id": "msg_1"}]}, False),
        (MESSAGES, {"output_config": {"format": SCHEMA}}, False),
        (MESSAGES, {"output_format": SCHEMA}, False),
        (MESSAGES, {"compaction": {"type": "summarize"}}, False),
        (MESSAGES, {"output_config": None, "output_format": None, "compaction": None}, True),
    ],
)
def test_no_question_follows_a_prescribed_form_or_what_the_upstream_holds(
    codec: Codec, members: Wire, *, is_free: bool
) -> None:
    """Without the form the prompt would differ; with it no summary can be written."""
    assert (_ask(codec, members) is not None) is is_free


@pytest.mark.parametrize(
    ("codec", "body", "tokens"),
    [
        (CHAT, {}, None),
        (CHAT, {"thinking": {"type": "disabled"}}, None),
        (CHAT, {"thinking": _think(9000)}, 9000),
        (CHAT, {"thinking": {"type": "adaptive"}}, 0),
        (CHAT, {"extra_body": {"thinking": _think(9000)}}, 9000),
        (CHAT, {"extra_body": {"google": {"thinking_config": {"thinking_budget": 500}}}}, 500),
        (CHAT, {"extra_body": {"reasoning": {"max_tokens": 70}, "max_tokens": 5}}, 70),
        (CHAT, {"reasoning": {"max_tokens": 2000}}, 2000),
        (CHAT, {"reasoning": {"effort": "high"}}, None),
        (CHAT, {"thinking_budget": 700, "enable_thinking": True}, 700),
        (CHAT, {"thinking_budget": -1}, None),
        (CHAT, {"thinking_budget": 0}, None),
        (CHAT, {"thinking": {"type": "enabled", "budget_tokens": 1e300}}, 0),
        (MESSAGES, {"thinking": _think(1024)}, 1024),
        (MESSAGES, {"thinking": {"type": "enabled", "budget_tokens": "many"}}, 0),
        (MESSAGES, {"thinking": {"type": "disabled", "budget_tokens": 5}}, None),
        (MESSAGES, {"thinking": []}, None),
    ],
)
def test_a_budget_of_thinking_is_read_in_any_form(codec: Codec, body: Wire, tokens: int | None) -> None:
    """None if the request does not turn thinking on itself, 0 if it names no budget."""
    kept = codec.copy_members(codec.read(orjson.dumps({"messages": [], **body})))
    assert kept is not None
    assert codec.read_thinking(kept) == tokens


@each_codec
@given(
    members=odd_objects(
        "tool_choice", "function_call", "thinking", "reasoning", "output_config", "response_format", "text", "format"
    )
)
def test_odd_members_are_copied_or_nothing_is(codec: Codec, members: object) -> None:
    if not isinstance(members, dict):
        return
    try:
        request = codec.read(dump({**members, codec.transcript: []}))
    except UndecodableError:
        return
    written = codec.copy_members(request)
    assert written is None or written.keys() <= members.keys()
    assert written is None or codec.read_thinking(written) is None or members.keys() & {"thinking", "reasoning"}


MORE = b'"max_tokens":5,"stream":true,"thinking":{"type":"enabled","budget_tokens":3}'
READ = [
    (
        CHAT,
        b'"tools":[ {"a":1} ],"functions":null,"tool_choice":"none","response_format":{},"max_tokens":5',
        ("m", False, 5, False, False),
        (b'[ {"a":1} ]', b"", b'"none"', b"", b"{}"),
    ),
    (CHAT, b'"max_completion_tokens":7,"max_tokens":5,"stream":true,"model":3', ("", True, 7, True, False), (b"",) * 5),
    (
        RESPONSES,
        b'"tools":[ {"a":1} ],"instructions":"x","text":{},"max_output_tokens":5,"conversation":"c"',
        ("m", False, 5, False, False),
        (b'"x"', b"", b'"c"', b'[ {"a":1} ]', b"", b"{}"),
    ),
    (RESPONSES, b'"max_output_tokens":"7","reasoning":{},"stream":true', ("m", True, None, True, True), (b"",) * 6),
    (
        MESSAGES,
        b'"tools":[ {"a":1} ],"system":null,"tool_choice":{},"output_config":{ },"thread":"x",%b' % MORE,
        ("m", True, 5, True, True),
        (b"", b'[ {"a":1} ]', b"{}", b"{ }", b"", b'"x"'),
    ),
    (MESSAGES, b'"model":3,"max_tokens":true,"thinking":[]', ("", False, None, False, True), (b"",) * 6),
]  # fmt: skip


@pytest.mark.parametrize(("codec", "members", "told", "fixed"), READ)
def test_what_stands_outside_the_transcript_is_read(
    codec: Codec, members: bytes, told: tuple[object, ...], fixed: tuple[bytes, ...]
) -> None:
    """Model, stream, the limit, whether reasoning counts against it, whether usage is told; and what costs tokens."""
    request = codec.read(b'{"model":"m","%b":[],%b}' % (codec.transcript.encode(), members))
    assert (request.model, request.stream, request.max_tokens, request.is_reasoning, request.asks_usage) == told
    assert request.fixed == fixed


CLEARING = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}


@pytest.mark.parametrize(
    ("codec", "members", "counts"),
    [
        (CHAT, {"tools": [], "temperature": 1}, True),
        (CHAT, {"of_the_future": 1}, False),
        (RESPONSES, {"store": False, "include": ["x"], "reasoning": {"effort": "low"}, "instructions": "x"}, True),
        (RESPONSES, {"text": {"verbosity": "low"}, "prompt_cache_key": "k", "client_metadata": {}}, True),
        (RESPONSES, {"previous_response_id": None, "prompt": None, "truncation": "disabled"}, True),
        (RESPONSES, {"previous_response_id": "r"}, False),
        (RESPONSES, {"prompt": {"id": "p"}}, False),
        (RESPONSES, {"context_management": [{"type": "compaction"}]}, False),
        (RESPONSES, {"truncation": "auto"}, False),
        (MESSAGES, {"system": "x", "metadata": {"user_id": "x"}, "thinking": {"type": "adaptive"}}, True),
        (MESSAGES, {"context_management": CLEARING}, True),
        (MESSAGES, {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}, False),
        (MESSAGES, {"context_management": 1}, False),
        (MESSAGES, {"mcp_servers": []}, False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("length", [1, 20_000])
def test_a_request_is_counted_in_full_if_all_its_members_are(
    codec: Codec, members: Wire, length: int, *, counts: bool
) -> None:
    """Only such requests help to calibrate. Server-side edits of anything but thinking change what the model reads."""
    talk = [{"role": "user", "content": "x" * length}]
    assert codec.counts_all(codec.read(orjson.dumps({"model": "m", codec.transcript: talk, **members}))) is counts
    assert not codec.counts_all(codec.read(b'{"%b":[],"user":"\\ud83d"}' % codec.transcript.encode()))
