"""Third-party clients see no difference between the proxy and the upstream, except that long sessions continue.

Each client runs in a separate process, through a relay that keeps what it sends.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from clients.dialects import DIALECTS, Dialect
from clients.installed_clients import CLIENTS, DRIVERS, Client
from programs.processes import run_program
from upstreams.recording import FakeUpstream, Handler, Recorded
from upstreams.scripted import Call, Turn, refuse_flatly
from upstreams.strict import StrictModel

Answers = list[dict[str, Any]]
Drive = Callable[..., Awaitable[Answers]]

KEY = "sk-of-the-client"
PARTS = 24
TURNS = (
    *(
        Turn(
            f"I read on from part {number}.",
            tuple(Call("read_part", {"number": number + at}) for at in range(3)),
            thought=f"Part {number} was well, too.",
        )
        for number in range(0, PARTS, 3)
    ),
    Turn("Nothing is wrong in any of the parts."),
)
"""Turns with three calls each, then an answer."""
SMALL = ("defaults.context_window=9000", "defaults.completion_reserve=1000")
CREDENTIALS = ("authorization", "api-key", "x-api-key")

OTHER_FORMS = ("OPENAI_AZURE", "OPENAI_STORE")
"""Variables that change only paths, credentials, and what is stored: `test_answers` has them."""

EACH = pytest.mark.parametrize("client_program", [client.parameter for client in CLIENTS])
EACH_OF_ONE_FORM = pytest.mark.parametrize(
    "client_program", [one.parameter for one in CLIENTS if one.environment.keys().isdisjoint(OTHER_FORMS)]
)
HOLDING = pytest.mark.parametrize("client_program", [one.parameter for one in CLIENTS if "held" in one.jobs])


@pytest.fixture
def dialect(client_program: Client) -> Dialect:
    """The dialect that the client speaks."""
    return DIALECTS[client_program.dialect]


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


def answer_as_named(dialect: Dialect) -> Handler:
    """A handler that answers as the model's name says: with a fault, a structured answer or a plain one."""
    plain, berth = StrictModel(()), StrictModel((), plain='{"ship": "Maria", "number": 4}')

    async def answer(recorded: Recorded, request: web.BaseRequest) -> web.StreamResponse:
        model = recorded.json["model"]
        if model.isdecimal():
            return dialect.refuse(int(model))
        if model in {"m", "berth"}:
            return await (plain if model == "m" else berth).answer(recorded, request)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(dialect.beginning)
        if model == "broken":
            request.transport.abort()
            return response
        if model == "failing":
            await response.write(dialect.failure)
        await response.write_eof()
        return response

    return answer


GOOD = ("complete=m", "stream=m")
FAULTS = ("complete=401", "stream=401", "complete=429", "stream=500", "stream=broken", "stream=failing", "stream=ended")


@EACH
async def test_answers(drive, client_program, dialect, upstream, start_tapped):
    """Texts, usage, structured answers, errors and broken streams are the same as without the proxy."""
    upstream.answer = answer_as_named(dialect)
    jobs = (*GOOD, *(["parse=berth"] if "parse" in client_program.jobs else ()), *FAULTS)
    tap = await start_tapped()
    direct = await drive(upstream.url, *jobs)
    through = await drive(tap.url, *jobs)
    assert through == direct
    good, faults = through[: -len(FAULTS)], through[-len(FAULTS) :]
    assert [answer["error"] for answer in good] == [None] * len(good)
    for answer in good[:2]:
        assert (answer["text"], answer["completion_tokens"]) == ("All good.", 7)
        assert answer["prompt_tokens"] > 0
    assert [answer["parts"] for answer in good[2:]] == [[4]] * len(good[2:])
    assert [answer.get("status") for answer in faults[:4]] == [401, 401, 429, 500]
    assert all(answer["error"] for answer in faults[:6])
    before, after = upstream.requests[: len(tap.bodies)], upstream.requests[len(tap.bodies) :]
    assert [item.body for item in after] == tap.bodies
    assert [read_head(item) for item in after] == [read_head(item) for item in before]


def read_head(recorded: Recorded) -> tuple[str, list[str]]:
    """The path of a request, and its credentials."""
    return recorded.path, [value for name in CREDENTIALS for value in recorded.header(name)]


def play(upstream: FakeUpstream) -> dict[str, StrictModel]:
    """Play the session twice: for a client that reads whole responses, and for one that reads streams.

    The models have the names of the jobs.
    """
    models = {kind: StrictModel(TURNS) for kind in ("read", "read-stream")}

    async def answer(recorded: Recorded, request: web.BaseRequest) -> web.StreamResponse:
        return await models[recorded.json["model"]].answer(recorded, request)

    upstream.answer = answer
    return models


def check_session(dialect: Dialect, answer: dict[str, Any], originals: list[bytes], model: StrictModel) -> None:
    """The client got all calls and the last text. Each of its requests was accepted once, in a valid form."""
    assert (answer["error"], answer.get("text")) == (None, TURNS[-1].text)
    assert answer["parts"] == list(range(PARTS))
    sent = [item.body for item in model.accepted if not item.asks_for_summary]
    assert model.invalid == []
    assert len(sent) == len(originals) == len(TURNS)
    for original, forwarded in zip(originals, sent, strict=True):
        assert dialect.check(original, forwarded) == []


@EACH_OF_ONE_FORM
async def test_a_session_of_several_windows(drive, client_program, dialect, upstream, start_tapped, log):
    """All calls and answers arrive, and forwarded requests are valid; whether the window is configured or not.

    It is not for the streamed session: trimtab learns it from a refusal, which the client does not see. While a summary
    is being written, a request that fits by our count may be refused again, because this model counts bytes.
    """
    models = play(upstream)
    learned = models["read-stream"]
    learned.window_tokens = 9000
    learned.refusal = refuse_flatly if client_program.dialect == "chat" else None
    tap = await start_tapped("models=[{match: read, context_window: 9000, completion_reserve: 1000}]")
    answers = await drive(tap.url, *(f"{kind}={kind}" for kind in models))
    for (kind, model), answer in zip(models.items(), answers, strict=True):
        originals = tap.bodies_for(kind)
        check_session(dialect, answer, originals, model)
        lines = [line for line in log.lines if line["event"] == "request" and line["model"] == kind]
        assert {"prune", "summarise", "digest"} & {decision["rule"] for line in lines for decision in line["decisions"]}
        forwarded = [len(item.body) for item in model.accepted if not item.asks_for_summary]
        assert forwarded[-1] < len(originals[-1]) * 2 / 3
    assert 1 <= len([item for item in learned.refused if not item.asks_for_summary]) <= 3


RECALL = Call("trimtab_recall", {"query": "part 3", "range": [1, 40]})


def ask_beside(turns: Sequence[Turn]) -> Iterator[Turn]:
    """The turns of a model that also asks for what was cut: before some turns, and beside the calls of others."""
    for number, turn in enumerate(turns):
        if turn.calls and number % 3 == 0:
            yield Turn("I look it up. ", (RECALL,), thought="I have forgotten something.")
        yield replace(turn, calls=(*turn.calls, RECALL)) if turn.calls and number % 3 == 1 else turn


@EACH_OF_ONE_FORM
async def test_recall_is_not_seen(drive, upstream, start_tapped, log):
    """The model's calls of the tool are answered; the client gets the same calls and the same last text."""
    model = play(upstream)["read-stream"]
    model.turns = tuple(ask_beside(TURNS))
    tap = await start_tapped(*SMALL, "defaults.recall=tool")
    (answer,) = await drive(tap.url, "read-stream=read-stream")
    assert (answer["error"], answer.get("text")) == (None, TURNS[-1].text)
    assert answer["parts"] == list(range(PARTS))
    assert model.invalid == []
    assert len(tap.bodies) == len(TURNS)
    assert any(b"trimtab_recall(" in sent.body and b"Message " in sent.body for sent in model.accepted)
    # A client that refers to what the server holds names the item, and sends no text of it.
    assert all(b"I look it up" in body or b'"item_reference","id":"msg_1"' in body for body in tap.bodies[2:])
    assert not [line for line in log.lines if line["event"] == "fail_open"]


@HOLDING
async def test_what_the_server_holds_is_left_alone(drive, upstream, start_tapped):
    """A client that sends only what is new gets every answer, and its requests are forwarded as they are."""
    model = StrictModel(TURNS)
    upstream.answer = model.answer
    tap = await start_tapped(*SMALL)
    (answer,) = await drive(tap.url, "held=m")
    assert (answer["error"], answer["text"]) == (None, TURNS[-1].text)
    assert answer["parts"] == list(range(PARTS))
    assert [item.body for item in model.accepted] == tap.bodies
    assert len(tap.bodies) == len(TURNS)
