"""The replayed session has the same cuts as in the proxy, and asks for the same summaries."""

from collections.abc import AsyncIterator
from dataclasses import replace

import aiohttp
import orjson
import pytest
from aiohttp import web
from msgspec import structs
from multidict import CIMultiDict
from support.model_learning import ListLog
from upstreams.examinee import Examinee, make_session
from upstreams.recording import FakeUpstream, completion

from trimtab.proxy.cli.bodies import choose_variant
from trimtab.proxy.cli.evaluate.rehearsal import (
    NAMES,
    PAUSED,
    NoSessionError,
    Rehearsal,
    make_arm,
    read_session,
    rehearse,
    write_summaries,
)
from trimtab.proxy.cli.records.inputs import split_turns
from trimtab.proxy.compaction import load_compactor, read_messages
from trimtab.proxy.compaction.engine import Variant
from trimtab.proxy.config.policy import SummaryConfig
from trimtab.proxy.config.schema import UpstreamConfig
from trimtab.proxy.http.client import UpstreamClient, target_url
from trimtab.proxy.models.model_policy import ModelView
from trimtab.proxy.summaries.calls import SummaryCalls
from trimtab.proxy.summaries.summariser import Summariser
from trimtab.proxy.telemetry.metrics import Metrics
from trimtab.proxy.wire.dialects import DEFAULT
from trimtab.rules.conversation import Role
from trimtab.rules.policy import OverflowStrategy, Policy
from trimtab.rules.summary.request import Summary


@pytest.fixture
async def client() -> AsyncIterator[UpstreamClient]:
    client = UpstreamClient()
    yield client
    await client.close()


def _summariser(upstream: FakeUpstream, **settings: object) -> Summariser:
    config = UpstreamConfig(base_url=upstream.url)
    return Summariser(
        codec=DEFAULT,
        upstream=config,
        url=target_url(config, DEFAULT.path, is_api=True),
        find_headers=lambda: CIMultiDict(Authorization="Bearer key"),
        secret=b"",
        model="exam-model",
        find_window_tokens=lambda: 12_000,
        answer_tokens=8000,
        settings=SummaryConfig(**settings),  # type: ignore[arg-type]
    )


async def _write(
    rehearsal: Rehearsal, summariser: Summariser, client: UpstreamClient
) -> tuple[dict[str, Summary], list[str], int]:
    steps: list[None] = []
    calls = SummaryCalls(Metrics(), ListLog())
    texts, failures = await write_summaries(rehearsal, summariser, client, calls, lambda: steps.append(None))
    return texts, failures, len(steps)


def test_the_last_plan_is_that_of_the_whole_session(rehearsal: Rehearsal) -> None:
    """Request by request or at once, the cut is the same: what is measured is what the proxy would forward."""
    compactor = load_compactor("m", vocabulary="heuristic")
    planned = compactor.plan(rehearsal.request, rehearsal.variant.policy)
    assert rehearsal.last.planned.plan.window == planned.plan.window
    assert rehearsal.apply({}).body == compactor.apply(planned, None).body
    assert rehearsal.wanted[-1].request == planned.plan.request


def test_every_cut_goes_on_from_the_one_before(rehearsal: Rehearsal) -> None:
    """The request that first asks for a text holds all messages that the text covers."""
    assert len(rehearsal.wanted) >= 3
    keys = [one.request.key for one in rehearsal.wanted]
    assert [one.request.base for one in rehearsal.wanted] == [None, *keys[:-1]]
    assert all(len(one.asked.raws) >= one.request.at for one in rehearsal.wanted)
    assert all(0 < one.prompt_tokens < 16_000 for one in rehearsal.wanted)


def test_a_session_that_fits_wants_nothing() -> None:
    body = make_session(2)
    rehearsal = rehearse(read_session(body), Variant(load_compactor("m", vocabulary="heuristic"), Policy()))
    assert rehearsal.wanted == ()
    assert orjson.loads(rehearsal.apply({}).body) == orjson.loads(body)


async def test_a_model_writes_each_summary_once_behind_what_was_forwarded(
    rehearsal: Rehearsal, upstream: FakeUpstream, examinee: Examinee, client: UpstreamClient
) -> None:
    """The question comes after the session's own messages, which include the previous summary."""
    examinee.told = "The harbour is closed."
    texts, failures, steps = await _write(rehearsal, _summariser(upstream), client)
    assert set(texts) == {one.request.key for one in rehearsal.wanted}
    assert all(text.by_model and "harbour is closed" in text.text for text in texts.values())
    assert failures == []
    assert len(upstream.summaries) == steps == len(rehearsal.wanted)
    first, *later = [asked.json["messages"] for asked in upstream.summaries]
    assert first[:2] == orjson.loads(rehearsal.request.body)["messages"][:2]
    assert all("The harbour is closed." in orjson.dumps(messages).decode() for messages in later)
    assert b"The harbour is closed." in rehearsal.apply(texts).body
    assert {tuple(asked.header("Authorization")) for asked in upstream.summaries} == {("Bearer key",)}


async def test_a_transcript_is_written_out_where_the_configuration_wants_it(
    rehearsal: Rehearsal, upstream: FakeUpstream, examinee: Examinee, client: UpstreamClient
) -> None:
    await _write(rehearsal, _summariser(upstream, request="transcript"), client)
    assert all(len(asked.json["messages"]) == 1 for asked in upstream.summaries)
    assert examinee.kinds == ["summary"] * len(rehearsal.wanted)


async def test_another_model_is_shown_the_transcript(
    rehearsal: Rehearsal, upstream: FakeUpstream, examinee: Examinee, client: UpstreamClient
) -> None:
    """Its prompt cache does not have the session."""
    await _write(rehearsal, replace(_summariser(upstream), model="other"), client)
    assert {(asked.json["model"], len(asked.json["messages"])) for asked in upstream.summaries} == {("other", 1)}
    assert set(examinee.kinds) == {"summary"}


async def test_the_digest_stands_where_no_summary_is_to_be_had(
    rehearsal: Rehearsal, upstream: FakeUpstream, examinee: Examinee, client: UpstreamClient
) -> None:
    """Each failure is reported. What is forwarded is then no longer than in the digest arm."""
    examinee.override = lambda _kind, _recorded: web.Response(status=402)
    texts, failures, steps = await _write(rehearsal, _summariser(upstream), client)
    assert steps == len(rehearsal.wanted) == len(failures)
    assert set(failures) == {"status 402"}
    assert not any(text.by_model for text in texts.values())
    assert rehearsal.apply(texts).sent_tokens < rehearsal.apply(texts).limit_tokens


async def test_no_model_is_asked_where_the_policy_asks_none(
    rehearsal: Rehearsal, upstream: FakeUpstream, client: UpstreamClient
) -> None:
    policy = replace(rehearsal.variant.policy, overflow_strategy=OverflowStrategy.PRUNE)
    pruning = rehearse(rehearsal.request, structs.replace(rehearsal.variant, policy=policy))
    _, failures, steps = await _write(pruning, _summariser(upstream), client)
    assert (steps, failures, upstream.requests) == (0, [], [])


async def test_too_few_steps_for_a_summary_are_listed(
    rehearsal: Rehearsal, upstream: FakeUpstream, client: UpstreamClient
) -> None:
    """The proxy asks no model for these texts, and that is not a failure."""
    policy = replace(rehearsal.variant.policy, summary_min_steps=1000)
    listing = rehearse(rehearsal.request, structs.replace(rehearsal.variant, policy=policy))
    texts, failures, steps = await _write(listing, _summariser(upstream), client)
    assert (steps, failures, upstream.requests) == (0, [], [])
    assert set(texts) == {one.request.key for one in listing.wanted}
    assert texts


async def test_a_cut_that_nothing_announced_is_asked_behind_what_was_forwarded_before(
    rehearsal: Rehearsal, upstream: FakeUpstream, examinee: Examinee, client: UpstreamClient
) -> None:
    """A very large step makes a cut at once. The question then comes after the request without the cut."""
    plain, large = (orjson.loads(make_session(40, words=words))["messages"] for words in (300, 2000))
    messages = [*plain[:28], *large[28:30], *plain[30:32]]
    body = orjson.dumps({"model": "exam-model", "messages": messages})
    sudden = rehearse(read_session(body), rehearsal.variant)
    (cut,) = sudden.wanted
    assert sudden.variant.compactor.plan(cut.asked, sudden.variant.policy).plan.request == cut.request
    await _write(sudden, _summariser(upstream), client)
    (asked,) = upstream.summaries
    *prefix, _ = asked.json["messages"]
    assert len(prefix) == cut.request.at == 28
    assert prefix == messages[:28]
    assert examinee.kinds == ["summary"]


async def test_what_is_measured_is_what_the_proxy_forwards(
    upstream: FakeUpstream, examinee: Examinee, client: UpstreamClient, start_proxy
) -> None:
    """If the session's requests go through the proxy one by one, the same summaries are asked for.

    The last request is the same, too. It is sent twice: a cut is put off until its summary is there, which a rehearsal
    takes for granted.
    """
    examinee.told = "The harbour is closed."
    examinee.override = lambda kind, _recorded: completion() if kind == "answer" else None  # without usage
    window = (
        "defaults={context_window: 16000, completion_reserve: 2000, overflow_strategy: summarize, count: heuristic}"
    )
    proxy = await start_proxy(window)
    session = read_session(make_session(60))
    config = proxy.services.config
    view = ModelView.of_unmet(config, session.model)
    rehearsal = rehearse(session, choose_variant(config, view, proxy.services.compactors))
    async with aiohttp.ClientSession() as agent:
        for body in [*split_turns(session.body, DEFAULT.name), session.body]:
            async with agent.post(f"{proxy.url}/v1/chat/completions", data=body) as answer:
                assert answer.status == 200
            await proxy.services.summaries._tasks.settle()
    forwarded, asked = upstream.chats[-1].body, [recorded.json for recorded in upstream.summaries]
    upstream.requests.clear()
    texts, *_ = await _write(rehearsal, _summariser(upstream), client)
    assert len(asked) >= 3
    assert [recorded.json for recorded in upstream.summaries] == asked
    assert rehearsal.apply(texts).body == forwarded


ROOM = 1_000_000


@pytest.mark.parametrize("name", NAMES)
def test_every_arm_ends_with_a_line_of_the_assistant(rehearsal: Rehearsal, name: str) -> None:
    """So servers that require alternating roles accept the question. The client's last message stays."""
    arm = make_arm(name, rehearsal, rehearsal.apply({}).forwarded, ROOM)
    *before, last = arm.conversation.messages
    assert (last.role, last.texts) == (Role.ASSISTANT, (PAUSED,))
    assert before[-1].digest == rehearsal.last.planned.original.messages[-1].digest
    assert arm.problem is None


def test_arms_hold_all_what_is_forwarded_and_the_newest(rehearsal: Rehearsal) -> None:
    """Truncation keeps as many tokens as compaction, to within one step."""
    forwarded = rehearsal.apply({}).forwarded
    arms = {name: make_arm(name, rehearsal, forwarded, ROOM) for name in NAMES}
    assert arms["none"].conversation.messages[:-1] == rehearsal.last.planned.original.messages
    assert arms["digest"].conversation.messages[:-1] == forwarded.messages
    assert arms["trimtab"].tokens == arms["digest"].tokens == forwarded.tokens
    assert forwarded.tokens * 0.5 < arms["truncate"].tokens <= forwarded.tokens


def test_what_does_not_fit_the_window_says_so(rehearsal: Rehearsal) -> None:
    forwarded = rehearsal.apply({}).forwarded
    assert "does not fit" in (make_arm("none", rehearsal, forwarded, 14_000).problem or "")
    assert make_arm("trimtab", rehearsal, forwarded, 14_000).problem is None


def test_open_calls_are_answered_in_every_arm() -> None:
    """Strict servers accept even a session that ends in the middle of a call."""
    call = {"id": "1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    messages = [{"role": "user", "content": "go"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    variant = Variant(load_compactor("m", vocabulary="heuristic"), Policy())
    rehearsal = rehearse(read_session(read_messages(messages, model="m").body), variant)
    for name in NAMES:
        arm = make_arm(name, rehearsal, rehearsal.apply({}).forwarded, ROOM)
        roles = [message.role for message in arm.conversation.messages]
        assert roles == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]


def test_a_session_that_ends_with_an_answer_stays_as_it_is() -> None:
    """Else two messages of the assistant would be adjacent."""
    messages = [{"role": "user", "content": "go"}, {"role": "assistant", "content": "done"}]
    variant = Variant(load_compactor("m", vocabulary="heuristic"), Policy())
    rehearsal = rehearse(read_session(read_messages(messages, model="m").body), variant)
    arm = make_arm("none", rehearsal, rehearsal.apply({}).forwarded, ROOM)
    assert [message.text for message in arm.conversation.messages] == ["go", "done"]


def _line(number: int, **members: object) -> bytes:
    messages = [{"role": "user", "content": f"message {index}"} for index in range(number)]
    return orjson.dumps({"messages": messages, **members})


def test_a_request_with_line_breaks_is_one_session() -> None:
    """A body of several lines is one session."""
    body = orjson.dumps(orjson.loads(make_session(2)), option=orjson.OPT_INDENT_2)
    session = read_session(body)
    assert (session.model, len(session.raws)) == ("exam-model", 6)


def test_of_many_lines_the_longest_is_taken() -> None:
    data = b"\n".join([_line(2), _line(5), b"", _line(3)]) + b"\n"
    assert len(read_session(data, "m").raws) == 5


def test_a_model_that_is_named_counts_instead_of_the_sessions() -> None:
    """The body has it, too; the body goes to the upstream with the questions."""
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
        (b"\n\n", "not a chat request"),
        (b"hello", "not a chat request"),
        (b'{"messages": 1}', "not a chat request"),
        (b'{"messages": [1], "model": "m"}', "not a chat request"),
        (_line(1), "--model"),
    ],
)
def test_what_holds_no_session_is_refused_with_what_to_do(data: bytes, told: str) -> None:
    with pytest.raises(NoSessionError, match=told):
        read_session(data)


def test_odd_json_is_read_as_the_proxy_reads_it() -> None:
    """A lone surrogate, which upstreams accept, is repaired."""
    body = b'{"model": "m", "messages": [{"role": "user", "content": "a\\ud83d"}], "seed": NaN}'
    assert len(read_session(body).raws) == 1
