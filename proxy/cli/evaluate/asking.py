"""A model is asked: one question at a time, again if its server is busy, never longer than is allowed.

Law: every wait is bounded, and the calls under way are. What a server writes of its errors is not repeated: it may
quote the session, or the key. What no later question would change ends the whole run.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from proxy.cli.evaluate.exam import drop_thinking
from proxy.cli.evaluate.price import Tokens
from proxy.config.schema import UpstreamConfig
from proxy.http.client import Body, UpstreamClient, read_bounded
from proxy.http.errors import ProxyError
from proxy.http.headers import Headers, request_headers
from proxy.http.unreachable import name_host
from proxy.wire.codec import Completion, Question, Request, UndecodableError
from proxy.wire.dialects import DEFAULT
from rules.conversation import Conversation, CountTokens

BUSY = frozenset({429, 503, 529})
"""Statuses behind which waiting helps. Source: RFC 6585, RFC 9110; 529 is Anthropic's for overload."""
BUSY_ATTEMPTS = 5
LONGEST_PAUSE_SECONDS = 60.0
"""A server that wants a longer one is not waited for."""
FIRST_PAUSE_SECONDS = 1.0
"""Doubled with each further one, if the server does not say how long."""
MAX_ANSWER_BYTES = 4 * 1024 * 1024
THINKING_TOKENS = 4096
"""More room for models that think within their completion."""
CHANGES = 3
"""Of a question that is refused for a parameter, or whose answer its limit has cut off."""
REFUSED_KEY = frozenset({401, 403})

Pause = Callable[[float], Awaitable[None]]


class AskError(Exception):
    """There is no answer; the message says why in a few words, and quotes nothing."""


class TooLongError(AskError):
    """The prompt does not fit the model's window."""


class FatalError(AskError):
    """No other question would be answered either; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Server:
    """A model at an upstream, and the credential headers that are shown to it."""

    upstream: UpstreamConfig
    url: URL
    model: str
    headers: Headers = field(repr=False)


class PatientClient(UpstreamClient):
    """Sends requests again that a busy server has put off. `pause` waits so many seconds."""

    def __init__(self, pause: Pause = asyncio.sleep) -> None:
        super().__init__()
        self._pause = pause

    @asynccontextmanager
    async def send(
        self, method: str, url: URL, headers: CIMultiDict[str], body: Body | None, upstream: UpstreamConfig
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """As `UpstreamClient.send`; the last of BUSY_ATTEMPTS answers is the answer, whatever it is."""
        for attempt in range(BUSY_ATTEMPTS):
            async with super().send(method, url, headers, body, upstream) as response:
                seconds = find_pause(response.status, response.headers.get("Retry-After"), attempt)
                if seconds is None:
                    yield response
                    return
            await self._pause(seconds)


def find_pause(status: int, retry_after: str | None, attempt: int) -> float | None:
    """The seconds until a request is sent again, of which `attempt` others were put off; None if it is not."""
    if status not in BUSY or attempt + 1 >= BUSY_ATTEMPTS:
        return None
    seconds = FIRST_PAUSE_SECONDS * 2**attempt if retry_after is None else _read_retry_after(retry_after)
    return seconds if seconds is not None and 0 <= seconds <= LONGEST_PAUSE_SECONDS else None


def _read_retry_after(value: str) -> float | None:
    """Seconds, or a date (RFC 9110 section 10.2.3); None if it is neither."""
    try:
        return float(value)
    except ValueError:
        pass
    try:
        return max(parsedate_to_datetime(value).timestamp() - time.time(), 0.0)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Calls:
    """How all askers of a run ask, and what that has cost.

    `gate` bounds the calls under way. One answer takes `timeout_seconds` at most, the waiting for a busy server
    included. `count` counts tokens as we do.
    """

    client: UpstreamClient
    count: CountTokens
    gate: asyncio.Semaphore
    spent: Tokens
    timeout_seconds: float


class Asker:
    """Asks one model; what was learned of its parameters holds for later questions."""

    def __init__(self, server: Server, calls: Calls) -> None:
        self._server = server
        self._calls = calls
        self._thinking_tokens = 0
        self._question = Question(server.model, 0, temperature=0.0)

    async def ask(self, prompt: str, *, max_tokens: int) -> str:
        """What the model writes to a prompt alone. Raises AskError."""
        tokens = self._calls.count(prompt)
        return await self._ask(lambda question: DEFAULT.ask(question, prompt), tokens, max_tokens)

    async def ask_behind(self, request: Request, before: Conversation, prompt: str, *, max_tokens: int) -> str:
        """What it writes to a prompt behind a conversation, which stands for that of the request. Raises AskError."""

        def write(question: Question) -> bytes:
            body = DEFAULT.ask_behind(request, before, question, prompt)
            if body is None:
                message = "cannot be asked behind this request"
                raise AskError(message)
            return body

        return await self._ask(write, before.tokens + self._calls.count(prompt), max_tokens)

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
                        if drop_thinking(completion.text) or not completion.was_cut or self._thinking_tokens:
                            return completion.text
                        self._thinking_tokens = THINKING_TOKENS
            except TimeoutError:
                message = f"no answer within {self._calls.timeout_seconds:g} seconds"
                raise AskError(message) from None
        message = "nothing but thinking, or a parameter that is refused"
        raise AskError(message)

    def _record(self, completion: Completion, prompt_tokens: int) -> None:
        """What a call has cost, as the upstream reports it; else as we count it."""
        usage = completion.usage
        self._calls.spent.add(
            prompt_tokens if usage.prompt_tokens is None else usage.prompt_tokens,
            self._calls.count(completion.text) if usage.completion_tokens is None else usage.completion_tokens,
        )

    async def _send(self, body: bytes, question: Question) -> Completion | None:
        """One answer; None if the question is to be asked in another way. Raises AskError."""
        headers = request_headers(self._server.headers, self._server.upstream, identity=True)
        headers["Content-Type"] = headers["Accept"] = "application/json"
        try:
            async with self._calls.client.send(
                "POST", self._server.url, headers, body, self._server.upstream
            ) as response:
                answer = await read_bounded(response, MAX_ANSWER_BYTES)
        except ProxyError as error:
            raise FatalError(str(error)) from error
        except (aiohttp.ClientError, OSError) as error:
            if isinstance(error, TimeoutError):
                raise
            message = "the answer broke off"
            raise AskError(message) from error
        if answer is None:
            message = "an answer of megabytes"
            raise AskError(message)
        if response.status != 200:
            self._refused(response.status, answer, question)
            return None
        try:
            return await asyncio.to_thread(DEFAULT.read_completion, answer)
        except UndecodableError:
            message = "an answer that is no completion"
            raise AskError(message) from None

    def _refused(self, status: int, answer: bytes, question: Question) -> None:
        """Learn from a refusal how to ask; raises AskError if nothing is to be learned."""
        if DEFAULT.read_refusal(status, answer) is not None:
            message = "longer than the model's window"
            raise TooLongError(message)
        host = name_host(self._server.url)
        if status in REFUSED_KEY:
            message = f"{host} answered {status}: it wants another key; set OPENAI_API_KEY, or see --api-key-env"
            raise FatalError(message)
        if status == 404:
            message = f"{host} answered 404: it has no model {self._server.model}, or no chat completions; see --model"
            raise FatalError(message)
        if status in BUSY:
            message = f"{host} answered {status} again and again: ask later, or with less --concurrency"
            raise FatalError(message)
        parameter = DEFAULT.read_refused_parameter(answer)
        if parameter == "temperature" and question.temperature is not None:
            self._question = replace(self._question, temperature=None)
        elif parameter == "completion_limit" and not question.is_reasoning:
            self._question, self._thinking_tokens = replace(self._question, is_reasoning=True), THINKING_TOKENS
        else:
            message = f"status {status}"
            raise AskError(message)
