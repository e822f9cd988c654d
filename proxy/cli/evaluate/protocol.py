"""The protocol: questions about what was removed, answers from what each arm holds, grades.

Law: each question is a call of its own, so that no answer depends on another. No judge sees an arm's name. A question
without an answer or a grade counts as such, never as a wrong answer.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from trimtab.proxy.cli.evaluate import exam
from trimtab.proxy.cli.evaluate.asking import Asker, AskError, FatalError, TooLongError
from trimtab.proxy.cli.evaluate.exam import ExamQuestion, Part
from trimtab.proxy.cli.evaluate.rehearsal import Arm
from trimtab.proxy.wire.codec import Request

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer and its grade: 2, 1 or 0. If there is no grade, `problem` says why."""

    question: ExamQuestion
    answer: str = ""
    grade: int | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class ArmResult:
    """The result of an arm.

    tokens: its size in the model's own tokens.
    problem: why it was not asked; None if it was.
    """

    name: str
    tokens: int
    answered: tuple[Answered, ...] = ()
    problem: str | None = None

    @property
    def recall(self) -> float | None:
        """Sum of the grades as a share of the best possible, over graded answers; None if nothing was graded."""
        grades = self.grades
        return sum(grades) / (exam.BEST_GRADE * len(grades)) if grades else None

    @property
    def problems(self) -> list[str]:
        """Why the arm was not asked, or why answers have no grade. Each reason once."""
        found = (self.problem, *(one.problem for one in self.answered))
        return list(dict.fromkeys(problem for problem in found if problem is not None))

    @property
    def grades(self) -> list[int]:
        return [one.grade for one in self.answered if one.grade is not None]


@dataclass(frozen=True, slots=True)
class Examiner:
    """Puts the questions to `asker` and the answers to `judge`.

    on_step: called after each planned call, and for each that turns out not to be needed.
    """

    asker: Asker
    judge: Asker
    on_step: Callable[[], None]

    async def make_questions(self, parts: Sequence[Part]) -> list[ExamQuestion]:
        """The questions about all parts, oldest part first. A part may yield no question. Raises FatalError."""
        found = await run_all(self._make(part) for part in parts)
        return [question for questions in found for question in questions]

    async def _make(self, part: Part) -> list[ExamQuestion]:
        try:
            written = await self.asker.ask(
                exam.ask_for_questions(part), max_tokens=part.questions * exam.QUESTION_TOKENS
            )
        except FatalError:
            raise
        except AskError:
            return []
        finally:
            self.on_step()
        return exam.read_questions(written, part)

    async def examine(self, request: Request, arm: Arm, questions: Sequence[ExamQuestion]) -> ArmResult:
        """Ask an arm all questions. The first goes alone, so that the others find its prompt in the upstream's cache.

        Raises FatalError.
        """
        if arm.problem is not None:
            return ArmResult(arm.name, arm.tokens, problem=arm.problem)
        try:
            first = await self._examine_one(request, arm, questions[0])
        except TooLongError as error:
            return ArmResult(arm.name, arm.tokens, problem=f"refused: {error}")
        others = await run_all(self._examine_safely(request, arm, question) for question in questions[1:])
        return ArmResult(arm.name, arm.tokens, (first, *others))

    async def _examine_safely(self, request: Request, arm: Arm, question: ExamQuestion) -> Answered:
        try:
            return await self._examine_one(request, arm, question)
        except TooLongError as error:
            return Answered(question, problem=str(error))

    async def _examine_one(self, request: Request, arm: Arm, question: ExamQuestion) -> Answered:
        """One answer with its grade. Raises TooLongError and FatalError."""
        prompt = exam.put_question(question)
        try:
            written = await self.asker.ask_behind(request, arm.conversation, prompt, max_tokens=exam.ANSWER_TOKENS)
        except (TooLongError, FatalError):
            raise
        except AskError as error:
            self.on_step()  # no grade is needed
            return Answered(question, problem=str(error))
        finally:
            self.on_step()
        return await self._grade(question, exam.read_answer(written))

    async def _grade(self, question: ExamQuestion, answer: str) -> Answered:
        try:
            grade = exam.grade_plainly(question, answer)
            if grade is None:
                written = await self.judge.ask(exam.ask_for_grade(question, answer), max_tokens=exam.GRADE_TOKENS)
                grade = exam.read_grade(written)
        except FatalError:
            raise
        except AskError as error:
            return Answered(question, answer, problem=f"judge: {error}")
        finally:
            self.on_step()
        return Answered(question, answer, grade, None if grade is not None else "judge: no grade in its answer")


async def run_all(works: Iterable[Coroutine[object, object, T]]) -> list[T]:
    """Run all at once. Return the results in order. If one raises, cancel the others and raise its error."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]
