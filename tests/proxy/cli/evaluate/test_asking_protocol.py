"""The protocol: questions, answers, grades."""

import asyncio
from collections.abc import AsyncIterator

import orjson
import pytest
from aiohttp import web
from upstreams.examinee import Examinee, read_text, write_question
from upstreams.recording import FakeUpstream, Recorded, completion
from upstreams.scripted import refuse

from trimtab.proxy.cli.evaluate.asking import (
    Answered,
    ArmResult,
    Asker,
    Calls,
    Examiner,
    PatientClient,
    Server,
    Tokens,
    run_all,
)
from trimtab.proxy.cli.evaluate.exam import ExamQuestion, Part, find_removed, split_removed
from trimtab.proxy.cli.evaluate.rehearsal import Arm, Rehearsal, make_arm
from trimtab.proxy.cli.options import StoppedError
from trimtab.proxy.config.schema import UpstreamConfig
from trimtab.proxy.http.client import target_url

QUESTION = ExamQuestion("What is the code of harbour3?", "7003", "The code of harbour3 is 7003.", 0.5)
LOST = ExamQuestion("What is the code of lighthouse?", "1234", "The code of lighthouse is 1234.", 0.5)


@pytest.fixture
async def examiner(upstream: FakeUpstream) -> AsyncIterator[Examiner]:
    config, client = UpstreamConfig(base_url=upstream.url), PatientClient()
    server = Server(config, target_url(config, "/v1/chat/completions"), "exam-model", [])
    asker = Asker(server, Calls(client, len, asyncio.Semaphore(3), Tokens(), timeout_seconds=20))
    steps: list[None] = []
    yield Examiner(asker, asker, lambda: steps.append(None))
    await client.close()


def _whole(rehearsal: Rehearsal) -> Arm:
    return make_arm("none", rehearsal, rehearsal.apply({}).forwarded, 10**6)


def _parts(rehearsal: Rehearsal, questions: int) -> list[Part]:
    removed = find_removed(rehearsal.last.original_plan)
    return split_removed(removed, questions, count=rehearsal.variant.compactor.count, part_tokens=3000)


async def test_questions_come_from_every_depth(rehearsal: Rehearsal, examinee: Examinee, examiner: Examiner) -> None:
    """There are as many as requested, oldest first, with one call for each part."""
    parts = _parts(rehearsal, 12)
    questions = await examiner.make_questions(parts)
    assert len(questions) == 12
    depths = [question.depth for question in questions]
    assert depths == sorted(depths)
    assert depths[0] < 0.2
    assert depths[-1] > 0.8
    assert examinee.kinds == ["question"] * len(parts)


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
    result = await examiner.examine(rehearsal.session.request, _whole(rehearsal), [QUESTION, LOST])
    assert [(one.answer, one.grade) for one in result.answered] == [
        ("I read that it is 7003.", 2),
        ("NOT IN CONTEXT", 0),
    ]
    assert (result.recall, result.problem) == (0.5, None)
    assert sorted(examinee.kinds) == ["answer", "answer", "grade"]
    asked = [recorded.json["messages"] for recorded in upstream.requests]
    assert asked[0][:-2] == orjson.loads(rehearsal.session.request.body)["messages"]
    assert "none" not in read_text(asked[1][-1])


async def test_an_arm_that_does_not_fit_is_not_asked(
    rehearsal: Rehearsal, examiner: Examiner, upstream: FakeUpstream
) -> None:
    arm = make_arm("none", rehearsal, rehearsal.apply({}).forwarded, 100)
    result = await examiner.examine(rehearsal.session.request, arm, [QUESTION])
    assert "does not fit" in (result.problem or "")
    assert (result.recall, upstream.requests) == (None, [])


async def test_an_arm_that_the_upstream_refuses_for_its_length_is_asked_once(
    rehearsal: Rehearsal, examinee: Examinee, examiner: Examiner
) -> None:
    examinee.override = lambda _kind, _recorded: refuse(90_000, 8000)
    result = await examiner.examine(rehearsal.session.request, _whole(rehearsal), [QUESTION] * 5)
    assert (result.problem, result.answered) == ("refused: the prompt is longer than the model's window", ())
    assert examinee.kinds == ["answer"]


@pytest.mark.parametrize(
    ("kind", "said", "problem"),
    [
        ("grade", "It is quite right.", "judge: no grade in its answer"),
        ("grade", '{"grade": 5}', "judge: no grade in its answer"),
        ("grade", web.Response(status=500), "judge: status 500"),
        ("answer", web.Response(text="<html>"), "the answer is not a chat completion"),
        ("answer", web.Response(status=422), "status 422"),
    ],
)
async def test_what_gets_no_grade_is_no_miss(
    rehearsal: Rehearsal, examinee: Examinee, examiner: Examiner, kind: str, said: object, problem: str
) -> None:
    """It is reported as such, and counts in no share."""
    examinee.override = lambda asked, _recorded: said if asked == kind else None
    result = await examiner.examine(rehearsal.session.request, _whole(rehearsal), [QUESTION])
    assert [(one.grade, one.problem) for one in result.answered] == [(None, problem)]
    assert (result.recall, result.problems) == (None, [problem])


async def test_an_answer_of_nonsense_is_a_miss(rehearsal: Rehearsal, examinee: Examinee, examiner: Examiner) -> None:
    """The judge grades it; a tool call instead of an answer is no answer."""

    def override(kind: str, recorded: Recorded) -> str | None:
        if kind != "answer":
            return None
        return "" if "harbour3" in read_text(recorded.json["messages"][-1]) else "qwz qwz 12 }}{{"

    examinee.override = override
    result = await examiner.examine(rehearsal.session.request, _whole(rehearsal), [QUESTION, LOST])
    assert [one.grade for one in result.answered] == [0, 0]
    assert result.recall == 0


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
            await examiner.examine(rehearsal.session.request, _whole(rehearsal), [LOST] * 9)
        await upstream.cancelled.wait()


async def test_results_keep_their_order() -> None:
    async def work(number: int) -> int:
        for _ in range(5 - number):
            await asyncio.sleep(0)
        return number

    assert await run_all(work(number) for number in range(5)) == [0, 1, 2, 3, 4]


def test_recall_is_the_share_of_the_best_grades() -> None:
    """Only graded answers count in it. Each problem is named once."""
    answered = [Answered(QUESTION, "a", grade) for grade in (2, 1, 0)] + [Answered(QUESTION, problem="late")] * 2
    result = ArmResult("digest", 100, tuple(answered), "odd")
    assert (result.recall, result.grades, result.problems) == (0.5, [2, 1, 0], ["odd", "late"])
    assert ArmResult("digest", 100).recall is None
