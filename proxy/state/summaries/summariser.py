"""A model is asked for a summary.

Law: a call for each part of a transcript, and three that fail, at most. Each refusal teaches the next attempt: another
form, a parameter changed, half of the input.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, inf

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
from rules.summary.asking.facts import list_sources, mark_unverified
from rules.summary.asking.prompts import join_parts, split_request, write_prompt
from rules.summary.request import SummaryRequest
from rules.text.head_tail import truncate_text

ATTEMPTS = 3
"""Calls for one summary that fail, at most. All of its parts share them."""
MOST_PARTS = 8
"""Calls for one summary that do not fail, at most: what is too long for so many questions is listed in the first. With
the 60 seconds that a summary has by default, a model that takes longer for a call has no time for more."""
OWN_FORM_SHARE = 1 / 20
"""Of what a note may have: so much of one in a form of the operator's own needs no headings."""
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
    is what the summariser's prompt may have as we count, `answer_tokens` what its answer may have, `token_ratio` the
    model's own tokens for one of ours. `is_reasoning`: the model thinks within its completion.
    """

    codec: Codec
    upstream: UpstreamConfig
    url: URL
    headers: tuple[tuple[str, str], ...]
    secret: bytes
    model: str
    window_tokens: int
    answer_tokens: int
    label: str
    settings: SummaryConfig
    token_ratio: float = 1.0
    is_reasoning: bool = False

    @property
    def client_id(self) -> str:
        """Names the client and the model, and tells nothing of either."""
        return self.name_summary("")

    @property
    def patience_seconds(self) -> float:
        """How long a request waits for a summary."""
        timeout_seconds, wait_seconds = self.settings.timeout_seconds, self.settings.wait_seconds
        return timeout_seconds if wait_seconds is None else min(wait_seconds, timeout_seconds)

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
    """The model's note, within the reserve, its facts checked; `base_text` is the previous summary.

    Raises NoSummaryError.
    """
    try:
        async with asyncio.timeout(task.summariser.settings.timeout_seconds) as timeout:
            text = await _Asking(task, base_text, client, calls, timeout).run()
    except (TimeoutError, ProxyError, aiohttp.ClientError, OSError) as error:
        raise NoSummaryError(name_reason(error)) from error
    return await asyncio.to_thread(_finish, text, task, base_text)


def _finish(text: str, task: Task, base_text: str | None) -> str:
    """The note as it is kept. It is shortened first, so that there is not more to check than is kept."""
    request = task.request
    checked = mark_unverified(truncate_text(text, request.max_tokens, task.count), list_sources(request, base_text))
    return truncate_text(checked, request.max_tokens, task.count)


class _Asking:
    """The attempts for one summary, and what they have learned."""

    def __init__(
        self, task: Task, base_text: str | None, client: UpstreamClient, calls: SummaryCalls, timeout: asyncio.Timeout
    ) -> None:
        self._task = task
        # A model with a small window may not be able to write as much as there is room for.
        max_tokens = min(task.request.max_tokens, task.summariser.answer_tokens)
        self._parts = [replace(task.request, max_tokens=max_tokens)]
        self._base_text = base_text
        self._is_split = False
        self._told = 0
        self._slowest_seconds = 0.0
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
        failures = 0
        while True:
            body = await self._write_body()
            try:
                note = await self._call(body)
            except RefusedError as refused:
                failures += 1
                if refused.is_final or failures == ATTEMPTS:
                    raise
                self._learn(refused.parameter)
            except NoNoteError as answered:
                failures += 1
                if failures == ATTEMPTS or not self._ask_otherwise(answered):
                    raise
            else:
                if self._forms[0] is not None or len(self._parts) == 1:
                    return note
                self._go_on(note)

    def _go_on(self, note: str) -> None:
        """Ask for the next part, with the note on those before; for all of the rest if there is no time for each."""
        self._base_text = note
        del self._parts[0]
        self._told += 1
        left_seconds = (self._timeout.when() or inf) - asyncio.get_running_loop().time()
        if not has_time(left_seconds, self._slowest_seconds):
            self._join()

    def _join(self) -> bool:
        """Ask for all that is left at once, the oldest of it as a list; whether that is something else."""
        is_other = len(self._parts) > 1
        self._parts = [join_parts(self._parts)]
        return is_other

    def _ask_otherwise(self, answered: NoNoteError) -> bool:
        """Do otherwise what was not answered with a note; whether there is a way."""
        if answered.was_cut and self._completion_factor < REASONING_FACTOR:
            self._completion_factor = REASONING_FACTOR
            return True
        return self._change_form() or self._join()

    def _learn(self, parameter: Parameter | None) -> None:
        """Do otherwise what was refused."""
        if parameter == "temperature" and self._temperature is not None:
            self._temperature = None
        elif parameter == "completion_limit" and not self._is_reasoning:
            self._is_reasoning, self._completion_factor = True, REASONING_FACTOR
        elif not self._change_form():
            self._forms = [None]
            self._input_tokens //= 2
            self._is_split = False

    def _change_form(self) -> bool:
        """Go over to the form that was not tried yet; whether there is one."""
        if len(self._forms) == 1:
            return False
        del self._forms[0]
        return True

    async def _write_body(self) -> bytes:
        summariser = self._task.summariser
        inline = self._forms[0]
        if inline is not None:
            body = await asyncio.to_thread(inline.write, self._make_question(self._parts[-1]))
            if body is not None:
                self._prompt_tokens = inline.tokens
                return body
            if not self._change_form():
                message = "no other form"
                raise NoSummaryError(message)
        prompt = await asyncio.to_thread(self._write_prompt)
        return summariser.codec.ask(self._make_question(self._parts[0]), prompt)

    def _make_question(self, asked: SummaryRequest) -> Question:
        summariser = self._task.summariser
        max_tokens = ceil(asked.max_tokens * summariser.token_ratio) * self._completion_factor
        return Question(summariser.model, max_tokens, self._temperature, self._is_reasoning)

    def _write_prompt(self) -> str:
        """The question for the first part that is left; what is left is split anew if questions became shorter."""
        count, tokens, base_text = self._task.count, self._input_tokens, self._base_text
        if not self._is_split:
            left, most = join_parts(self._parts), MOST_PARTS - self._told
            self._parts = split_request(left, base_text=base_text, max_tokens=tokens, most=most, count=count)
            self._is_split = True
        prompt = write_prompt(self._parts[0], base_text=base_text, max_tokens=tokens, count=count)
        self._prompt_tokens = count(prompt)
        return prompt

    async def _call(self, body: bytes) -> str:
        """One request; raises NoSummaryError, or an error of the connection."""
        summariser = self._task.summariser
        tokens = round(summariser.token_ratio * self._prompt_tokens)
        form: Form = "transcript" if self._forms[0] is None else "inline"
        started = asyncio.get_running_loop().time()
        with SummaryCall(self._calls, summariser.label, form, tokens) as call:
            try:
                answer = await self._send(body, call)
                return await asyncio.to_thread(self._read_note, answer, call)
            except asyncio.CancelledError:
                if self._timeout.expired():
                    call.result = "timed_out"
                raise
            finally:
                seconds = asyncio.get_running_loop().time() - started
                self._slowest_seconds = max(self._slowest_seconds, seconds)

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
        enough = ceil(request.max_tokens * OWN_FORM_SHARE) if request.instructions else None
        return accept_note(completion, covered_tokens, self._task.count, enough_tokens=enough)

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


def has_time(left_seconds: float, slowest_seconds: float) -> bool:
    """Whether there is time for one more part and then for the last one, if each takes as long as the slowest did."""
    return left_seconds > 2 * slowest_seconds


def _order_forms(task: Task) -> list[Inline | None]:
    """The forms to ask in, the first choice first; None is the transcript."""
    if task.inline is None:
        return [None]
    return [None, task.inline] if task.summariser.settings.request == "transcript" else [task.inline, None]
