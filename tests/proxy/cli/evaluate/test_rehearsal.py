"""The replayed session has the same cuts as in the proxy, and asks for the same summaries."""

import sys
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web
from msgspec.structs import replace
from upstreams.examinee import Examinee, make_session
from upstreams.recording import FakeUpstream, completion

from trimtab.proxy.cli.bodies import choose_variant
from trimtab.proxy.cli.evaluate.rehearsal import (
    NAMES,
    PAUSED,
    STAGE,
    NoSessionError,
    Rehearsal,
    StageLog,
    Tokens,
    compact_session,
    make_arm,
    read_session,
    rehearse,
)
from trimtab.proxy.cli.records.inputs import split_turns
from trimtab.proxy.compaction import load_compactor, read_messages
from trimtab.proxy.compaction.engine import Variant
from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.schema import Config
from trimtab.proxy.models.model_policy import ModelView
from trimtab.proxy.telemetry.logs import get_log
from trimtab.proxy.wire.dialects import DEFAULT
from trimtab.rules.conversation import Role
from trimtab.rules.policy import Policy

WINDOW = "defaults={context_window: 16000, completion_reserve: 2000, overflow_strategy: summarize, count: heuristic}"


def _log() -> StageLog:
    return StageLog(Tokens(), lambda: None)


def _configure(upstream: FakeUpstream, *settings: str) -> Config:
    everything = (f"upstream.base_url={upstream.url}", WINDOW, "prices={}", *settings, *STAGE)
    return load_config(settings=everything, environment={})


def _rehearse(config: Config) -> Rehearsal:
    view = ModelView.of_unmet(config, "exam-model")
    return rehearse(read_session(make_session(60)), choose_variant(config, view, Compactors(get_log())))


async def _compact(config: Config, log: StageLog) -> bytes:
    return await compact_session(config, 16_000, read_session(make_session(60)), "key", log)


async def test_a_model_writes_each_summary_once_behind_what_was_forwarded(
    upstream: FakeUpstream, examinee: Examinee
) -> None:
    """The question comes after the session's own messages, with the previous summary. Nothing else is asked.

    Each is asked behind a prompt that is longer than what the cut leaves, and no longer than its price says.
    """
    examinee.told, calls, spent, config = "The harbour is closed.", list[None](), Tokens(), _configure(upstream)
    log, rehearsal = StageLog(spent, lambda: calls.append(None)), _rehearse(config)
    compacted = await _compact(config, log)
    assert b"The harbour is closed." in compacted
    assert (len(upstream.summaries), len(calls), spent.calls) == (len(rehearsal.wanted),) * 3
    assert set(examinee.kinds) == {"summary"}
    assert log.failures == []
    first, *later = [asked.json["messages"] for asked in upstream.summaries]
    assert first[:2] == orjson.loads(rehearsal.request.body)["messages"][:2]
    assert all("The harbour is closed." in orjson.dumps(messages).decode() for messages in later)
    assert {tuple(asked.header("Authorization")) for asked in upstream.summaries} == {("Bearer key",)}
    read = [DEFAULT.read(one.body) for one in upstream.summaries]
    tokens = [DEFAULT.decode(one, rehearsal.variant.compactor.counting).tokens for one in read]
    priced = zip(tokens, rehearsal.wanted, strict=True)
    assert all(0.8 * one.prompt_tokens < size <= one.prompt_tokens for size, one in priced)


async def test_the_digest_stands_where_no_summary_is_to_be_had(upstream: FakeUpstream, examinee: Examinee) -> None:
    """Each failure is reported, also that of a server that stays busy."""
    examinee.override = lambda _kind, _recorded: web.Response(status=429, headers={"Retry-After": "0"})
    log, config = _log(), _configure(upstream)
    compacted = await _compact(config, log)
    assert set(log.failures) == {"status 429"}
    assert len(orjson.loads(compacted)["messages"]) < len(_rehearse(config).request.raws)


async def test_neither_a_long_wait_nor_traces_without_their_packages_end_a_run(
    upstream: FakeUpstream, examinee: Examinee, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The configuration bounds the waits. Each ends here as if the client's own limit were over at once."""
    monkeypatch.setattr(aiohttp.client, "DEFAULT_TIMEOUT", aiohttp.ClientTimeout(total=0.001))
    monkeypatch.setitem(sys.modules, "trimtab.proxy.telemetry.otlp", None)
    config = _configure(upstream, "tracing.otlp_endpoint=http://127.0.0.1:9")
    assert examinee.told.encode() in await _compact(config, _log())


async def test_what_is_measured_is_what_the_proxy_forwards(
    upstream: FakeUpstream, examinee: Examinee, start_proxy: Any
) -> None:
    """If the session's requests go through a proxy one by one, the same summaries are asked for.

    The last request is the same, too. It is sent twice: a cut is put off until its summary is there.
    """
    examinee.told = "The harbour is closed."
    examinee.override = lambda kind, _recorded: completion() if kind == "answer" else None  # without usage
    proxy, config = await start_proxy(WINDOW), _configure(upstream)
    session = read_session(make_session(60))
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer key"}) as agent:
        for body in [*split_turns(session.body, DEFAULT.name), session.body]:
            async with agent.post(f"{proxy.url}/v1/chat/completions", data=body) as answer:
                assert answer.status == 200
            await proxy.services.summaries.settle()
    forwarded, asked = upstream.chats[-1].body, [recorded.json for recorded in upstream.summaries]
    upstream.requests.clear()
    compacted = await _compact(config, _log())
    assert len(asked) >= 3
    assert [recorded.json for recorded in upstream.summaries] == asked
    assert compacted == forwarded
    assert make_arm("trimtab", _rehearse(config), compacted, ROOM).request.body == forwarded


ROOM = 1_000_000


def test_every_arm_ends_with_a_line_of_the_assistant(rehearsal: Rehearsal) -> None:
    """So servers that require alternating roles accept the question. The client's last message stays."""
    for arm in (make_arm(name, rehearsal, None, ROOM) for name in NAMES):
        *before, last = arm.conversation.messages
        assert (last.role, last.texts, arm.problem) == (Role.ASSISTANT, (PAUSED,), None)
        assert before[-1].digest == rehearsal.last.planned.original.messages[-1].digest


def test_arms_hold_all_what_is_forwarded_and_the_newest(rehearsal: Rehearsal) -> None:
    """Truncation keeps as many tokens as compaction, to within one step."""
    forwarded = rehearsal.last.compacted.forwarded
    arms = {name: make_arm(name, rehearsal, None, ROOM) for name in NAMES}
    assert arms["none"].conversation.messages[:-1] == rehearsal.last.planned.original.messages
    assert arms["digest"].conversation.messages[:-1] == forwarded.messages
    assert arms["trimtab"].tokens == arms["digest"].tokens == forwarded.tokens
    assert forwarded.tokens * 0.5 < arms["truncate"].tokens <= forwarded.tokens


def test_truncation_keeps_as_many_tokens_as_the_summaries_leave(rehearsal: Rehearsal) -> None:
    """Not as few as digests leave, if the summaries are longer."""
    whole, digest = (make_arm(name, rehearsal, None, ROOM) for name in ("none", "digest"))
    assert make_arm("truncate", rehearsal, rehearsal.request.body, ROOM) == replace(whole, name="truncate")
    assert make_arm("digest", rehearsal, rehearsal.request.body, ROOM) == digest


def test_open_calls_are_answered_in_every_arm_and_no_two_answers_are_adjacent() -> None:
    """Strict servers accept even a session that ends in the middle of a call, or with an answer."""
    call = {"id": "1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    asked, done = {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "assistant", "content": "done"}
    open_roles = [Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]
    for last, roles in ((asked, open_roles), (done, [Role.USER, Role.ASSISTANT])):
        body = read_messages([{"role": "user", "content": "go"}, last], model="m").body
        rehearsal = rehearse(read_session(body), Variant(load_compactor("m", vocabulary="heuristic"), Policy()))
        for name in NAMES:
            arm = make_arm(name, rehearsal, None, ROOM)
            assert [message.role for message in arm.conversation.messages] == roles


def _line(number: int, **members: object) -> bytes:
    messages = [{"role": "user", "content": f"message {index}"} for index in range(number)]
    return orjson.dumps({"messages": messages, **members})


def test_a_session_is_one_request_or_the_longest_of_several_lines() -> None:
    """It may have line breaks, and odd JSON, which is read as the proxy reads it. A named model replaces its own."""
    indented = orjson.dumps(orjson.loads(make_session(2)), option=orjson.OPT_INDENT_2)
    odd = b'{"model": "m", "messages": [{"role": "user", "content": "a\\ud83d"}], "seed": NaN}'
    lines = b"\n".join([_line(2), _line(5), b"", _line(3)]) + b"\n"
    assert [len(read_session(data, "m").raws) for data in (indented, odd, lines)] == [6, 1, 5]
    session = read_session(_line(1, model="theirs"), "mine")
    assert session.model == orjson.loads(session.body)["model"] == "mine"


def test_what_prescribes_the_form_of_an_answer_is_left_out() -> None:
    """Questions need plain answers. Tools stay because they are part of the prompt."""
    tools = [{"type": "function", "function": {"name": "ls"}}]
    form = {"type": "json_object"}
    body = _line(1, model="m", tools=tools, response_format=form, tool_choice="required", stream=True, user=None)
    assert set(orjson.loads(read_session(body).body)) == {"model", "messages", "tools"}


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "not a chat request"),
        (b"hello", "not a chat request"),
        (b'{"messages": 1}', "not a chat request"),
        (b'{"messages": [1], "model": "m"}', "not a chat request"),
        (_line(1), "--model"),
    ],
)
def test_what_holds_no_session_is_refused_with_what_to_do(data: bytes, told: str) -> None:
    with pytest.raises(NoSessionError, match=told):
        read_session(data)
