"""Third-party clients see no difference between the proxy and the upstream, except that long sessions continue.

Each client runs in a separate process, through a relay that keeps what it sends.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from clients.dialects import DIALECTS
from clients.installed_clients import CLIENTS, DRIVERS, Client
from clients.interim import FAILURES, half_of, refuse_as, write_event
from clients.interim import DialectModel as ScriptedModel
from programs.processes import run_program
from support.wire_tap import WireTap
from upstreams.recording import Handler, Recorded
from upstreams.scripted import Call, Turn, refuse, refuse_flatly

Answers = list[dict[str, Any]]
Drive = Callable[..., Awaitable[Answers]]

KEY = "sk-of-the-client"
PARTS = 60
TURNS = (
    *(
        Turn(f"I read on from part {number}.", tuple(Call("read_part", {"number": number + at}) for at in range(3)))
        for number in range(0, PARTS, 3)
    ),
    Turn("Nothing is wrong in any of the parts."),
)
"""Turns with three calls each, then an answer."""
SMALL = ("defaults.context_window=8000", "defaults.completion_reserve=1000")

pytestmark = pytest.mark.parametrize("client_program", [client.parameter for client in CLIENTS])


@pytest.fixture
def drive(client_program: Client, tmp_path: Path) -> Drive:
    """A function that runs the client with jobs (`kind=model`) at a base URL. Returns one answer per job."""

    async def drive(url: str, *jobs: str) -> Answers:
        environment = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": KEY, **client_program.environment}
        command = (*client_program.command, *jobs)
        ended = await run_program(command, tmp_path, environment, directory=DRIVERS)
        assert ended.status == 0, ended.err
        answers = [orjson.loads(line) for line in ended.out.splitlines() if line.startswith("{")]
        assert len(answers) == len(jobs)
        return answers

    return drive


async def test_answers(drive, upstream, start_tapped):
    """Text and usage are the same as without the proxy, whole or streamed."""
    upstream.answer = ScriptedModel(()).answer
    tap = await start_tapped()
    direct = await drive(upstream.url, "complete=m", "stream=m")
    through = await drive(tap.url, "complete=m", "stream=m")
    assert through == direct
    for answer in through:
        assert (answer["error"], answer["text"]) == (None, "All good.")
        assert answer["prompt_tokens"] > 0
        assert answer["completion_tokens"] == 7
    assert [item.body for item in upstream.requests[2:]] == tap.bodies
    before, after = upstream.requests[:2], upstream.requests[2:]
    assert [(item.path, credentials_of(item)) for item in after] == [(item.path, credentials_of(item)) for item in before]


def credentials_of(recorded: Recorded) -> list[str]:
    """The values of the headers for credentials."""
    return [value for name in ("authorization", "api-key", "x-api-key") for value in recorded.header(name)]


def answer_as_named(dialect: str) -> Handler:
    """A handler that answers with the fault that the model's name says."""

    async def answer(recorded: Recorded, request: web.BaseRequest) -> web.StreamResponse:
        model = recorded.json["model"]
        if model.isdecimal():
            return refuse_as(dialect, int(model))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(half_of(dialect, model))
        if model == "broken":
            request.transport.abort()
            return response
        if model == "failing":
            await response.write(write_event(FAILURES[dialect]))
        await response.write_eof()
        return response

    return answer


FAULTS = ("complete=401", "stream=401", "complete=429", "stream=500", "stream=broken", "stream=failing", "stream=ended")


async def test_errors(drive, client_program, upstream, start_tapped):
    """The upstream's error responses and broken streams give the same errors as without the proxy."""
    upstream.answer = answer_as_named(client_program.dialect)
    direct = await drive(upstream.url, *FAULTS)
    through = await drive((await start_tapped()).url, *FAULTS)
    assert through == direct
    assert [answer.get("status") for answer in through[:4]] == [401, 401, 429, 500]
    assert all(answer["error"] for answer in through[:6])


def check_session(dialect: str, tap: WireTap, model: ScriptedModel) -> None:
    """Each request of the client was accepted once, in a valid form."""
    chats = [item for item in model.accepted if not item.asks_for_summary]
    assert len(chats) == len(tap.bodies) == len(TURNS)
    for original, sent in zip(tap.bodies, chats, strict=True):
        assert DIALECTS[dialect].check(original, sent.body) == []


@pytest.mark.parametrize("kind", ["read", "read-stream"])
async def test_a_session_of_several_windows(kind, drive, client_program, upstream, start_tapped, log):
    """All calls and answers arrive, forwarded requests are valid, and pruning and summaries took place."""
    model = ScriptedModel(TURNS)
    upstream.answer = model.answer
    tap = await start_tapped(*SMALL)
    (answer,) = await drive(tap.url, f"{kind}=m")
    assert (answer["error"], answer["text"]) == (None, TURNS[-1].text)
    assert answer["parts"] == list(range(PARTS))
    check_session(client_program.dialect, tap, model)
    lines = [line for line in log.lines if line["event"] == "request"]
    assert {"prune", "summarise"} <= {decision["rule"] for line in lines for decision in line["decisions"]}
    assert len(model.accepted[-1].body) < len(tap.bodies[-1]) / 3


@pytest.mark.parametrize(("kind", "refusal"), [("read", refuse_flatly), ("read-stream", refuse)])
async def test_overflow_is_not_seen(kind, refusal, drive, client_program, upstream, start_tapped):
    """The window is not configured. trimtab learns it from a refusal, and the client sees no refusal.

    While a summary is being written, a request that fits by our count may be refused again, because this model counts
    bytes.
    """
    model = ScriptedModel(TURNS, window_tokens=6000, refusal=refusal)
    upstream.answer = model.answer
    tap = await start_tapped()
    (answer,) = await drive(tap.url, f"{kind}=m")
    assert (answer["error"], answer["text"]) == (None, TURNS[-1].text)
    assert answer["parts"] == list(range(PARTS))
    assert 1 <= len([item for item in model.refused if not item.asks_for_summary]) <= 3
    check_session(client_program.dialect, tap, model)
