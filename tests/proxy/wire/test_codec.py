"""The general laws of a dialect: of the three that the proxy speaks, and of a fourth that only the tests speak."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dialects.spoken.all_dialects import DIALECTS
from support.dialects.spoken.dialect import Dialect, Wire
from support.gemini.codec import GEMINI
from support.gemini.spoken import SPOKEN
from support.odd_json import dump, odd_objects
from support.sessions import read_rows, recorded_files

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.compactor import Compactor
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.answering import Question
from trimtab.proxy.wire.answers.tap import Tap
from trimtab.proxy.wire.answers.usage import Usage
from trimtab.proxy.wire.codec import Counting
from trimtab.proxy.wire.transcript.body import UndecodableError
from trimtab.rules.conversation import Conversation, Role
from trimtab.rules.policy import OverflowStrategy, Policy

QUESTION = Question("m", 400, 0.2)
FOUR = (*DIALECTS, SPOKEN)
each_of_four = pytest.mark.parametrize("dialect", FOUR, ids=str)
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
CUTS = {
    "cut": Policy(context_window=4_000, completion_reserve=500),
    "pruned": Policy(context_window=4_000, completion_reserve=500, overflow_strategy=OverflowStrategy.PRUNE),
}


def make_session(steps: int) -> list[Wire]:
    """A task, and steps with two calls each. Results are long; texts need escapes."""
    messages: list[Wire] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": 'Mend the "build" ]}, \u00e9.'}, IMAGE]},
    ]
    for step in range(steps):
        ids = [f"c{step}-{rank}" for rank in range(2)]
        functions = [{"name": "run", "arguments": orjson.dumps({"n": step}).decode()} for _ in ids]
        calls = [
            {"id": one, "type": "function", "function": function} for one, function in zip(ids, functions, strict=True)
        ]
        messages.append({"role": "assistant", "content": f"step {step}", "tool_calls": calls})
        messages += [{"role": "tool", "tool_call_id": one, "content": f"{one} " + "word " * 90} for one in ids]
    return messages


def write(dialect: Dialect, messages: list[Wire], option: int = 0, **members: Any) -> bytes:
    return orjson.dumps(dialect.write(messages, **members), option=option)


def decode(dialect: Dialect, body: bytes) -> Conversation:
    return dialect.codec.decode(dialect.codec.read(body), Counting(count_by_heuristic, make_known()))


@each_of_four
@pytest.mark.parametrize("option", [0, orjson.OPT_INDENT_2])
def test_what_no_rule_touches_keeps_its_bytes(dialect: Dialect, option: int) -> None:
    """However it is spaced, if the transcript is written again."""
    body = write(dialect, make_session(4), option, top_k=1.50)
    request = dialect.codec.read(body)
    before = decode(dialect, body)
    assert b"".join(dialect.codec.encode(request, before, replace(before))) == body
    assert dialect.codec.encode(request, before, before) == (body,)


@each_of_four
def test_a_session_means_the_same_as_in_chat(dialect: Dialect) -> None:
    """Roles, texts, calls, answers and images, in the same order."""

    def see(one: Dialect) -> list[Any]:
        messages = decode(one, write(one, make_session(3))).messages
        calls = [tuple((call.id, call.name, orjson.loads(call.arguments)) for call in m.tool_calls) for m in messages]
        return [(m.role, m.texts, m.answers, call, len(m.media)) for m, call in zip(messages, calls, strict=True)]

    assert see(dialect) == see(DIALECTS[0])


@each_of_four
def test_of_a_changed_result_only_its_text_changes(dialect: Dialect) -> None:
    """Those beside it keep theirs, also within one element."""
    body = write(dialect, make_session(2))
    request, before = dialect.codec.read(body), decode(dialect, body)
    at = next(at for at, message in enumerate(before.messages) if message.role is Role.TOOL)
    messages = list(before.messages)
    messages[at] = replace(messages[at], texts=("cut",), edited=True)
    written = orjson.loads(b"".join(dialect.codec.encode(request, before, before.edit(messages))))
    assert dialect.read_results(written) == ["cut", *dialect.read_results(orjson.loads(body))[1:]]
    again = dialect.read(written)
    assert [one for one in again if one["role"] != "tool"] == [
        one for one in dialect.read(orjson.loads(body)) if one["role"] != "tool"
    ]


def _grow(dialect: Dialect, policy: Policy, steps: int) -> Iterator[tuple[Any, bytes, bytes]]:
    """Each request of a growing session: where it was cut, what the client sent, and what was forwarded."""
    compactor, session = Compactor(count_by_heuristic), make_session(steps)
    for stop in range(5, len(session) + 1, 3):
        body = write(dialect, session[:stop])
        planned = compactor.plan(dialect.codec.read(body), policy)
        window = planned.plan.window
        yield (window.cuts, window.prune_stop), body, compactor.apply(planned, None).body


@each_of_four
@pytest.mark.parametrize("policy", CUTS.values(), ids=CUTS)
def test_a_cut_keeps_pairs_and_lets_the_beginning_stand(dialect: Dialect, policy: Policy) -> None:
    """What was forwarded is the beginning of what is forwarded next, byte for byte, unless the cut has moved.

    Each call has its result. The newest results are the client's.
    """
    moves, before_cut, before = 0, None, b""
    for cut, body, sent in _grow(dialect, policy, 28):
        assert dialect.check_request(body, sent) == []
        assert dialect.read_results(orjson.loads(sent))[-2:] == dialect.read_results(orjson.loads(body))[-2:]
        if cut == before_cut:
            elements = dialect.codec.read(before).raws
            assert dialect.codec.read(sent).raws[: len(elements)] == elements
        else:
            moves += 1
        before_cut, before = cut, sent
    assert 2 <= moves <= 12


@each_of_four
@given(cuts=st.lists(st.integers(1, 60), min_size=1, max_size=20))
def test_the_usage_of_a_stream_is_read_from_chunks_that_are_cut_anywhere(dialect: Dialect, cuts: list[int]) -> None:
    """With its text, and whether it has ended."""
    stream, tap = b"".join(dialect.write_events("he", "llo")), Tap.of(dialect.codec, is_stream=True)
    while stream:
        size = cuts[len(stream) % len(cuts)]
        tap.feed(stream[:size], 1.0)
        stream = stream[size:]
    ended = tap.has_ended
    tap.finish()
    assert ended
    assert tap.text_chars == len("hello")
    assert tap.usage in (Usage(11, 3), Usage(11, 3, 0), Usage(11, 3, 0, 0, 0), None)
    assert (tap.usage is None) == (b"usage" not in b"".join(dialect.write_events("x")).lower())


@each_of_four
def test_a_refusal_names_the_window(dialect: Dialect) -> None:
    """As an answer and as the first event of a stream; a completion is none."""
    for refusal in dialect.refusals:
        body = refusal.write(9000, 4000)
        first = dialect.codec.hold_first_event(keeps_all=True)
        first.feed(body)
        first.finish()
        found = dialect.codec.read_refusal(refusal.status, first.data or b"" if refusal.is_stream else body)
        assert (found.limit == 4000) is refusal.told
    assert dialect.codec.read_refusal(200, dialect.write_answer("a")) is None


@each_of_four
def test_a_question_behind_a_session_is_a_request_of_the_dialect(dialect: Dialect) -> None:
    """It begins with the client's own elements, and ends with the prompt of the user."""
    body = write(dialect, make_session(3), max_tokens=9)
    request, transcript = dialect.codec.read(body), decode(dialect, body)
    asked = dialect.codec.ask_behind(request, transcript, QUESTION, "WRITE")
    assert asked is not None
    assert dialect.check_request(asked, asked) == []
    behind = dialect.codec.read(asked)
    assert behind.raws[: len(request.raws) - 1] == request.raws[:-1]
    assert behind.max_tokens in (400, None)
    said = decode(dialect, asked).messages[-1]
    assert (said.role, said.texts[-1]) == (Role.USER, "WRITE")
    alone = dialect.codec.ask(QUESTION, "WRITE")
    assert [message.texts for message in decode(dialect, alone).messages] == [("WRITE",)]


@each_of_four
def test_an_answer_is_the_same_completion_whole_and_streamed(dialect: Dialect) -> None:
    """With the usage of both."""
    whole = dialect.codec.read_completion(dialect.write_answer("hello", prompt_tokens=11, completion_tokens=3))
    streamed = dialect.codec.read_completion(b"".join(dialect.write_events("he", "llo")))
    for body in (dialect.write_answer("hello"), b"".join(dialect.write_events("he", "llo"))):
        assert dialect.codec.read_completion(b"\xef\xbb\xbf" + body).text == "hello"  # behind a byte order mark
    assert (whole.text, streamed.text) == ("hello", "hello")
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (11, 3)


def test_a_dialect_has_from_the_base_what_it_does_not_set() -> None:
    """Nothing is cleaned, adapted, marked or dropped. The instructions are a message, and the tools cost tokens."""
    body, counting = write(SPOKEN, make_session(1)), Counting(count_by_heuristic, make_known())
    request = GEMINI.read(body)
    assert GEMINI.uncounted_bytes(request, counting) > 0
    transcript = GEMINI.decode(request, counting)
    assert transcript.tokens == GEMINI.count_outside(request, counting).format_tokens + sum(
        one.tokens for one in transcript.messages
    )
    assert GEMINI.adapt(request, transcript, transcript, (body,)).pieces == (body,)
    assert GEMINI.help_cache(request, transcript, (body,)).pieces == (body,)
    assert GEMINI.drop_tools(request, transcript, ("*",), counting) == (body, 0)
    assert GEMINI.list_parameters(QUESTION) == ("temperature", "maxOutputTokens", "stream")


@each_of_four
def test_what_was_decoded_once_is_known(dialect: Dialect) -> None:
    """The same body has no uncounted bytes then, and the same messages."""
    request, counting = dialect.codec.read(write(dialect, make_session(1))), Counting(count_by_heuristic, make_known())
    first = dialect.codec.decode(request, counting)
    assert dialect.codec.uncounted_bytes(request, counting) == 0
    assert dialect.codec.decode(request, counting) == first


@each_of_four
def test_a_limit_that_is_required_is_not_left_out(dialect: Dialect) -> None:
    """An error that names it gives a lower limit, or nothing."""
    codec, name = dialect.codec, dialect.codec.limits[0]
    error = orjson.dumps({"error": {"message": f"{name} must be at most 300", "param": name}})
    assert codec.find_refused(QUESTION, error) == "limit>300"
    assert set(codec.list_parameters(QUESTION)) & set(codec.limits) <= set(codec.refusable_limits)


def test_a_unit_that_cannot_be_decoded_is_no_request_of_the_dialect() -> None:
    """The upstream decides about it."""
    with pytest.raises(UndecodableError):
        decode(SPOKEN, b'{"contents":[{"role":"user","parts":[]}]}')


@pytest.mark.parametrize("dialect", DIALECTS, ids=str)
def test_recorded_requests_go_through_unchanged(dialect: Dialect) -> None:
    """Those that real clients sent to this endpoint, however they are spaced."""
    rows = (row for file in recorded_files("wire") for row in read_rows(file))
    bodies = [row["body"] for row in rows if row["path"].partition("?")[0].endswith(dialect.codec.ending)]
    assert len(bodies) > 2
    for body in bodies:
        for option in (0, orjson.OPT_INDENT_2):
            raw = orjson.dumps(body, option=option)
            request, before = dialect.codec.read(raw), decode(dialect, raw)
            assert before.messages
            assert b"".join(dialect.codec.encode(request, before, replace(before))) == raw


PARTS = odd_objects(
    "type", "text", "thinking", "signature", "data", "id", "name", "input", "tool_use_id", "content", "source",
    "cache_control", "is_error",
    type=st.sampled_from(["text", "thinking", "tool_use", "tool_result", "image", "document", "server_tool_use", "x"]),
)  # fmt: skip
CALLS = odd_objects("id", "type", "function", "custom", function=odd_objects("name", "arguments"))
TYPES = (
    "message reasoning function_call function_call_output shell_call_output computer_call computer_call_output "
    "mcp_approval_response mcp_call code_interpreter_call compaction image_generation_call file_search_call program "
    "item_reference custom_tool_call_output"
)
ROLES = st.sampled_from(["user", "assistant", "tool", "system"])
ITEMS = st.lists(
    odd_objects("role", role=ROLES, content=st.lists(PARTS, max_size=3))
    | odd_objects("role", "content", "tool_call_id", "name", tool_calls=st.lists(CALLS, max_size=3))
    | odd_objects(
        "role", "content", "output", "call_id", "summary", "encrypted_content", "arguments", "action", "tools",
        "results", "outputs", "queries", "reason", "id", type=st.sampled_from(TYPES.split()),
    ),
    max_size=4,
)  # fmt: skip
OUTSIDE = ("tools", "functions", "tool_choice", "function_call", "response_format", "text", "thinking", "thread")
BODIES = odd_objects("system", "instructions", "output_config", "conversation", "max_tokens", "model", *OUTSIDE)


@pytest.mark.parametrize("dialect", DIALECTS, ids=str)
@given(outside=BODIES, items=ITEMS)
def test_odd_requests_are_refused_or_stay_whole(dialect: Dialect, outside: object, items: list[Any]) -> None:
    """Only UndecodableError is raised, by reading or by decoding. After an edit there are as many elements."""
    members = outside if isinstance(outside, dict) else {}
    body = dump({**members, dialect.transcript: items})
    try:
        request, before = dialect.codec.read(body), decode(dialect, body)
    except UndecodableError:
        return
    assert before.fixed_tokens >= 0
    assert b"".join(dialect.codec.encode(request, before, replace(before))) == body
    after = before.edit([replace(one, texts=("n",), edited=True) if one.texts else one for one in before.messages])
    assert len(dialect.codec.read(b"".join(dialect.codec.encode(request, before, after))).raws) == len(request.raws)
    dialect.codec.counts_all(request)
    dialect.codec.ask_behind(request, before, QUESTION, "x")
