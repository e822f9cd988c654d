"""An agent's session several windows long, in each dialect, through the proxy to an upstream that is strict.

Law: the client sees no refusal. Each forwarded body is valid, and contains what it must of the client's.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

import aiohttp
import orjson
import pytest
from aiohttp import web
from support.client import SMALL, post, settle
from support.dialects.agents import MESSAGES, NAME, RESPONSES, SPEECHES, Agent, Speech, Wire, read_response
from support.model_learning import ListLog
from upstreams.recording import FakeUpstream, Recorded, error
from upstreams.scripted import Call, Turn
from upstreams.strict import BYTES_PER_TOKEN, DIALECTS, StrictModel

from proxy.server.app import Proxy

STEPS = 42
WINDOW = 8000
"""As in SMALL."""
WINDOWS = 3
"""The session is at least this many windows long."""
WORDS = (
    "the harbour depth of water pilot sounded at low tide metres keel clearance draught anchor buoy channel current "
    "wind from north east south west mooring line quay berth crane cargo manifest lighter tug fog signal lamp"
).split()
RESULT_WORDS = 450
LONG_WORDS = 2600
"""Words of a result that is truncated."""

each_speech = pytest.mark.parametrize("speech", SPEECHES, ids=str)
each_form = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


def make_script(*, thinks: bool = False) -> list[Turn]:
    """Mostly one call; each fourth turn has three; each ninth has none, and the user must speak."""
    turns = []
    for step in range(STEPS):
        count = 0 if step % 9 == 8 else 3 if step % 4 == 3 else 1
        calls = tuple(Call(NAME, {"path": f"logs/day_{step}_{rank}.md"}) for rank in range(count))
        text = f"I read the logs of day {step}." if calls else f"The logs up to day {step} are read."
        turns.append(Turn(text, calls, f"Day {step} may tell why the clearance is wrong." if thinks else ""))
    return [*turns, Turn("Everything is read.")]


def write_result(name: str) -> str:
    """The contents of a file: the same for the same name."""
    random = Random(name)  # noqa: S311 - not for security
    count = LONG_WORDS if random.random() < 0.05 else RESULT_WORDS
    lines = (" ".join(random.choices(WORDS, k=10)) for _ in range(count // 10))
    return f"{name}\n" + "\n".join(f"{number}: {line}" for number, line in enumerate(lines))


@dataclass
class Session:
    """An agent that talks through the proxy to the strict model.

    problems: of all forwarded bodies.
    outcomes: the value of `x-trimtab-outcome` for each request.
    original: the body that the client sent last.
    """

    proxy: Proxy
    client: aiohttp.ClientSession
    model: StrictModel
    agent: Agent
    problems: list[str] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)
    original: bytes = b""
    fails_summaries: bool = False

    async def receive(self, recorded: Recorded, request: web.BaseRequest) -> web.StreamResponse:
        """The upstream's answer. The body is checked first."""
        if recorded.asks_for_summary:
            return error(500, message="overloaded") if self.fails_summaries else await self.model.answer(recorded, request)
        if recorded.path.endswith(self.agent.speech.path):
            self.problems += self.agent.speech.check(self.original, recorded.body)
        return await self.model.answer(recorded, request)

    async def finish(self, *, stream: bool) -> None:
        """Play all turns of the model's script. The client does what it is told, and says more if nothing is left."""
        self.agent.say("Read all logs of the harbour, and tell why the clearance is wrong.")
        while self.model.played < len(self.model.turns):
            await self.play(stream=stream)

    async def play(self, *, stream: bool) -> bytes:
        """One turn. Returns the upstream's answer."""
        turn = self.model.turns[self.model.played]
        self.agent.more["stream"] = stream
        self.original = self.agent.write()
        path, headers = self.agent.speech.path, self.agent.speech.headers
        response, answer = await post(self.client, self.proxy.url + path, self.original, **headers)
        assert response.status == 200, answer
        self.outcomes.append(response.headers["x-trimtab-outcome"])
        calls = self.agent.hear(answer, is_stream=stream)
        assert len(calls) == len(turn.calls)
        assert turn.text in orjson.dumps(self.agent.elements[-len(calls) - 1 :]).decode()
        if calls:
            self.agent.answer({one: write_result(str(call)) for one, call in zip(calls, turn.calls, strict=True)})
        else:
            self.agent.say(f"Go on behind what you have read: {write_result(turn.text)[:200]}")
        await settle(self.proxy)
        return answer

    def check(self) -> None:
        """The session is over, nothing that the upstream got was invalid, and the transcript was long."""
        assert self.problems == []
        assert self.model.invalid == []
        assert self.model.played == len(self.model.turns)

    def count_windows(self) -> float:
        """How many windows the transcript fills."""
        prompt = DIALECTS[self.agent.speech.path.removeprefix("/v1")].read_prompt(orjson.loads(self.original))
        return len(prompt) / BYTES_PER_TOKEN / WINDOW
