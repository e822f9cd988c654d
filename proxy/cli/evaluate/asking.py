"""The exam with a model: questions about what was removed, answers from what each arm holds, and grades.

Law: each question is a call of its own, so that no answer depends on another. No judge sees an arm's name. A question
without an answer or a grade counts as such, never as a wrong answer. Every wait is bounded, and so is the number of
calls in flight. The text of a server's error is never shown: it may quote the session or the key. An error that every
later question would meet, too, ends the whole run.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TypeVar

import aiohttp
import msgspec
from msgspec.structs import replace

from trimtab.proxy.cli.evaluate import exam
from trimtab.proxy.cli.evaluate.exam import ExamQuestion, Part
from trimtab.proxy.cli.evaluate.rehearsal import Arm, Tokens
from trimtab.proxy.cli.options import StoppedError
from trimtab.proxy.config.schema import UpstreamConfig
from trimtab.proxy.http.client import UpstreamClient, read_bounded, target_url
from trimtab.proxy.http.errors import ProxyError
from trimtab.proxy.http.headers import BUSY, Headers, read_retry_after, request_headers
from trimtab.proxy.http.unreachable import name_host
from trimtab.proxy.summaries.summariser import REASONING_SIGN
from trimtab.proxy.tasks import find_pause
from trimtab.proxy.wire.answering import Completion, Question
from trimtab.proxy.wire.codec import UndecodableError
from trimtab.proxy.wire.dialects import DEFAULT
from trimtab.rules.conversation import CountTokens

MOST_CALLS = 4  # At the same time. Chosen: a local server's slots; a provider's limits for new accounts allow it.
TIMEOUT_SECONDS = 300.0  # For one answer, with waits for a busy server. Chosen: a local server reads a long prompt.
BUSY_ATTEMPTS = 5  # chosen: without `Retry-After`, the pauses between them add up to 15 seconds
LONGEST_PAUSE_SECONDS = 60.0  # A longer one is not waited for. Chosen: a person waits for the run.
FIRST_PAUSE_SECONDS = 1.0  # The first pause if the server names none; each further one is twice as long. Chosen.
MAX_ANSWER_BYTES = 4 * 1024 * 1024  # chosen: far above any answer to a question
THINKING_TOKENS = 4096  # Added to the completion's maximum for models that think within their completion. Chosen.
CHANGES = 3  # Attempts at one question. Chosen: the first, and one each after a change of two parameters.
REFUSED_KEY = frozenset({401, 403})

T = TypeVar("T")
Pause = Callable[[float], Awaitable[None]]


class AskError(Exception):
    """There is no answer. The message says why in a few words, and quotes nothing from the server."""


TOO_LONG = "the prompt is longer than the model's window"


def find_delay(status: int, headers: Mapping[str, str], attempt: int) -> float | None:
    """Seconds until the request is sent again; None if it is not. `attempt` counts from 0."""
    if status not in BUSY or attempt + 1 >= BUSY_ATTEMPTS:
        return None
    named = read_retry_after(headers, time.time())
    seconds = find_pause(attempt + 1, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS) if named is None else named
    return seconds if seconds <= LONGEST_PAUSE_SECONDS else None


class Calls(msgspec.Struct, frozen=True):
    """What all askers of a run share. gate: bounds the calls in flight. timeout_seconds: also for waits."""

    client: UpstreamClient
    count: CountTokens
    spent: Tokens
    gate: asyncio.Semaphore = msgspec.field(default_factory=lambda: asyncio.Semaphore(MOST_CALLS))
    timeout_seconds: float = TIMEOUT_SECONDS
    pause: Pause = asyncio.sleep


class Asker:
    """Asks a model at an upstream. headers: with the credential that a client would show there."""

    def __init__(self, upstream: UpstreamConfig, model: str, headers: Headers, calls: Calls) -> None:
        self._upstream, self._headers, self._calls = upstream, headers, calls
        self._url = target_url(upstream, DEFAULT.path, is_api=True)
        self._thinking_tokens = 0
        self._question = Question(model, 0, temperature=0.0)

    async def ask(self, prompt: str, *, max_tokens: int) -> str:
        tokens = self._calls.count(prompt)
        return await self._ask(lambda question: DEFAULT.ask(question, prompt), tokens, max_tokens)

    async def ask_behind(self, arm: Arm, prompt: str, *, max_tokens: int) -> str:
        def write(question: Question) -> bytes:
            body = DEFAULT.ask_behind(arm.request, arm.conversation, question, prompt)
            if body is None:
                raise AskError("the question cannot be asked after this request")
            return body

        return await self._ask(write, arm.conversation.tokens + self._calls.count(prompt), max_tokens)

    async def _ask(self, write: Callable[[Question], bytes], prompt_tokens: int, max_tokens: int) -> str:
        async with self._calls.gate:
            try:
                async with asyncio.timeout(self._calls.timeout_seconds):
                    for _ in range(CHANGES):
                        question = replace(self._question, max_tokens=max_tokens + self._thinking_tokens)
                        completion = await self._send(await asyncio.to_thread(write, question), question)
                        if completion is None:
                            continue
                        self._record(completion, prompt_tokens)
                        if exam.drop_thinking(completion.text) or not completion.was_cut or self._thinking_tokens:
                            return completion.text
                        self._thinking_tokens = THINKING_TOKENS
            except TimeoutError:
                raise AskError(f"no answer within {self._calls.timeout_seconds:g} seconds") from None
        raise AskError("only thinking and no answer, or a refused parameter")

    def _record(self, completion: Completion, prompt_tokens: int) -> None:
        usage = completion.usage
        self._calls.spent.add(
            prompt_tokens if usage.prompt_tokens is None else usage.prompt_tokens,
            self._calls.count(completion.text) if usage.completion_tokens is None else usage.completion_tokens,
        )

    async def _send(self, body: bytes, question: Question) -> Completion | None:
        """One answer; None if the question must be asked again with other parameters. Raises AskError."""
        try:
            status, answer = await self._post(body)
        except ProxyError as error:
            raise StoppedError(str(error)) from error
        except TimeoutError:
            raise
        except (aiohttp.ClientError, OSError) as error:
            raise AskError("the answer broke off") from error
        if answer is None:
            raise AskError("the answer is too large")
        if status != 200:
            self._refused(status, answer, question)
            return None
        try:
            return await asyncio.to_thread(DEFAULT.read_completion, answer)
        except UndecodableError:
            raise AskError("the answer is not a chat completion") from None

    async def _post(self, body: bytes) -> tuple[int, bytes | None]:
        """The last of BUSY_ATTEMPTS answers: its status, and its body unless that is too large."""
        headers = request_headers(self._headers, self._upstream, identity=True)
        headers["Content-Type"] = headers["Accept"] = "application/json"
        asked = "POST", self._url, headers, body, self._upstream
        attempt = 0
        while True:
            async with self._calls.client.send(*asked) as response:
                seconds = find_delay(response.status, response.headers, attempt)
                if seconds is None:
                    return response.status, await read_bounded(response, MAX_ANSWER_BYTES)
            await self._calls.pause(seconds)
            attempt += 1

    def _refused(self, status: int, answer: bytes, question: Question) -> None:
        """Learn from a refusal which parameter to change. Raises AskError if it names none that can change."""
        if DEFAULT.read_refusal(status, answer) is not None:
            raise AskError(TOO_LONG)
        host = name_host(self._url)
        if status in REFUSED_KEY:
            message = f"{host} answered {status}: it requires another key; set OPENAI_API_KEY, or use --api-key-env"
            raise StoppedError(message)
        if status == 404:
            message = f"{host} answered 404: it has no model {question.model}, or no chat completions; use --model"
            raise StoppedError(message)
        if status in BUSY:
            raise StoppedError(f"{host} keeps answering {status}; try again later")
        form = DEFAULT.find_refused(question, answer)
        if form is None:
            raise AskError(f"status {status}")
        self._question = replace(self._question, refused=self._question.refused | {form})
        if form == REASONING_SIGN:
            self._thinking_tokens = THINKING_TOKENS


class Answered(msgspec.Struct, frozen=True):
    """An answer and its grade: 2, 1 or 0. If there is no grade, `problem` says why."""

    question: ExamQuestion
    answer: str = ""
    grade: int | None = None
    problem: str | None = None


class ArmResult(msgspec.Struct, frozen=True):
    """The result of an arm. tokens: its size in the model's own tokens. problem: why it was not asked, if so."""

    name: str
    tokens: int
    answered: tuple[Answered, ...] = ()
    problem: str | None = None

    @property
    def recall(self) -> float | None:
        grades = self.grades
        return sum(grades) / (exam.BEST_GRADE * len(grades)) if grades else None

    @property
    def problems(self) -> list[str]:
        found = (self.problem, *(one.problem for one in self.answered))
        return list(dict.fromkeys(problem for problem in found if problem is not None))

    @property
    def grades(self) -> list[int]:
        return [one.grade for one in self.answered if one.grade is not None]


class Examiner(msgspec.Struct, frozen=True):
    """Puts the questions to `asker` and the answers to `judge`. on_step: called for each planned call, made or not."""

    asker: Asker
    judge: Asker
    on_step: Callable[[], None]

    async def make_questions(self, parts: Sequence[Part]) -> list[ExamQuestion]:
        found = await run_all(self._make(part) for part in parts)
        return [question for questions in found for question in questions]

    async def _make(self, part: Part) -> list[ExamQuestion]:
        try:
            written = await self.asker.ask(
                exam.ask_for_questions(part), max_tokens=part.questions * exam.QUESTION_TOKENS
            )
        except AskError:
            return []
        finally:
            self.on_step()
        return exam.read_questions(written, part)

    async def examine(self, arm: Arm, questions: Sequence[ExamQuestion]) -> ArmResult:
        """Ask an arm all questions; the first alone, so that the others find its prompt cached. Raises StoppedError."""
        if arm.problem is not None:
            return ArmResult(arm.name, arm.tokens, problem=arm.problem)
        first = await self._examine_one(arm, questions[0])
        if first.problem == TOO_LONG:
            return ArmResult(arm.name, arm.tokens, problem=f"refused: {TOO_LONG}")
        others = await run_all(self._examine_one(arm, question) for question in questions[1:])
        return ArmResult(arm.name, arm.tokens, (first, *others))

    async def _examine_one(self, arm: Arm, question: ExamQuestion) -> Answered:
        prompt = exam.put_question(question)
        try:
            written = await self.asker.ask_behind(arm, prompt, max_tokens=exam.ANSWER_TOKENS)
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
