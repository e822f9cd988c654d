"""A model is asked for a summary.

Law: three calls at most. Each refusal teaches the next attempt: another form, a parameter changed, half of the input.
"""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec
import orjson
from multidict import CIMultiDict
from yarl import URL

from proxy.config import SummaryConfig, UpstreamConfig
from proxy.errors import ProxyError
from proxy.metrics import Metrics
from proxy.sealing import derive_id
from proxy.stream import Usage
from proxy.upstream import UpstreamClient
from rules.conversation import CountTokens
from rules.summarise import SummaryRequest, write_prompt
from rules.truncate import truncate_text

ATTEMPTS = 3
"""Calls for one summary at most."""
REFUSED = frozenset({400, 413, 422, 500})
"""Statuses with which servers answer a prompt that is too long or a parameter that they do not know."""
MAX_ANSWER_BYTES = 4 * 1024 * 1024
REASONING_FACTOR = 4
"""Models that want `max_completion_tokens` think first, and their thinking counts against it."""
_THINKING = re.compile(r"\A\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)

Inline = Callable[[], dict[str, msgspec.Raw] | None]
"""Writes the members of a request body that asks in the client's own words up to the cut, and so reads the upstream's
prompt cache; None where that cannot be."""


@dataclass(frozen=True, slots=True)
class Summariser:
    """Whom to ask for a summary, and on whose account.

    `headers` are the client's credential headers, empty for an upstream with a key of its own. `secret` is what the
    summary's id and its encryption are derived from. `window_tokens` is what the summariser's prompt may have.
    """

    upstream: UpstreamConfig
    url: URL
    headers: tuple[tuple[str, str], ...]
    secret: bytes
    model: str
    max_tokens_key: str
    window_tokens: int
    label: str
    settings: SummaryConfig

    @property
    def client_id(self) -> str:
        """Names the client and the model, and tells nothing of either."""
        return derive_id(self.secret, "", self.model)


@dataclass(frozen=True, slots=True)
class Task:
    """A summary to be written; the transcript is written out for it where there is no `inline`."""

    request: SummaryRequest
    summariser: Summariser
    count: CountTokens
    inline: Inline | None = None


class NoSummaryError(Exception):
    """There is no summary to be had; the message says why, in a word or two, and carries no text."""


class _RefusedError(NoSummaryError):
    """The summariser's upstream refused the request; `param` is what it names as the reason, if it names one."""

    def __init__(self, status: int, param: str | None) -> None:
        super().__init__(f"status {status}")
        self.param = param


class _NoTextError(NoSummaryError):
    """The model answered with nothing, or with a tool call."""


async def ask_model(task: Task, base_text: str | None, client: UpstreamClient, metrics: Metrics) -> str:
    """The model's text, within the reserve; `base_text` is the previous summary. Raises NoSummaryError."""
    try:
        async with asyncio.timeout(task.summariser.settings.timeout_seconds):
            text = await _Asking(task, base_text, client, metrics).run()
    except (TimeoutError, ProxyError, aiohttp.ClientError, OSError) as error:
        raise NoSummaryError(type(error).__name__) from error
    return await asyncio.to_thread(_accept, text, task.request, task.count)


class _Asking:
    """The attempts for one summary, and what they have learned."""

    def __init__(self, task: Task, base_text: str | None, client: UpstreamClient, metrics: Metrics) -> None:
        self._task = task
        self._base_text = base_text
        self._client = client
        self._metrics = metrics
        self._inline = task.inline
        self._input_tokens = task.summariser.window_tokens
        self._parameters: dict[str, Any] = {"temperature": task.summariser.settings.temperature}
        self._limit_completion(task.summariser.max_tokens_key)

    async def run(self) -> str:
        problem: NoSummaryError | None = None
        for _ in range(ATTEMPTS):
            try:
                return await self._call(await self._write_body())
            except _RefusedError as refused:
                problem = refused
                self._learn(refused.param)
            except _NoTextError as empty:
                if self._inline is None:
                    raise
                problem, self._inline = empty, None
        raise problem or NoSummaryError

    def _learn(self, param: str | None) -> None:
        """Do otherwise what was refused."""
        if param == "temperature" and self._parameters.pop("temperature", None) is not None:
            return
        if param == "max_tokens" and self._parameters.pop("max_tokens", None) is not None:
            self._limit_completion("max_completion_tokens")
        elif self._inline is not None:
            self._inline = None
        else:
            self._input_tokens //= 2

    def _limit_completion(self, key: str) -> None:
        factor = REASONING_FACTOR if key == "max_completion_tokens" else 1
        self._parameters[key] = self._task.request.max_tokens * factor

    async def _write_body(self) -> bytes:
        members = await asyncio.to_thread(self._inline) if self._inline is not None else None
        if members is not None:
            return msgspec.json.encode({**members, **self._parameters, "stream": False})
        self._inline = None
        prompt = await asyncio.to_thread(
            write_prompt,
            self._task.request,
            base_text=self._base_text,
            max_tokens=self._input_tokens,
            count=self._task.count,
        )
        messages = [{"role": "user", "content": prompt}]
        model = self._task.summariser.model
        return orjson.dumps({"model": model, "messages": messages, **self._parameters, "stream": False})

    async def _call(self, body: bytes) -> str:
        """One request; raises NoSummaryError, or an error of the connection."""
        summariser = self._task.summariser
        headers = CIMultiDict(summariser.headers)
        headers["Content-Type"] = "application/json"
        headers["Accept"] = "application/json"
        headers["Accept-Encoding"] = "identity"
        if summariser.upstream.api_key is not None:
            headers["Authorization"] = f"Bearer {summariser.upstream.api_key}"
        async with self._client.send("POST", summariser.url, headers, body, summariser.upstream) as response:
            answer = await _read_bounded(response)
            if response.status in REFUSED:
                raise _RefusedError(response.status, _read_param(answer))
            if response.status != 200:
                message = f"status {response.status}"
                raise NoSummaryError(message)
        return self._read_text(answer)

    def _read_text(self, answer: bytes) -> str:
        """The summary in an answer, its cost counted. Raises NoSummaryError where there is none."""
        try:
            decoded = msgspec.json.decode(answer, type=_Completion)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            message = "unreadable"
            raise NoSummaryError(message) from error
        if decoded.usage is not None:
            tokens, label = self._metrics.summary_tokens, self._task.summariser.label
            tokens.labels(label, "prompt").inc(decoded.usage.prompt_tokens or 0)
            tokens.labels(label, "completion").inc(decoded.usage.completion_tokens or 0)
        text = decoded.choices[0].message.content if decoded.choices else None
        text = _THINKING.sub("", text or "").strip()
        if not text:
            message = "empty"
            raise _NoTextError(message)
        return text


def _accept(text: str, request: SummaryRequest, count: CountTokens) -> str:
    """A model's text within the reserve. Raises NoSummaryError where it is longer than what it stands for."""
    if count(text) >= sum(message.tokens for message in (*request.earlier, *request.span)):
        message = "does not shrink"
        raise NoSummaryError(message)
    return truncate_text(text, request.max_tokens, count)


class _Content(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Content


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    usage: Usage | None = None


class _Error(msgspec.Struct):
    param: str | None = None


class _ErrorAnswer(msgspec.Struct):
    error: _Error


async def _read_bounded(response: aiohttp.ClientResponse) -> bytes:
    answer = bytearray()
    async for chunk in response.content.iter_any():
        answer += chunk
        if len(answer) > MAX_ANSWER_BYTES:
            message = "too long"
            raise NoSummaryError(message)
    return bytes(answer)


def _read_param(answer: bytes) -> str | None:
    """Which parameter an OpenAI error names."""
    try:
        return msgspec.json.decode(answer, type=_ErrorAnswer).error.param
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
