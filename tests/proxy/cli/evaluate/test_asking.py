"""Asking a model over real sockets, at servers that behave well and badly."""

import asyncio
from collections.abc import AsyncIterator
from email.utils import formatdate

import orjson
import pytest
from aiohttp import web
from multidict import CIMultiDict
from upstreams.examinee import Examinee, read_text, write_question
from upstreams.recording import FakeUpstream, Recorded, completion, error
from upstreams.scripted import refuse

from trimtab.proxy.cli.evaluate.asking import (
    BUSY_ATTEMPTS,
    THINKING_TOKENS,
    Asker,
    AskError,
    Calls,
    Examiner,
    find_delay,
)
from trimtab.proxy.cli.evaluate.exam import ExamQuestion, Part, find_removed, split_removed
from trimtab.proxy.cli.evaluate.rehearsal import Arm, Rehearsal, Tokens, make_arm
from trimtab.proxy.cli.options import StoppedError
from trimtab.proxy.config.schema import UpstreamConfig
from trimtab.proxy.http.client import UpstreamClient

pytestmark = pytest.mark.covered


class Pauses:
    """Does not wait, and records the seconds."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


@pytest.fixture
async def asker(upstream: FakeUpstream, pauses: Pauses) -> AsyncIterator[Asker]:
    config = UpstreamConfig(base_url=upstream.url)
    client = UpstreamClient()
    calls = Calls(client, len, Tokens(), timeout_seconds=20, pause=pauses)
    yield Asker(config, "m", [("Authorization", "Bearer secret")], calls)
    await client.close()


def _answer_in_turn(upstream: FakeUpstream, *answers: web.Response) -> None:
    left = list(answers)

    async def answer(_recorded: Recorded, _request: web.BaseRequest) -> web.Response:
        return left.pop(0) if left else completion("in the end")

    upstream.answer = answer


def _spent(asker: Asker) -> Tokens:
    return asker._calls.spent


async def test_a_question_is_one_message_with_the_users_key(upstream: FakeUpstream, asker: Asker) -> None:
    """The tokens are those that the upstream reports, or else as we count."""
    _answer_in_turn(upstream, completion("8443", prompt_tokens=12, completion_tokens=3), completion("8443"))
    assert await asker.ask("Which port?", max_tokens=50) == "8443"
    (asked,) = upstream.requests
    messages = [{"role": "user", "content": "Which port?"}]
    assert asked.json == {"model": "m", "messages": messages, "temperature": 0.0, "max_tokens": 50, "stream": False}
    assert asked.header("Authorization") == ["Bearer secret"]
    assert _spent(asker) == Tokens(1, 12, 3)
    await asker.ask("Which port?", max_tokens=50)
    assert _spent(asker) == Tokens(2, 12 + len("Which port?"), 3 + 4)


async def test_a_busy_server_is_asked_again_when_it_says(upstream: FakeUpstream, asker: Asker, pauses: Pauses) -> None:
    """`Retry-After` gives seconds or a date. Without it, the first pause is one second; each further one is doubled."""
    busy = [web.Response(status=429, headers={"Retry-After": "7"}), web.Response(status=503)]
    busy.append(web.Response(status=529, headers={"Retry-After": formatdate(0, usegmt=True)}))
    _answer_in_turn(upstream, *busy, completion("8443"))
    assert await asker.ask("Which port?", max_tokens=50) == "8443"
    assert pauses.seconds == [7, 2, 0]
    assert len(upstream.requests) == 4


PAUSES = (
    (429, "0.5", 3, 0.5), (429, None, 3, 8), (429, None, BUSY_ATTEMPTS - 1, None), (429, "3600", 0, None),
    (429, "-1", 0, 1), (429, "soon", 0, 1), (500, "5", 0, None),
)  # fmt: skip


def test_a_pause_is_bounded() -> None:
    """A server is not asked again if it names a pause that is too long. An invalid one is none."""
    for status, retry_after, attempt, seconds in PAUSES:
        headers = CIMultiDict({} if retry_after is None else {"Retry-After": retry_after})
        assert find_delay(status, headers, attempt) == seconds


@pytest.mark.parametrize(
    ("status", "told"),
    [(401, "--api-key-env"), (403, "another key"), (404, "no model m"), (429, "keeps answering 429")],
)
async def test_what_every_question_would_meet_ends_the_run(
    upstream: FakeUpstream, asker: Asker, status: int, told: str
) -> None:
    """The message says what to do. It quotes neither the key nor the server."""
    answers = (error(status, message="Incorrect API key: secret", type="x", code="y") for _ in range(BUSY_ATTEMPTS))
    _answer_in_turn(upstream, *answers)
    with pytest.raises(StoppedError, match=told) as caught:
        await asker.ask("Which port?", max_tokens=50)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "answer",
    [
        lambda: web.Response(text="<html>"),
        lambda: web.Response(text="[]"),
        lambda: web.Response(body=b"\xff\xfe"),
        lambda: web.Response(status=500),
        lambda: web.Response(status=400, text='{"error": {"message": "no", "param": "messages"}}'),
        lambda: web.Response(body=b"x" * (5 * 1024 * 1024)),
    ],
)
async def test_an_answer_that_is_none_costs_one_question(upstream: FakeUpstream, asker: Asker, answer) -> None:
    """Other questions may be answered, so the run goes on."""
    _answer_in_turn(upstream, answer())
    with pytest.raises(AskError) as caught:
        await asker.ask("Which port?", max_tokens=50)
    assert type(caught.value) is AskError
    assert await asker.ask("Which port?", max_tokens=50) == "in the end"


async def test_an_answer_that_takes_too_long_costs_one_question(upstream: FakeUpstream, asker: Asker) -> None:
    async def hang(_: Recorded, __: web.BaseRequest) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    upstream.answer = hang
    calls = asker._calls
    hasty = Asker(asker._upstream, "m", [], Calls(calls.client, len, Tokens(), timeout_seconds=0.05))
    with pytest.raises(AskError, match=r"no answer within 0\.05 seconds"):
        await hasty.ask("Which port?", max_tokens=50)


async def test_parameters_that_are_refused_are_left_out_from_then_on(upstream: FakeUpstream, asker: Asker) -> None:
    """Reasoning models accept no temperature, and have another name for the completion's maximum."""
    refused = [
        error(400, message="no", type="invalid_request_error", param=name) for name in ("temperature", "max_tokens")
    ]
    _answer_in_turn(upstream, *refused)
    assert await asker.ask("Which port?", max_tokens=50) == "in the end"
    assert await asker.ask("Which port?", max_tokens=50) == "in the end"
    last = [asked.json for asked in upstream.requests[-2:]]
    assert all("temperature" not in body and "max_tokens" not in body for body in last)
    assert [body["max_completion_tokens"] for body in last] == [50 + THINKING_TOKENS] * 2
    assert len(upstream.requests) == 4


@pytest.mark.parametrize("text", ["", "<think>it may be"])
async def test_a_model_that_only_thought_gets_more_room(upstream: FakeUpstream, asker: Asker, text: str) -> None:
    """Only once: an answer that is empty again stays empty. Both calls count as spent."""
    message = {"choices": [{"message": {"content": text}, "finish_reason": "length"}]}
    _answer_in_turn(upstream, *(web.Response(body=orjson.dumps(message)) for _ in range(2)))
    assert await asker.ask("Which port?", max_tokens=50) == text
    assert [asked.json["max_tokens"] for asked in upstream.requests] == [50, 50 + THINKING_TOKENS]
    assert _spent(asker).calls == 2


async def test_calls_at_once_are_bounded(upstream: FakeUpstream, asker: Asker) -> None:
    """If ten questions are asked, no more are in flight than the gate allows."""
    under_way, most, full = 0, 0, asyncio.Event()

    async def answer(_: Recorded, __: web.BaseRequest) -> web.Response:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        if under_way == 4:
            full.set()
        await full.wait()
        under_way -= 1
        return completion("yes")

    upstream.answer = answer
    async with asyncio.timeout(30):
        await asyncio.gather(*(asker.ask("Which port?", max_tokens=50) for _ in range(10)))
    assert most == 4


# The protocol: questions, answers, grades.

QUESTION = ExamQuestion("What is the code of harbour3?", "7003", "The code of harbour3 is 7003.", 0.5)
LOST = ExamQuestion("What is the code of lighthouse?", "1234", "The code of lighthouse is 1234.", 0.5)


@pytest.fixture
async def examiner(upstream: FakeUpstream) -> AsyncIterator[Examiner]:
    config, client = UpstreamConfig(base_url=upstream.url), UpstreamClient()
    asker = Asker(config, "exam-model", [], Calls(client, len, Tokens(), timeout_seconds=20))
    steps: list[None] = []
    yield Examiner(asker, asker, lambda: steps.append(None))
    await client.close()


def _whole(rehearsal: Rehearsal) -> Arm:
    return make_arm("none", rehearsal, None, 10**6)


def _parts(rehearsal: Rehearsal, questions: int) -> list[Part]:
    removed = find_removed(rehearsal.last)
    return split_removed(removed, questions, count=rehearsal.variant.compactor.count, part_tokens=3000)


async def test_a_part_of_which_no_question_comes_costs_no_other(
    rehearsal: Rehearsal, examinee: Examinee, examiner: Examiner
) -> None:
    """After nonsense, invented quotations and failures, the usable questions remain."""
    said = iter(["Sure!", write_question("lighthouse", "1"), web.Response(status=500), web.Response(text="<html>")])
    examinee.override = lambda _kind, _recorded: next(said, None)
    questions = await examiner.make_questions(_parts(rehearsal, 12))
    assert 0 < len(questions) < 12


async def test_answers_come_from_what_the_arm_holds(
    rehearsal: Rehearsal, examinee: Examinee, examiner: Examiner, upstream: FakeUpstream
) -> None:
    """Facts in the arm are known, others are not. 'Not known' needs no judge, and no prompt names an arm."""
    result = await examiner.examine(_whole(rehearsal), [QUESTION, LOST])
    assert [(one.answer, one.grade) for one in result.answered] == [
        ("I read that it is 7003.", 2),
        ("NOT IN CONTEXT", 0),
    ]
    assert (result.recall, result.problem) == (0.5, None)
    assert sorted(examinee.kinds) == ["answer", "answer", "grade"]
    asked = [recorded.json["messages"] for recorded in upstream.requests]
    assert asked[0][:-2] == orjson.loads(rehearsal.request.body)["messages"]
    assert "none" not in read_text(asked[1][-1])


async def test_an_arm_that_the_upstream_refuses_for_its_length_is_asked_once(
    rehearsal: Rehearsal, examinee: Examinee, examiner: Examiner
) -> None:
    examinee.override = lambda _kind, _recorded: refuse(90_000, 8000)
    result = await examiner.examine(_whole(rehearsal), [QUESTION] * 5)
    assert (result.problem, result.answered) == ("refused: the prompt is longer than the model's window", ())
    assert examinee.kinds == ["answer"]


@pytest.mark.parametrize(
    ("kind", "said", "problem"),
    [
        ("grade", "It is quite right.", "judge: no grade in its answer"),
        ("grade", web.Response(status=500), "judge: status 500"),
        ("answer", web.Response(text="<html>"), "the answer is not a chat completion"),
    ],
)
async def test_what_gets_no_grade_is_no_miss(
    rehearsal: Rehearsal, examinee: Examinee, examiner: Examiner, kind: str, said: object, problem: str
) -> None:
    """It is reported as such, and counts in no share."""
    examinee.override = lambda asked, _recorded: said if asked == kind else None
    result = await examiner.examine(_whole(rehearsal), [QUESTION])
    assert [(one.grade, one.problem) for one in result.answered] == [(None, problem)]
    assert (result.recall, result.problems) == (None, [problem])


async def test_what_ends_the_run_ends_every_question_under_way(
    rehearsal: Rehearsal, examinee: Examinee, examiner: Examiner, upstream: FakeUpstream
) -> None:
    """The others are cancelled at once, and the error is raised unchanged."""
    asked = 0

    async def answer(recorded: Recorded, request: web.BaseRequest) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        if asked == 1:
            return await examinee.answer(recorded, request)
        if asked == 3:
            return web.Response(status=401)
        await asyncio.Event().wait()
        return completion()

    upstream.answer = answer
    async with asyncio.timeout(30):
        with pytest.raises(StoppedError, match="401"):
            await examiner.examine(_whole(rehearsal), [LOST] * 9)
        await upstream.cancelled.wait()
