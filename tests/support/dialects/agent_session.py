"""An agent that talks through the proxy to a scripted model, turn by turn, and sees no refusal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

import aiohttp
from aiohttp import web
from support.client import post, settle
from support.dialects.agents import NAME, Agent
from upstreams.recording import Recorded, error
from upstreams.scripted import Call, Turn
from upstreams.strict import StrictModel

from trimtab.proxy.server.app import Proxy

WORDS = (
    "the harbour depth of water pilot sounded at low tide metres keel clearance draught anchor buoy channel current"
    " wind from north east south west mooring line quay berth crane cargo manifest lighter tug fog signal lamp"
)


def make_script(steps: int, *, thinks: bool = False, counts: Sequence[int] = (1, 2, 1, 3)) -> list[Turn]:
    """So many calls in a step, by turns; each seventh turn has none, and the user must speak."""
    turns = []
    for step in range(steps):
        count = 0 if step % 7 == 6 else counts[step % len(counts)]
        calls = tuple(Call(NAME, {"path": f"logs/day_{step}_{rank}.md"}) for rank in range(count))
        turns.append(Turn(f"Day {step}.", calls, f"Day {step} may tell why the clearance is wrong." if thinks else ""))
    return turns


def write_file(name: str) -> str:
    """The contents of a file, the same for the same name: some are long, and some are those of another one."""
    kind = Random(name).random()  # noqa: S311 - not for security
    random = Random("the same" if kind < 0.1 else name)  # noqa: S311 - not for security
    lines = (" ".join(random.choices(WORDS.split(), k=10)) for _ in range(260 if kind > 0.93 else 50))
    return "\n".join(f"{number}: {line}" for number, line in enumerate(lines))


@dataclass
class AgentSession:
    """An agent's session.

    original: the body that the agent sent last. headers: of the answer to it.
    sent: the requests of the agent that the model accepted, each with what the agent had sent.
    questions: the statuses of the answers to questions for summaries.
    """

    proxy: Proxy
    client: aiohttp.ClientSession
    model: StrictModel
    agent: Agent
    fails_summaries: bool = False
    original: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    sent: list[tuple[bytes, Recorded]] = field(default_factory=list)
    questions: list[int] = field(default_factory=list)

    async def receive(self, recorded: Recorded, request: web.BaseRequest) -> web.StreamResponse:
        """The upstream's answer."""
        if recorded.asks_for_summary and self.fails_summaries:
            return error(500, message="overloaded")
        answer, path = await self.model.answer(recorded, request), self.agent.speech.path
        asks_for_note = "compaction" in recorded.json  # by the provider
        if recorded.asks_for_summary:
            self.questions.append(answer.status)
        elif answer.status == 200 and recorded.path.endswith(path) and not asks_for_note:
            self.sent.append((self.original, recorded))
        return answer

    async def finish(self, *, stream: bool = False) -> None:
        """Play all turns of the model's script."""
        while self.model.played < len(self.model.turns):
            await self.play(stream=stream)

    async def play(self, *, stream: bool = False) -> bytes:
        """One turn: the agent does what it is told, and says more if nothing is left. Returns the answer."""
        turn = self.model.turns[self.model.played]
        self.agent.more["stream"] = stream
        answer = await self.send(self.agent.speech.path)
        calls = self.agent.hear(answer, is_stream=stream)
        if turn.calls:
            self.agent.answer({one: write_file(str(call)) for one, call in zip(calls, turn.calls, strict=True)})
        else:
            self.agent.say(f"Go on behind turn {self.model.played}.")
        await settle(self.proxy)
        return answer

    async def send(self, path: str) -> bytes:
        """Send the transcript. It is not refused."""
        self.original = self.agent.write()
        response, answer = await post(self.client, self.proxy.url + path, self.original, **self.agent.speech.headers)
        assert response.status == 200, answer
        self.headers = response.headers
        return answer
