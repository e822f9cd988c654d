"""A model is asked for a summary.

Law: three calls at most. Each refusal teaches the next attempt: another form, a parameter changed, half of the input.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from proxy.config.policies.summaries import SummaryConfig
from proxy.config.schema import UpstreamConfig
from proxy.http.client import UpstreamClient
from proxy.http.errors import ProxyError
from proxy.state.summaries.answers import NoNoteError, RefusedError, accept_note, read_answer, read_completion
from proxy.state.summaries.calls import Form, NoSummaryError, SummaryCall, SummaryCalls, name_reason
from proxy.state.summaries.sealing import derive_id
from proxy.wire.codec import Codec, Completion, Parameter, Question
from rules.conversation import CountTokens
from rules.summary.request import SummaryRequest, write_prompt
from rules.text.head_tail import truncate_text

ATTEMPTS = 3
"""Calls for one summary at most."""
REASONING_FACTOR = 4
"""Models that think within their completion need so many times the room."""


@dataclass(frozen=True, slots=True)
class Inline:
    """A request in the client's own words up to the cut, which reads the upstream's prompt cache; `tokens` about.

    `write` makes its body; None if that cannot be.
    """

    write: Callable[[Question], bytes | None]
    tokens: int


@dataclass(frozen=True, slots=True)
class Summariser:
    """Whom to ask for a summary, in which dialect, and on whose account.

    `headers` are the client's credential headers, none for an upstream with a key of its own, and those that lead to
    its session's prompt cache. `secret` is what the summary's id and its encryption are derived from. `window_tokens`
    is what the summariser's prompt may have as we count, `token_ratio` the model's own tokens for one of ours.
    `is_reasoning`: the model thinks within its completion.
    """

    codec: Codec
    upstream: UpstreamConfig
    url: URL
    headers: tuple[tuple[str, str], ...]
    secret: bytes
    model: str
    window_tokens: int
    label: str
    settings: SummaryConfig
    token_ratio: float = 1.0
    is_reasoning: bool = False

    @property
    def client_id(self) -> str:
        """Names the client and the model, and tells nothing of either."""
        return self.name_summary("")

    def name_summary(self, key: str) -> str:
        """The id under which the text of a request's `key` is kept."""
        return derive_id(self.secret, key, self.model, self.settings.instructions)


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


async def ask_model(task: Task, base_text: str | None, client: UpstreamClient, calls: SummaryCalls) -> str:
    """The model's note, within the reserve; `base_text` is the previous summary. Raises NoSummaryError."""
    try:
        async with asyncio.timeout(task.summariser.settings.timeout_seconds) as timeout:
            text = await _Asking(task, base_text, client, calls, timeout).run()
    except (TimeoutError, ProxyError, aiohttp.ClientError, OSError) as error:
        raise NoSummaryError(name_reason(error)) from error
    return await asyncio.to_thread(truncate_text, text, task.request.max_tokens, task.count)


class _Asking:
    """The attempts for one summary, and what they have learned."""

    def __init__(
        self, task: Task, base_text: str | None, client: UpstreamClient, calls: SummaryCalls, timeout: asyncio.Timeout
    ) -> None:
        self._task = task
        self._base_text = base_text
        self._client = client
        self._calls = calls
        self._timeout = timeout
        self._forms = _order_forms(task)
        self._input_tokens = task.summariser.window_tokens
        self._prompt_tokens = 0
        self._temperature: float | None = task.summariser.settings.temperature
        self._is_reasoning = task.summariser.is_reasoning
        self._completion_factor = REASONING_FACTOR if self._is_reasoning else 1

    async def run(self) -> str:
        problem: NoSummaryError | None = None
        for _ in range(ATTEMPTS):
            body = await self._write_body()
            try:
                return await self._call(body)
            except RefusedError as refused:
                if refused.is_final:
                    raise
                problem = refused
                self._learn(refused.parameter)
            except NoNoteError as answered:
                problem = answered
                if answered.was_cut and self._completion_factor < REASONING_FACTOR:
                    self._completion_factor = REASONING_FACTOR
                elif not self._change_form():
                    raise
        raise problem or NoSummaryError

    def _learn(self, parameter: Parameter | None) -> None:
        """Do otherwise what was refused."""
        if parameter == "temperature" and self._temperature is not None:
            self._temperature = None
        elif parameter == "completion_limit" and not self._is_reasoning:
            self._is_reasoning, self._completion_factor = True, REASONING_FACTOR
        elif not self._change_form():
            self._forms = [None]
            self._input_tokens //= 2

    def _change_form(self) -> bool:
        """Go over to the form that was not tried yet; whether there is one."""
        if len(self._forms) == 1:
            return False
        del self._forms[0]
        return True

    async def _write_body(self) -> bytes:
        summariser = self._task.summariser
        max_tokens = ceil(self._task.request.max_tokens * summariser.token_ratio) * self._completion_factor
        question = Question(summariser.model, max_tokens, self._temperature, self._is_reasoning)
        inline = self._forms[0]
        if inline is not None:
            body = await asyncio.to_thread(inline.write, question)
            if body is not None:
                self._prompt_tokens = inline.tokens
                return body
            if not self._change_form():
                message = "no other form"
                raise NoSummaryError(message)
        prompt = await asyncio.to_thread(self._write_prompt)
        return summariser.codec.ask(question, prompt)

    def _write_prompt(self) -> str:
        task = self._task
        prompt = write_prompt(task.request, base_text=self._base_text, max_tokens=self._input_tokens, count=task.count)
        self._prompt_tokens = task.count(prompt)
        return prompt

    async def _call(self, body: bytes) -> str:
        """One request; raises NoSummaryError, or an error of the connection."""
        summariser = self._task.summariser
        tokens = round(summariser.token_ratio * self._prompt_tokens)
        form: Form = "transcript" if self._forms[0] is None else "inline"
        with SummaryCall(self._calls, summariser.label, form, tokens) as call:
            try:
                answer = await self._send(body, call)
                return await asyncio.to_thread(self._read_note, answer, call)
            except asyncio.CancelledError:
                if self._timeout.expired():
                    call.result = "timed_out"
                raise

    async def _send(self, body: bytes, call: SummaryCall) -> bytes:
        summariser = self._task.summariser
        headers = CIMultiDict(summariser.headers)
        headers["Content-Type"] = "application/json"
        headers["Accept"] = "application/json"
        headers["Accept-Encoding"] = "identity"
        if summariser.upstream.api_key is not None:
            headers["Authorization"] = f"Bearer {summariser.upstream.api_key}"
        async with self._client.send("POST", summariser.url, headers, body, summariser.upstream) as response:
            call.status = response.status
            return await read_answer(response, summariser.codec)

    def _read_note(self, answer: bytes, call: SummaryCall) -> str:
        """The note in an answer, its cost counted. Raises NoSummaryError if there is none."""
        completion = read_completion(answer, self._task.summariser.codec)
        self._record_cost(completion, call)
        request = self._task.request
        covered_tokens = sum(message.tokens for message in (*request.earlier, *request.span))
        return accept_note(completion, covered_tokens, self._task.count)

    def _record_cost(self, completion: Completion, call: SummaryCall) -> None:
        """As the upstream reports it; else as we count it."""
        usage, ratio = completion.usage, self._task.summariser.token_ratio
        counted = usage.completion_tokens
        call.completion_tokens = round(ratio * self._task.count(completion.text)) if counted is None else counted
        if usage.prompt_tokens is not None:
            call.prompt_tokens = usage.prompt_tokens
        tokens = self._calls.metrics.summary_tokens
        tokens.labels(call.model, "prompt").inc(call.prompt_tokens)
        tokens.labels(call.model, "completion").inc(call.completion_tokens)


def _order_forms(task: Task) -> list[Inline | None]:
    """The forms to ask in, the first choice first; None is the transcript."""
    if task.inline is None:
        return [None]
    return [None, task.inline] if task.summariser.settings.request == "transcript" else [task.inline, None]
