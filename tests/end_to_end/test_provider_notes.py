"""`summary.by: provider`: the provider's own compaction stands for what was cut.

Law: nothing is refused that the client sent. The provider's note is sent back unchanged, where the provider wants it;
what was forwarded before stays, byte for byte, until the next cut; and whatever the provider answers, a text of our own
stands there instead.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from typing import Any

import orjson
import pytest
from aiohttp import web
from support.client import post
from support.dialects.agent_session import AgentSession, make_script
from support.dialects.agents import MESSAGES, NAME, RESPONSES, Agent, Speech, Wire
from support.dialects.messages_validity import blocks_of
from upstreams.compacting import BETA, CACHED_TOKENS, NOTE_TOKENS, PROMPT_TOKENS, CompactingModel, answer_without_notes
from upstreams.recording import Recorded
from upstreams.speech.messages import fault

SETTINGS = (
    "defaults.context_window=8000",
    "defaults.completion_reserve=2000",
    "defaults.max_tool_result_tokens=800",
    "defaults.overflow_strategy=summarize",
    "defaults.summary.max_tokens=600",
    "defaults.summary.by=provider",
    "prices={unit: usd, input: 1, cached_input: 0.1, output: 2}",
)
STEPS = 16
each_speech = pytest.mark.parametrize("speech", [MESSAGES, RESPONSES], ids=str)


@pytest.fixture
def begin(open_session):
    """A function that begins a session with the compacting model."""

    def begin_one(speech: Speech, proxy: Any = None, **more: Any) -> AgentSession:
        thinks = speech is MESSAGES
        model = CompactingModel(make_script(STEPS, thinks=thinks, counts=(1,)), **more)
        return open_session(proxy, model, Agent(speech, thinks=thinks, more={"model": "claude-sonnet-5-5"}))

    return begin_one


def list_notes(body: Wire) -> list[Wire]:
    """The provider's notes in a request."""
    if "input" in body:
        return [item for item in body["input"] if item.get("type") == "compaction"]
    return [block for one in body["messages"] for block in blocks_of(one) if block["type"] == "compaction"]


def find_notes(session: AgentSession) -> list[list[Wire]]:
    """The notes in each request that the provider got."""
    return [list_notes(recorded.json) for _, recorded in session.sent]


async def play_to_a_note(session: AgentSession) -> None:
    while not any(find_notes(session)):
        await session.play()


def check(session: AgentSession) -> int:
    """Everything that was sent was valid, and no thinking was dropped. Returns how many requests had a note."""
    model = session.model
    assert model.invalid == model.mismatched == model.wrong == []
    assert max(model.dropped) == 0
    return sum(map(bool, find_notes(session)))


def check_prefix(session: AgentSession) -> int:
    """What was forwarded stays, byte for byte, but where the note changes. Returns the number of notes."""
    notes = [one[0].get("signature") or one[0]["encrypted_content"] if one else "" for one in find_notes(session)]
    listed = [[orjson.dumps(_unmark(one)) for one in _list_elements(recorded)] for _, recorded in session.sent]
    for at in range(1, len(listed)):
        stays = listed[at][: len(listed[at - 1])] == listed[at - 1]
        assert stays is (notes[at] == notes[at - 1])
    return len(set(notes) - {""})


def _list_elements(recorded: Recorded) -> list[Wire]:
    return recorded.json.get("input") or recorded.json["messages"]


def _unmark(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _unmark(one) for name, one in value.items() if name != "cache_control"}
    return [_unmark(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("speech", "stream"), [(MESSAGES, True), (RESPONSES, False)], ids=str)
async def test_the_note_stands_for_what_was_cut(speech, stream, begin, start_proxy, log) -> None:
    """Several cuts: each note is asked for behind the one before, and replaces it. No question of ours is asked.

    Its cost is a summary's. The beta of Messages goes with the note, beside the client's own, and with nothing else.
    """
    session = begin(speech, await start_proxy(*SETTINGS), streams_notes=stream)
    own = {"anthropic-beta": "own-2026-01-01"} if speech is MESSAGES else {}
    session.agent.speech = replace(speech, headers={**speech.headers, **own})
    await session.finish(stream=stream)

    assert check(session) >= 3
    assert check_prefix(session) >= 2
    assert session.questions == []
    assert all(len(notes) <= 1 for notes in find_notes(session))
    for (_, recorded), notes in zip(session.sent, find_notes(session), strict=True):
        betas = ",".join(recorded.header("anthropic-beta")).replace(" ", "").split(",")
        assert (BETA in betas) is bool(own and notes)
        assert own.keys() == set() or "own-2026-01-01" in betas
    spent, asked = session.proxy.services.recorder.metrics.summary_tokens, len(session.model.compacted)
    assert {kind: spent[labels] for labels in spent if (kind := labels[1])} == {
        "prompt": asked * PROMPT_TOKENS,
        "completion": asked * NOTE_TOKENS,
    }
    calls = [line for line in log.lines if line["event"] == "summary"]
    told = {(line["form"], line["result"], line["cached_tokens"]) for line in calls}
    assert told == {("provider", "written", CACHED_TOKENS)}


HOSTILE: dict[str, Callable[[Wire], Any]] = {
    "without": lambda answer: {**answer, "content": [], "output": [], "stop_reason": "refusal"},
    "huge": lambda answer: _repack(answer, "x " * 20_000),
    "number": lambda answer: _repack(answer, 7),
    "two": lambda answer: {**answer, "content": answer.get("content", []) * 2, "output": answer.get("output", []) * 2},
    "a call": lambda answer: {**answer, "content": [{"type": "tool_use", "id": "t", "name": NAME, "input": {}}]},
    "wrong types": lambda answer: {**answer, "content": {"a": 1}, "output": "x", "usage": [1]},
    "404": lambda _: answer_without_notes(404),
    "400": lambda _: answer_without_notes(400),
    "529": lambda _: fault(529, "overloaded_error", "compaction_unavailable"),
    "no json": lambda _: web.Response(body=b"\xff\xfe<html>"),
}


def _repack(answer: Wire, told: Any) -> Wire:
    block = {"type": "compaction", "content": told, "signature": told, "encrypted_content": told}
    return {**answer, "content": [block], "output": [{**block, "id": "cmp"}]}


@pytest.mark.parametrize(("name", "speech"), list(zip(HOSTILE, cycle((MESSAGES, RESPONSES)), strict=False)), ids=str)
async def test_whatever_the_provider_answers_a_text_of_ours_stands_there(speech, name, begin, start_proxy) -> None:
    """An answer without a note, a refusal, and hostile ones."""
    waits = ("defaults.summary.timeout_seconds=3", "defaults.summary.wait_seconds=0")
    session = begin(speech, await start_proxy(*SETTINGS, *waits), change=HOSTILE[name])
    await session.finish()
    assert session.model.invalid == session.model.wrong == []
    assert not any(find_notes(session))
    assert session.model.compacted
    assert any(b"earlier messages" in recorded.body for _, recorded in session.sent)
    if name in {"404", "400"}:
        assert len(session.model.compacted) == 1  # it is not asked again


@each_speech
async def test_a_note_that_is_refused_gives_way_to_a_digest(speech, begin, start_proxy) -> None:
    """The client does not see it, and no further note is sent to this upstream."""
    session = begin(speech, await start_proxy(*SETTINGS))
    await play_to_a_note(session)
    session.model.forgets = True
    await session.finish()
    assert len(session.model.wrong) == 1
    assert session.model.invalid == []
    assert not any(find_notes(session)[-2:])
    assert b"earlier messages" in session.sent[-1][1].body


@each_speech
async def test_restarts_and_two_workers_replay_the_same_note(speech, begin, serve, tmp_path) -> None:
    """The note is in the store like any summary: the session goes on as if one process had served it."""
    store = f"store=sqlite:///{tmp_path}/notes.sqlite3"
    session = begin(speech)
    async with serve(store) as lasting:
        for _ in range(STEPS // 2):
            async with serve(store) as session.proxy:
                await session.play()
            session.proxy = lasting
            await session.play()
    assert check(session) >= 3
    assert check_prefix(session) >= 2
    assert len(session.model.compacted) == len(session.model.issued)


@each_speech
async def test_another_upstream_never_gets_the_note(speech, begin, serve, upstream, tmp_path) -> None:
    """It might take the request, and know nothing of what was cut. Back at the first one, the note stands again."""
    store, session, asked = f"store=sqlite:///{tmp_path}/notes.sqlite3", begin(speech), []
    async with serve(store) as session.proxy:
        await play_to_a_note(session)

    async def answer(recorded: Recorded, _: Any) -> web.Response:
        asked.append(list_notes(recorded.json))
        return answer_without_notes(404)

    upstream.answer, sent = answer, session.agent.write()
    for url in (upstream.url.replace("127.0.0.1", "localhost"), upstream.url):
        async with serve(store, f"upstream.base_url={url}") as proxy:
            await post(session.client, proxy.url + speech.path, sent, **speech.headers)
    assert not any(asked[:-1])
    assert asked[-1] == find_notes(session)[-1]
