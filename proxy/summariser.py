"""A model is asked for a summary.

Law: three calls at most. Each refusal teaches the next attempt: another form, a parameter changed, half of the input.
"""

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
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
from proxy.stream import UNKNOWN_FORM, Usage, read_usage
from proxy.upstream import UpstreamClient
from rules.conversation import CountTokens
from rules.head_tail import truncate_text
from rules.summarise import SummaryRequest, write_prompt

ATTEMPTS = 3
"""Calls for one summary at most."""
REFUSED = frozenset({400, 413, 422, 500})
"""Statuses with which servers answer a prompt that is too long or a parameter that they do not know."""
MAX_ANSWER_BYTES = 4 * 1024 * 1024
REASONING_FACTOR = 4
"""Models that want `max_completion_tokens` think first, and their thinking counts against it."""
_THINKING = re.compile(r"\A\s*<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL)
"""Up to its end, or to the answer's where the limit came first."""


@dataclass(frozen=True, slots=True)
class Inline:
    """A request in the client's own words up to the cut, which reads the upstream's prompt cache; `tokens` about.

    `write` makes the members of its body; None where that cannot be.
    """

    write: Callable[[], dict[str, msgspec.Raw] | None]
    tokens: int


@dataclass(frozen=True, slots=True)
class Summariser:
    """Whom to ask for a summary, and on whose account.

    `headers` are the client's credential headers, none for an upstream with a key of its own, and those that lead to
    its session's prompt cache. `secret` is what the summary's id and its encryption are derived from. `window_tokens`
    is what the summariser's prompt may have as we count, `token_ratio` the model's own tokens for one of ours.
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
    token_ratio: float = 1.0

    @property
    def client_id(self) -> str:
        """Names the client and the model, and tells nothing of either."""
        return derive_id(self.secret, "", self.model)


@dataclass(frozen=True, slots=True)
class Task:
    """A text to be written; the transcript is written out for it where there is no `inline`.

    Where no model may be asked, or the cut asks for none, it is a digest.
    """

    request: SummaryRequest
    summariser: Summariser
    count: CountTokens
    inline: Inline | None = None
    may_ask: bool = True


class _Part(msgspec.Struct):
    text: str | None = None


class _Content(msgspec.Struct):
    content: str | list[_Part] | None = None
    tool_calls: list[msgspec.Raw] | None = None


class _Choice(msgspec.Struct):
    message: _Content = msgspec.field(default_factory=_Content)
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    usage: msgspec.Raw = msgspec.Raw(b"null")


class _Error(msgspec.Struct):
    param: str | None = None


class _ErrorAnswer(msgspec.Struct):
    error: _Error


class NoSummaryError(Exception):
    """There is no summary to be had; the message says why, in a word or two, and carries no text."""


class _RefusedError(NoSummaryError):
    """The summariser's upstream refused the request; `param` is what it names as the reason, if it names one."""

    def __init__(self, status: int, param: str | None) -> None:
        super().__init__(f"status {status}")
        self.param = param


class _NoTextError(NoSummaryError):
    """The model answered with nothing, or with a tool call, or `was_cut` while it was thinking."""

    def __init__(self, *, was_cut: bool) -> None:
        super().__init__("empty")
        self.was_cut = was_cut


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
        self._prompt_tokens = 0
        self._parameters: dict[str, Any] = {"temperature": task.summariser.settings.temperature}
        self._completion_key = task.summariser.max_tokens_key
        self._completion_factor = REASONING_FACTOR if self._completion_key == "max_completion_tokens" else 1

    async def run(self) -> str:
        problem: NoSummaryError | None = None
        for _ in range(ATTEMPTS):
            try:
                return await self._call(await self._write_body())
            except _RefusedError as refused:
                problem = refused
                self._learn(refused.param)
            except _NoTextError as empty:
                problem = empty
                if empty.was_cut and self._completion_factor < REASONING_FACTOR:
                    self._completion_factor = REASONING_FACTOR
                elif self._inline is None:
                    raise
                else:
                    self._inline = None
        raise problem or NoSummaryError

    def _learn(self, param: str | None) -> None:
        """Do otherwise what was refused."""
        if param == "temperature" and self._parameters.pop("temperature", None) is not None:
            return
        if param == "max_tokens" and self._completion_key == "max_tokens":
            self._completion_key, self._completion_factor = "max_completion_tokens", REASONING_FACTOR
        elif self._inline is not None:
            self._inline = None
        else:
            self._input_tokens //= 2

    async def _write_body(self) -> bytes:
        max_tokens = ceil(self._task.request.max_tokens * self._task.summariser.token_ratio)
        completion_tokens = max_tokens * self._completion_factor
        how = {**self._parameters, self._completion_key: completion_tokens, "stream": False}
        members = await asyncio.to_thread(self._inline.write) if self._inline is not None else None
        if self._inline is not None and members is not None:
            self._prompt_tokens = self._inline.tokens
            return msgspec.json.encode({**members, **how})
        self._inline = None
        prompt = await asyncio.to_thread(self._write_prompt)
        messages = [{"role": "user", "content": prompt}]
        return orjson.dumps({"model": self._task.summariser.model, "messages": messages, **how})

    def _write_prompt(self) -> str:
        task = self._task
        prompt = write_prompt(task.request, base_text=self._base_text, max_tokens=self._input_tokens, count=task.count)
        self._prompt_tokens = task.count(prompt)
        return prompt

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
        except UNKNOWN_FORM as error:
            message = "unreadable"
            raise NoSummaryError(message) from error
        choice = decoded.choices[0] if decoded.choices else _Choice()
        written = _read_content(choice.message.content)
        self._record_cost(decoded.usage, written)
        text = _THINKING.sub("", written).strip()
        if not text or choice.message.tool_calls:  # what stands beside a call is about the call
            raise _NoTextError(was_cut=choice.finish_reason == "length")
        return text

    def _record_cost(self, raw: msgspec.Raw, written: str) -> None:
        """As the upstream reports it; else as we count it."""
        usage: Usage | None = None
        with suppress(*UNKNOWN_FORM):
            usage = read_usage(raw)
        usage = usage or Usage()
        prompt, completion = usage.prompt_tokens, usage.completion_tokens
        tokens, label = self._metrics.summary_tokens, self._task.summariser.label
        ratio = self._task.summariser.token_ratio
        counted = round(ratio * self._task.count(written)) if completion is None else completion
        tokens.labels(label, "prompt").inc(round(ratio * self._prompt_tokens) if prompt is None else prompt)
        tokens.labels(label, "completion").inc(counted)


def _read_content(content: str | list[_Part] | None) -> str:
    return content if isinstance(content, str) else "".join(part.text or "" for part in content or ())


def _accept(text: str, request: SummaryRequest, count: CountTokens) -> str:
    """A model's text within the reserve. Raises NoSummaryError where it is longer than what it stands for."""
    if count(text) >= sum(message.tokens for message in (*request.earlier, *request.span)):
        message = "does not shrink"
        raise NoSummaryError(message)
    return truncate_text(text, request.max_tokens, count)


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
    except UNKNOWN_FORM:
        return None
