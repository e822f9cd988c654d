"""`summary.by: provider`: the provider's own compaction stands for what was cut.

Law: nothing is refused that the client sent. The provider's note is sent back unchanged, where the provider wants it;
what was forwarded before stays, byte for byte, until the next cut; and whatever the provider answers, a text of our own
stands there instead.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import cycle
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web
from support.client import post, settle
from support.dialects.agents import CHAT, MESSAGES, NAME, RESPONSES, Agent, Speech, Wire
from support.dialects.messages_validity import blocks_of
from upstreams.compacting import BETA, CACHED_TOKENS, NOTE_TOKENS, PROMPT_TOKENS, CompactingModel, answer_without_notes
from upstreams.recording import FakeUpstream, Recorded
from upstreams.scripted import Call, Turn
from upstreams.speech.messages import fault

from trimtab.proxy.account.history.texts import find_text, unpack_text
from trimtab.proxy.server.app import Proxy
from trimtab.rules.summary.request import OPAQUE

SETTINGS = (
    "defaults.context_window=8000",
    "defaults.completion_reserve=2000",
    "defaults.max_tool_result_tokens=800",
    "defaults.overflow_strategy=summarize",
    "defaults.summary.max_tokens=600",
    "defaults.summary.by=provider",
    "prices={unit: usd, input: 1, cached_input: 0.1, output: 2}",
)
STEPS = 14
MODEL = "claude-sonnet-5-5"
WORDS = "the harbour pilot sounded nine metres of water at low tide near the north quay and wrote it down"
each_speech = pytest.mark.parametrize("speech", [MESSAGES, RESPONSES], ids=str)


def make_script(*, thinks: bool = False) -> list[Turn]:
    """One call in a step, and each fifth turn the user must speak."""
    turns = []
    for step in range(STEPS):
        calls = () if step % 5 == 4 else (Call(NAME, {"path": f"logs/day_{step}.md"}),)
        turns.append(Turn(f"Day {step} is read.", calls, f"Day {step} may tell why." if thinks else ""))
    return turns


@dataclass
class Session:
    """A client's session. `sent`: the requests of it that the upstream got. `id`: of the last one."""

    client: aiohttp.ClientSession
    model: CompactingModel
    agent: Agent
    sent: list[Recorded] = field(default_factory=list)
    questions: list[Recorded] = field(default_factory=list)
    id: str = ""

    async def receive(self, recorded: Recorded, request: Any) -> web.StreamResponse:
        asked = len(self.model.compacted)
        answer = await self.model.answer(recorded, request)
        if recorded.asks_for_summary:
            self.questions.append(recorded)
        elif len(self.model.compacted) == asked and answer.status == 200:
            self.sent.append(recorded)
        return answer

    async def play(self, proxy: Proxy, *, stream: bool = False) -> None:
        """One turn of the script. The client sees no refusal."""
        turn, speech = self.model.turns[self.model.played], self.agent.speech
        self.agent.more["stream"] = stream
        response, answer = await post(self.client, proxy.url + speech.path, self.agent.write(), **speech.headers)
        assert response.status == 200, answer
        self.id = response.headers["x-trimtab-request-id"]
        calls = self.agent.hear(answer, is_stream=stream)
        if calls:
            self.agent.answer({one: write_file(str(turn.calls[0])) for one in calls})
        else:
            self.agent.say(f"Go on behind day {self.model.played}.")
        await settle(proxy)

    def find_notes(self) -> list[list[Wire]]:
        """The provider's notes in each request that it got, which are valid: the strict model reads them."""
        return [_list_notes(recorded.json) for recorded in self.sent]


def _list_notes(body: Wire) -> list[Wire]:
    if "input" in body:
        return [item for item in body["input"] if item.get("type") == "compaction"]
    return [block for one in body["messages"] for block in blocks_of(one) if block["type"] == "compaction"]


def write_file(name: str) -> str:
    return "\n".join(f"{name}, line {line}: {WORDS}" for line in range(30))


Open = Callable[..., Session]


@pytest.fixture
def open_session(client: Any, upstream: FakeUpstream) -> Open:
    """A function that makes a session with the compacting model behind the fake upstream."""

    def open_one(speech: Speech, *, thinks: bool = False, **more: Any) -> Session:
        model = CompactingModel(make_script(thinks=thinks))
        session = Session(client, model, Agent(speech, thinks=thinks, more={"model": MODEL, **more}))
        upstream.answer = session.receive
        session.agent.say("Read all logs of the harbour, and tell why the clearance is wrong.")
        return session

    return open_one


async def finish(session: Session, proxy: Proxy, **how: Any) -> None:
    while session.model.played < len(session.model.turns):
        await session.play(proxy, **how)


def check(session: Session) -> int:
    """Everything that was sent was valid. Returns how many requests had a note."""
    assert session.model.invalid == []
    assert session.model.mismatched == []
    assert session.model.wrong == []
    return sum(map(bool, session.find_notes()))


@each_speech
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_the_note_stands_for_what_was_cut(speech, stream, open_session, start_proxy) -> None:
    """Several cuts: each note is asked for behind the one before, and replaces it. No question of ours is asked."""
    session = open_session(speech)
    session.model.streams_notes = stream
    proxy = await start_proxy(*SETTINGS)
    await finish(session, proxy, stream=stream)

    assert check(session) >= 3
    assert len(session.model.compacted) >= 2
    assert session.questions == []
    assert all(len(notes) <= 1 for notes in session.find_notes())
    changed = [at for at in range(1, len(session.sent)) if not _continues(session.sent[at - 1], session.sent[at])]
    notes = [_seal_of(notes) for notes in session.find_notes()]
    assert changed == [at for at in range(1, len(notes)) if notes[at] != notes[at - 1]]


def _continues(before: Recorded, after: Recorded) -> bool:
    """Whether what was forwarded stays at the beginning of the next request, byte for byte."""
    member = "input" if "input" in before.json else "messages"
    listed = [orjson.dumps(_unmark(element)) for element in before.json[member]]
    return [orjson.dumps(_unmark(element)) for element in after.json[member]][: len(listed)] == listed


def _unmark(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _unmark(one) for name, one in value.items() if name != "cache_control"}
    return [_unmark(one) for one in value] if isinstance(value, list) else value


def _seal_of(notes: list[Wire]) -> str:
    return (notes[0].get("signature") or notes[0]["encrypted_content"]) if notes else ""


async def test_thinking_behind_the_cut_stays_valid(open_session, start_proxy) -> None:
    """The model binds its thinking to what is before it. With the note of its provider, none is dropped."""
    session = open_session(MESSAGES, thinks=True)
    proxy = await start_proxy(*SETTINGS)
    await finish(session, proxy)
    assert check(session) >= 3
    assert max(session.model.dropped) == 0


async def test_the_beta_goes_with_the_note_and_with_nothing_else(open_session, start_proxy) -> None:
    """Beside the client's own."""
    session = open_session(MESSAGES)
    proxy = await start_proxy(*SETTINGS)
    session.agent.speech = replace(MESSAGES, headers={**MESSAGES.headers, "anthropic-beta": "own-2026-01-01"})
    await finish(session, proxy)
    assert check(session) >= 3
    for recorded, notes in zip(session.sent, session.find_notes(), strict=True):
        betas = ",".join(recorded.header("anthropic-beta")).replace(" ", "").split(",")
        assert betas == (["own-2026-01-01", BETA] if notes else ["own-2026-01-01"])


@each_speech
async def test_its_cost_is_a_summarys(speech, open_session, start_proxy, log) -> None:
    """Anthropic's is in the iterations of its usage."""
    session = open_session(speech)
    proxy = await start_proxy(*SETTINGS)
    await finish(session, proxy)
    spent = proxy.services.recorder.metrics.summary_tokens
    asked = len(session.model.compacted)
    assert asked >= 2
    assert {kind: spent[labels] for labels in spent if (kind := labels[1])} == {
        "prompt": asked * PROMPT_TOKENS,
        "completion": asked * NOTE_TOKENS,
    }
    calls = [line for line in log.lines if line["event"] == "summary"]
    assert {(line["form"], line["result"], line["cached_tokens"]) for line in calls} == {
        ("provider", "written", CACHED_TOKENS)
    }


@pytest.mark.parametrize(("speech", "told"), [(MESSAGES, "the clearance was 9 metres"), (RESPONSES, OPAQUE)], ids=str)
async def test_what_is_kept_of_a_request_shows_what_can_be_read_of_its_note(
    speech, told, open_session, start_proxy, log
) -> None:
    """And its tokens are the summary's."""
    session = open_session(speech)
    proxy = await start_proxy(*SETTINGS, "dashboard.keep_text=true")
    while not any(session.find_notes()):
        await session.play(proxy)
    past = proxy.services.past
    await past.settle()
    text = unpack_text(await past.read(partial(find_text, request_id=session.id)))
    assert told in text.summary
    assert any("A note of " in sentence for sentence in text.sentences)
    assert log.lines[-1]["sections"]["summary"]["sent"] > 10


Change = Callable[[Wire], Any]
HOSTILE: dict[str, Change] = {
    "without": lambda answer: {**answer, "content": [], "output": [], "stop_reason": "refusal"},
    "cut": lambda answer: {**answer, "content": [], "output": [], "stop_reason": "max_tokens"},
    "huge": lambda answer: _repack(answer, "x " * 20_000),
    "blank": lambda answer: _repack(answer, ""),
    "number": lambda answer: _repack(answer, 7),
    "two": lambda answer: {**answer, "content": answer.get("content", []) * 2, "output": answer.get("output", []) * 2},
    "a call": lambda answer: {
        **answer,
        "content": [{"type": "tool_use", "id": "t", "name": NAME, "input": {}}],
        "output": [
            *answer.get("output", []),
            {"type": "function_call", "call_id": "c", "name": NAME, "arguments": "{}"},
        ],
    },
    "wrong types": lambda answer: {**answer, "content": {"a": 1}, "output": "x", "usage": [1]},
    "a list": lambda _: [1, 2],
    "404": lambda _: answer_without_notes(404),
    "400": lambda _: answer_without_notes(400),
    "429": lambda _: fault(429, "rate_limit_error", "later"),
    "529": lambda _: fault(529, "overloaded_error", "compaction_unavailable"),
    "no json": lambda _: web.Response(body=b"\xff\xfe<html>"),
}


def _repack(answer: Wire, told: Any) -> Wire:
    block = {"type": "compaction", "content": told, "signature": told, "encrypted_content": told}
    return {**answer, "content": [block], "output": [{**block, "id": "cmp"}]}


@pytest.mark.parametrize(("name", "speech"), list(zip(HOSTILE, cycle((MESSAGES, RESPONSES)), strict=False)), ids=str)
async def test_whatever_the_provider_answers_a_text_of_ours_stands_there(
    speech, name, open_session, start_proxy
) -> None:
    """An answer without a note, a refusal, and hostile ones."""
    session = open_session(speech)
    session.model.change = HOSTILE[name]
    proxy = await start_proxy(*SETTINGS, "defaults.summary.timeout_seconds=3", "defaults.summary.wait_seconds=0")
    await finish(session, proxy)
    assert check(session) == 0
    assert session.model.compacted
    assert any(b"earlier messages" in recorded.body for recorded in session.sent)
    if name in {"404", "400"}:
        assert len(session.model.compacted) == 1  # it is not asked again


@each_speech
async def test_a_note_that_is_refused_gives_way_to_a_digest(speech, open_session, start_proxy) -> None:
    """The client does not see it, and no further note is sent to this upstream."""
    session = open_session(speech)
    proxy = await start_proxy(*SETTINGS)
    while not any(session.find_notes()):
        await session.play(proxy)
    session.model.forgets = True
    await finish(session, proxy)
    assert len(session.model.wrong) == 1
    assert session.model.invalid == []
    assert not any(session.find_notes()[-2:])
    assert b"earlier messages" in session.sent[-1].body


@each_speech
async def test_a_refusal_that_only_quotes_such_words_leaves_the_note(
    speech, open_session, start_proxy, upstream
) -> None:
    """A digest does not help against it: the client gets the refusal, and the session keeps the provider's note."""
    session = open_session(speech)
    proxy = await start_proxy(*SETTINGS)
    while not any(session.find_notes()):
        await session.play(proxy)
    upstream.answer = lambda *_: asyncio.sleep(0, fault(400, "invalid_request_error", "no tool is named 'compaction'"))
    url, body = proxy.url + session.agent.speech.path, session.agent.write()
    response, _ = await post(session.client, url, body, **session.agent.speech.headers)
    assert response.status == 400
    upstream.answer = session.receive
    before = len(session.sent)
    await finish(session, proxy)
    assert all(session.find_notes()[before:])
    assert check(session)


async def test_chat_completions_get_a_summary_of_ours(open_session, start_proxy) -> None:
    """That dialect has no notes of a provider."""
    session = open_session(CHAT)
    proxy = await start_proxy(*SETTINGS)
    await finish(session, proxy)
    assert session.model.compacted == []
    assert session.questions
    assert any(b"SUMMARY: what was read so far" in recorded.body for recorded in session.sent)


async def test_a_client_that_compacts_itself_is_left_to_it(open_session, start_proxy) -> None:
    """Its requests ask for Anthropic's compaction at a threshold, which cannot be combined with a signed note."""
    session = open_session(MESSAGES, context_management={"edits": [{"type": "compact_20260112"}]})
    proxy = await start_proxy(*SETTINGS)
    await finish(session, proxy)
    assert session.model.compacted == []
    assert session.questions
    assert all(recorded.json["tools"] for recorded in session.questions)  # behind its conversation, as ever


Serve = Callable[[str], Any]
Played = Callable[[Session], Awaitable[list[bytes]]]


@each_speech
async def test_restarts_and_two_workers_replay_the_same_note(speech, open_session, serve, tmp_path) -> None:
    """The note is in the store like any summary: the session goes on as if one process had served it."""
    store = f"store=sqlite:///{tmp_path}/notes.sqlite3"
    session = open_session(speech)
    for turn in range(STEPS):
        async with serve(store) as left, serve(store) as right:
            await session.play((left, right)[turn % 2])
    assert check(session) >= 3
    notes = [_seal_of(notes) for notes in session.find_notes()]
    changed = [at for at in range(1, len(notes)) if not _continues(session.sent[at - 1], session.sent[at])]
    assert changed == [at for at in range(1, len(notes)) if notes[at] != notes[at - 1]]
    assert len(session.model.compacted) == len(session.model.issued)
    assert len(set(notes) - {""}) >= 2


@each_speech
async def test_another_upstream_never_gets_the_note(speech, open_session, serve, upstream, tmp_path) -> None:
    """It might take the request, and know nothing of what was cut. Back at the first one, the note stands again."""
    store, session = f"store=sqlite:///{tmp_path}/notes.sqlite3", open_session(speech)
    async with serve(store) as proxy:
        while not any(session.find_notes()):
            await session.play(proxy)
    note, asked, agent = session.find_notes()[-1], [], session.agent

    async def answer(recorded: Recorded, _: Any) -> web.Response:
        asked.append(_list_notes(recorded.json))
        return answer_without_notes(404)

    upstream.answer, sent = answer, agent.write()
    for url in (upstream.url.replace("127.0.0.1", "localhost"), upstream.url):
        async with serve(store, f"upstream.base_url={url}") as proxy:
            await post(session.client, proxy.url + agent.speech.path, sent, **agent.speech.headers)
    assert not any(asked[:-1])
    assert asked[-1] == note
