"""Sessions with thinking that the model binds to what is before it, as Anthropic's newest models do.

Law: no request is refused. That thinking may be dropped is asked for from the first request on that sends something
otherwise than an earlier one did, and from then on always; never before. What the model thinks after a change is never
dropped until the next one.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import aiohttp
import orjson
import pytest
from support.client import post, settle
from support.dialects.agents import MESSAGES, NAME, Agent, Wire
from support.dialects.messages_validity import blocks_of, check_body
from upstreams.binding import BETA, MISMATCH, BindingModel
from upstreams.recording import Recorded, error
from upstreams.scripted import Call, Turn
from upstreams.speech.messages import refuse

from trimtab.proxy.models.hypotheses import FIRST_TEST
from trimtab.proxy.server.app import Proxy

MODEL = "claude-sonnet-5-5"
STEPS, WINDOW = 26, 16_000
PATH, COUNT = "/v1/messages", "/v1/messages/count_tokens"
SMALL = (
    f"defaults.context_window={WINDOW}",
    "defaults.completion_reserve=2000",
    "defaults.max_tool_result_tokens=1500",
    "defaults.pin_instruction=true",
)
LARGE = ("defaults.context_window=400000", "defaults.max_tool_result_tokens=3500", "defaults.pin_instruction=true")
WORDS = "the harbour pilot sounded nine metres of water at low tide near the north quay and wrote it down"


def make_script(steps: int = STEPS) -> list[Turn]:
    """One call or two in a step, and each seventh turn the user must speak."""
    turns = []
    for step in range(steps):
        count = 0 if step % 7 == 6 else 1 + step % 2
        calls = tuple(Call(NAME, {"path": f"logs/day_{step}_{rank}.md"}) for rank in range(count))
        turns.append(Turn(f"Day {step}.", calls, f"Day {step} may tell why the clearance is wrong."))
    return turns


def write_file(name: str, number: int) -> str:
    """A result; each fourth is so long that it is truncated, and each fifth is the same as others."""
    lines = 250 if number % 4 == 1 else 30
    name = "the same file" if number % 5 == 4 else name
    return "\n".join(f"{name}, line {line}: {WORDS}" for line in range(lines))


@dataclass
class Session:
    """A client's session. `sent`: the requests of it that the upstream got and accepted."""

    proxy: Proxy
    client: aiohttp.ClientSession
    model: BindingModel
    agent: Agent
    fails_summaries: bool = False
    sent: list[Recorded] = field(default_factory=list)
    summaries: list[int] = field(default_factory=list)

    async def receive(self, recorded: Recorded, request: Any) -> Any:
        """The upstream's answer."""
        if recorded.asks_for_summary and self.fails_summaries:
            return error(500, message="overloaded")
        answer = await self.model.answer(recorded, request)
        if recorded.asks_for_summary:
            self.summaries.append(answer.status)
        elif answer.status == 200 and recorded.path.endswith("/messages"):
            self.sent.append(recorded)
        return answer

    async def play(self, *, stream: bool = False, **headers: str) -> None:
        """One turn of the script."""
        turn = self.model.turns[self.model.played]
        self.agent.more["stream"] = stream
        await self.ask_count()
        answer = await self.send(PATH, **headers)
        calls = self.agent.hear(answer, is_stream=stream)
        played = self.model.played
        if not calls:
            self.agent.say(f"Go on behind day {played}.")
        else:
            names = [str(call) for call in turn.calls]
            self.agent.answer({one: write_file(name, played) for one, name in zip(calls, names, strict=True)})
        await settle(self.proxy)

    async def send(self, path: str, **headers: str) -> bytes:
        """Send the transcript. It is not refused."""
        body = self.agent.write()
        response, answer = await post(self.client, self.proxy.url + path, body, **MESSAGES.headers, **headers)
        assert response.status == 200, answer
        return answer

    async def ask_count(self) -> None:
        """Ask how long the prompt is."""
        change, self.agent.change = self.agent.change, _to_count
        await self.send(COUNT)
        self.agent.change = change

    def check(self) -> list[bool]:
        """Nothing was refused, and it was asked for what was needed, and no more. Returns what was asked for."""
        assert self.model.mismatched == []
        assert self.model.invalid == []
        assert len(self.model.asked) == len(self.sent)
        changes = find_changes(self.sent)
        assert self.model.asked == [any(changes[: at + 1]) for at in range(len(changes))]
        dropped = self.model.dropped
        assert all(changes[at] or dropped[at] == dropped[at - 1] for at in range(1, len(changes)))
        assert all(status == 200 for status in self.summaries)
        for recorded, asked in zip(self.sent, self.model.asked, strict=True):
            assert (BETA in str(recorded.header("anthropic-beta"))) is asked
            assert check_body(recorded.json) == []
        return self.model.asked


def _to_count(body: Wire) -> Wire:
    return {name: value for name, value in body.items() if name not in {"max_tokens", "stream"}}


def find_changes(sent: list[Recorded]) -> list[bool]:
    """For each request, whether it sends something otherwise than the request before it."""
    bodies = [_read_told(recorded) for recorded in sent]
    return [False, *(after[: len(before)] != before for before, after in pairwise(bodies))]


def _read_told(recorded: Recorded) -> list[Any]:
    body = recorded.json
    return [body.get("system"), body.get("tools"), *((one["role"], blocks_of(one)) for one in body["messages"])]


@pytest.fixture
def open_session(start_proxy, client, upstream):
    """A function that starts a proxy with settings, and a session through it."""

    async def open_one(*settings: str, window: int | None = None, thinking: Wire | None = None) -> Session:
        proxy = await start_proxy(*settings)
        agent = Agent(MESSAGES, more={"model": MODEL} | ({} if thinking is None else {"thinking": thinking}))
        session = Session(proxy, client, BindingModel(make_script(), window), agent)
        upstream.answer = session.receive
        agent.say("Read all logs of the harbour, and tell why the clearance is wrong.")
        return session

    return open_one


async def finish(session: Session, **how: Any) -> None:
    while session.model.played < len(session.model.turns):
        await session.play(**how)


@pytest.mark.parametrize(("strategy", "stream"), [("auto_compact", True), ("summarize", False), ("prune", True)])
async def test_cuts_and_prunes(strategy, stream, open_session):
    """From the first on, thinking that no longer fits may be dropped."""
    session = await open_session(*SMALL, f"defaults.overflow_strategy={strategy}")
    await finish(session, stream=stream)

    asked = session.check()
    assert asked[-1]
    assert not asked[0]
    assert max(session.model.dropped) > 0


async def test_digests(open_session):
    """The upstream writes no summary."""
    session = await open_session(*SMALL)
    session.fails_summaries = True
    await finish(session)
    assert session.check()[-1]


async def test_counts_of_requests_that_ask_for_long_completions(open_session):
    """A count names no limit of the completion, so it is cut later than the request, whose cut is in effect."""
    session = await open_session(*SMALL)
    session.agent.more["max_tokens"] = 7000
    await finish(session)
    assert session.check()[-1]


async def test_a_limit_that_is_tested_again(open_session):
    """What was learned is tested by a request without its cut. The model has given its answers behind the cut."""
    session = await open_session("defaults.completion_reserve=2000", "defaults.high_water=0.9", window=WINDOW)
    session.model.refusal = lambda *_: refuse("prompt is too long")
    session.model.turns = make_script(14 + 2 * FIRST_TEST)
    for _ in range(14):
        await session.play()
    session.model.refused.clear()
    for _ in range(2 * FIRST_TEST):
        await session.send(PATH)
        await session.proxy.services.models.settle()
    assert len([one for one in session.model.refused if not one.asks_for_summary]) == 1
    assert session.model.mismatched == []


async def test_a_client_that_compacts_a_session_with_truncated_results(open_session):
    """Its request passes unchanged, but the model has given its answers behind truncated results."""
    session = await open_session(*LARGE)
    for _ in range(6):
        await session.play()
    session.agent.elements.append(
        {"role": "user", "content": "Your task is to create a detailed summary of the conversation so far."}
    )
    before = session.agent.write()
    answer = await session.send(PATH)
    assert answer
    assert session.model.asked[-1]
    assert session.model.mismatched == []
    assert session.sent[-1].json["messages"] == orjson.loads(before)["messages"]


async def test_the_clients_own_setting_and_its_refusal(open_session, client):
    """A client that wants the error gets it, word by word, and nothing is sent a second time."""
    session = await open_session(*SMALL, thinking={"type": "adaptive", "block_binding": {}})
    own = {"prefix_mismatch_behavior": "error"}
    session.agent.more["thinking"] = {"type": "adaptive", "block_binding": own}
    while True:
        body = session.agent.write()
        headers = {**MESSAGES.headers, "anthropic-beta": BETA}
        response, answer = await post(client, session.proxy.url + PATH, body, **headers)
        if response.status == 400:
            break
        calls = session.agent.hear(answer, is_stream=False)
        names = [str(one) for one in session.model.turns[session.model.played - 1].calls]
        session.agent.answer({one: write_file(name, 1) for one, name in zip(calls, names, strict=True)})
        await settle(session.proxy)
    assert MISMATCH in orjson.loads(answer)["error"]["message"]
    assert len(session.model.mismatched) == 1
    assert session.model.mismatched[0].json["thinking"]["block_binding"] == own


async def test_a_session_that_began_without_trimtab(open_session, start_proxy):
    """The first request is refused for what trimtab changes. The client does not see it, and later ones ask at once."""
    session = await open_session("defaults.mode=off")
    for _ in range(6):
        await session.play()
    session.proxy = await start_proxy(*LARGE)
    for _ in range(4):
        await session.play()
    assert [one.path for one in session.model.mismatched] == [COUNT]
    assert session.model.asked == [False] * 6 + [True] * 4
    assert [one.asks_for_summary for one in session.model.mismatched] == [False]


@pytest.mark.parametrize(("result_tokens", "refused"), [(100_000, 1), (3500, 2)])
async def test_a_client_that_changes_its_own_transcript(result_tokens, refused, open_session, client):
    """The refusal is the client's. If trimtab has changed the transcript, too, its own bytes are tried."""
    session = await open_session("defaults.context_window=400000", f"defaults.max_tool_result_tokens={result_tokens}")
    for _ in range(2):
        await session.play()
    session.agent.elements[0] = {"role": "user", "content": "Another task."}
    response, answer = await post(client, session.proxy.url + PATH, session.agent.write(), **MESSAGES.headers)
    assert response.status == 400
    assert MISMATCH in orjson.loads(answer)["error"]["message"]
    assert len(session.model.mismatched) == refused


async def test_an_upstream_that_does_not_know_the_setting(open_session):
    """The client does not see that it is refused, and it is not sent again. Questions for summaries go without, too."""
    session = await open_session(*SMALL)
    session.model.binds = session.model.knows_setting = False
    await finish(session)
    assert not any(session.model.asked)
    assert len(session.model.unknown) == 1
    assert any(find_changes(session.sent))
    assert all(status == 200 for status in session.summaries)


async def test_an_upstream_that_refuses_the_setting_and_what_it_is_for(open_session, client):
    """The refusal of the thinking is the client's."""
    session = await open_session(*SMALL)
    session.model.knows_setting = False
    while not session.model.unknown:
        body = session.agent.write()
        response, answer = await post(client, session.proxy.url + PATH, body, **MESSAGES.headers)
        if response.status == 200:
            calls = session.agent.hear(answer, is_stream=False)
            session.agent.answer({one: write_file(one, 1) for one in calls})
            await settle(session.proxy)
    assert response.status == 400
    assert MISMATCH in orjson.loads(answer)["error"]["message"]
    assert len(session.model.mismatched) == 1
