"""Asks a model for a summary.

Law: at most one successful call for each part of a transcript, and three failed calls in all, apart from one for each
parameter that is refused and not known to be, and one for the provider's own note. After each refusal, the next attempt
differs: another form, a changed parameter, or half of the input.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import ceil, inf
from typing import Literal

import aiohttp
import msgspec
from multidict import CIMultiDict
from yarl import URL

from trimtab.proxy.catalogue.prompt_caches import Asked
from trimtab.proxy.config.policy import SummaryConfig
from trimtab.proxy.config.schema import UpstreamConfig
from trimtab.proxy.http.client import UpstreamClient
from trimtab.proxy.http.errors import ProxyError
from trimtab.proxy.http.headers import add_to_lists
from trimtab.proxy.summaries.calls import (
    NO_PAYER,
    BusyError,
    Form,
    LateError,
    NoNoteError,
    NoSummaryError,
    Payer,
    RefusedError,
    SummaryCall,
    SummaryCalls,
    accept_note,
    accept_provided,
    name_reason,
    read_answer,
    read_completion,
)
from trimtab.proxy.summaries.sealing import derive_id
from trimtab.proxy.wire.answering import Completion, ProviderNote, Question
from trimtab.proxy.wire.answers.usage import believe
from trimtab.proxy.wire.codec import Codec
from trimtab.rules.conversation import CountTokens
from trimtab.rules.summary.facts import list_sources, mark_unverified
from trimtab.rules.summary.prompts import join_parts, split_request, write_prompt
from trimtab.rules.summary.request import Summary, SummaryRequest
from trimtab.rules.text.head_tail import truncate_text

ATTEMPTS = 3  # Failed calls for one summary at most. Chosen: one for each thing that an attempt can change.
BUSY_WAITS = 5  # For a busy upstream, for one summary at most. Chosen: they add up to 31 seconds.
FIRST_WAIT_SECONDS = 1.0  # The first wait if the upstream names none; each further one is twice as long. Chosen.
MOST_PARTS = 8
"""Successful calls for one summary at most. If a transcript needs more questions, the first one lists the oldest
messages. Chosen: within the default timeout of 60 seconds, a usual model has no time for more."""
OWN_FORM_SHARE = 1 / 20  # Of a note's tokens: no headings needed with own instructions. Chosen: excludes refusals.
REASONING_FACTOR = 4  # On `max_tokens` for models that think within their completion. Chosen: usual reasoning is less.
REASONING_SIGN = "max_tokens"  # Models that think refuse this name of the limit. Source: OpenAI's API.
PROVIDED = "provided"  # Kept beside the refused parameters of an upstream that writes no notes of its own
_SETTLED = "settled"  # Kept beside the refused parameters once it is clear that no other one is refused


class Inline(msgspec.Struct, frozen=True):
    """The inline form: the client's own messages and a question, which reads the upstream's prompt cache.

    `write` makes the body; None if the request does not allow it. `tokens`: its prompt, roughly, in our tokens.
    `headers`: to send in addition; their values are lists.
    provided: how the provider is asked for its own note first, behind the same messages; None if it is not.
    weigh: the tokens of such a note, if this is that question; else None.
    room_tokens: what the window leaves for the answer, in the model's tokens; None if that is not known.
    """

    write: Callable[[Question], bytes | None]
    tokens: int
    headers: tuple[tuple[str, str], ...] = ()
    provided: "Inline | None" = None
    weigh: Callable[[bytes], int] | None = None
    room_tokens: int | None = None


class Apart(msgspec.Struct, frozen=True):
    """The prompt as the only message, in a request of the client's session. tokens: of its system messages, in ours."""

    write: Callable[[Question, str], bytes | None]
    tokens: int


@dataclass(frozen=True, slots=True)
class Summariser:
    """Which model to ask for a summary, in which dialect, and with which credential.

    find_headers: makes those of a question: the credential, and at the request's own upstream all that belongs to the
        client's session. Most requests with a cut ask nothing.
    secret: the summary's id and encryption key are derived from it.
    find_window_tokens: finds the bound of a question, in our tokens. answer_tokens: that of an answer.
    token_ratio: the model's own tokens for one of ours.
    few_slots: the question would take a slot, and the prompt in its cache, from the clients of the server.
    provider: how the provider's own note is asked for; None if it is not.
    payer: who bears the cost, at which prices, and under which label.
    others: who is asked, in order, if this one writes nothing. A summary's id is that of the first one, whoever wrote.
    """

    codec: Codec
    upstream: UpstreamConfig
    url: URL
    find_headers: Callable[[], CIMultiDict[str]] = field(repr=False, compare=False)
    secret: bytes
    model: str
    find_window_tokens: Callable[[], int] = field(repr=False, compare=False)
    answer_tokens: int
    settings: SummaryConfig
    token_ratio: float = 1.0
    is_reasoning: bool = False
    few_slots: bool = False
    provider: ProviderNote | None = None
    payer: Payer = NO_PAYER
    others: "tuple[Summariser, ...]" = ()

    @property
    def client_id(self) -> str:
        return self.name_summary("")

    @property
    def window_tokens(self) -> int:
        """The bound of a question, in our tokens."""
        return self.find_window_tokens()

    @property
    def when(self) -> Literal["background", "idle", "needed", "never"]:
        """When this model is asked (see `SummaryConfig.when`)."""
        if self.settings.when != "auto":
            return self.settings.when
        return "idle" if self.few_slots else "background"

    @property
    def waits(self) -> bool:
        """Whether a request may wait for a summary of this model."""
        return self.when in {"background", "needed"}

    @property
    def patience_seconds(self) -> float:
        timeout_seconds, wait_seconds = self.settings.timeout_seconds, self.settings.wait_seconds
        return timeout_seconds if wait_seconds is None else min(wait_seconds, timeout_seconds)

    @property
    def asked(self) -> Asked:
        """The name under which refused parameters are remembered."""
        return self.client_id, self.upstream.base_url, f"{self.codec.name} {self.model}"

    def name_summary(self, key: str) -> str:
        if self.provider is not None:  # only this upstream surely reads its notes, in this dialect
            key = f"{self.codec.name}:{self.upstream.base_url}:{key}"
        return derive_id(self.secret, key, self.model, self.settings.instructions)


class Task(msgspec.Struct, frozen=True):
    """A summary to write: a digest if `may_ask` is false or the cut needs no model. `inline`: None if impossible."""

    request: SummaryRequest
    summariser: Summariser
    count: CountTokens
    inline: Inline | None = None
    apart: Apart | None = None  # None if the prompt is sent without anything of the client's request
    may_ask: bool = True
    has_others: bool = False  # another model is asked if this one is busy


async def ask_model(
    task: Task, base_text: str | None, client: UpstreamClient, calls: SummaryCalls, seconds: float | None = None
) -> Summary:
    """Ask for a note after `base_text`, and check its facts. seconds: None as configured.

    Raises NoSummaryError. If a second attempt is cancelled, the first one's error is the cause.
    """
    seconds = task.summariser.settings.timeout_seconds if seconds is None else seconds
    try:
        async with asyncio.timeout(seconds) as timeout:
            summary = await _Asking(task, base_text, client, calls, timeout).run()
    except TimeoutError as error:
        raise LateError(name_reason(error)) from error
    except (ProxyError, aiohttp.ClientError, OSError) as error:
        raise NoSummaryError(name_reason(error)) from error
    if summary.note:
        return summary
    return replace(summary, text=await asyncio.to_thread(_finish, summary.text, task, base_text))


def _finish(text: str, task: Task, base_text: str | None) -> str:
    """Shorten and check a note. It is shortened first, so that only what stays is checked."""
    request = task.request
    checked = mark_unverified(truncate_text(text, request.max_tokens, task.count), list_sources(request, base_text))
    return truncate_text(checked, request.max_tokens, task.count)


class _Asking:
    """The attempts at one summary, and what they have learned."""

    def __init__(
        self, task: Task, base_text: str | None, client: UpstreamClient, calls: SummaryCalls, timeout: asyncio.Timeout
    ) -> None:
        self._task = task
        # A model with a small window may not be able to write as much as the cut has reserved.
        max_tokens = min(task.request.max_tokens, task.summariser.answer_tokens)
        self._parts = [replace(task.request, max_tokens=max_tokens)]
        self._base_text = base_text
        self._is_split = False
        self._told = 0
        self._slowest_seconds = 0.0
        self._failed: NoSummaryError | None = None
        self._client = client
        self._calls = calls
        self._timeout = timeout
        self._refused = calls.refusals.find(task.summariser.asked, time.monotonic())
        self._forms = _order_forms(task, asks_provider=PROVIDED not in self._refused)
        self._is_inline_only = None not in self._forms
        self._input_tokens = task.summariser.window_tokens - (task.apart.tokens if task.apart else 0)
        self._prompt_tokens = 0
        self._waits = 0
        self._suspected: frozenset[str] = frozenset()
        self._completion_factor = REASONING_FACTOR if self._is_reasoning else 1

    @property
    def _is_reasoning(self) -> bool:
        return self._task.summariser.is_reasoning or REASONING_SIGN in self._refused | self._suspected

    @property
    def _weigh(self) -> Callable[[bytes], int] | None:
        """The tokens of a provider's own note, while that is asked for."""
        return None if self._forms[0] is None else self._forms[0].weigh

    async def run(self) -> Summary:
        failures = 0
        while True:
            question, body = await self._write_body()
            try:
                note = await self._call(question, body)
            except BusyError as error:
                await self._wait_for(error)
            except NoSummaryError as error:
                if self._leave_provider(error) or self._leave_out(error, question, body):
                    continue
                failures, self._failed = failures + 1, error
                if not self._change(error) or failures == ATTEMPTS:
                    raise
            else:
                self._keep()
                if self._forms[0] is not None or len(self._parts) == 1:
                    return note
                self._go_on(note.text)

    def _leave_provider(self, error: NoSummaryError) -> bool:
        """Ask a question of our own, if it was the provider that gave no note. That it writes none is remembered."""
        if self._weigh is None:
            return False
        if isinstance(error, RefusedError) and error.lacks_notes:
            self._remember(frozenset({PROVIDED}))
        del self._forms[0]
        return True

    async def _wait_for(self, busy: BusyError) -> None:
        """Wait until the upstream may be asked again. Raises the error if there is no time, or another model to ask."""
        seconds = FIRST_WAIT_SECONDS * 2**self._waits if busy.seconds is None else busy.seconds
        left_seconds = (self._timeout.when() or inf) - asyncio.get_running_loop().time()
        if self._task.has_others or self._waits >= BUSY_WAITS or left_seconds <= seconds + self._slowest_seconds:
            raise busy
        self._waits += 1
        await asyncio.sleep(seconds)

    def _change(self, error: NoSummaryError) -> bool:
        """Change the next attempt; return whether there is anything to change."""
        if isinstance(error, NoNoteError):
            self._keep()
            if error.was_cut and self._completion_factor < REASONING_FACTOR:
                self._completion_factor = REASONING_FACTOR
                return True
            return self._change_form() or self._join()
        if not isinstance(error, RefusedError) or error.is_final:
            return False
        if not self._change_form():
            if self._is_inline_only:
                return False
            self._forms, self._is_split = [None], False
            self._input_tokens //= 2  # the prompt may be too long
        return True

    def _leave_out(self, refused: NoSummaryError, question: Question, body: bytes) -> bool:
        """Leave a refused parameter out, or each suspect once, or change it; return whether there is another try."""
        if not isinstance(refused, RefusedError):
            return False
        if refused.form is not None and refused.form not in question.refused:
            self._remember(frozenset({refused.form}))
            return True
        if not refused.is_unclear or _SETTLED in self._refused:
            return False
        codec = self._task.summariser.codec
        sent = [form for form in codec.list_parameters(question) if b'"%b"' % form.partition("=")[0].encode() in body]
        if sent:
            self._suspected |= {sent[0]}
            return True
        self._suspected = frozenset()
        self._keep()
        return False

    def _keep(self) -> None:
        """Remember what was left out, now that it is clear what is refused."""
        if _SETTLED not in self._refused:
            self._remember(self._suspected | {_SETTLED})

    def _remember(self, refused: frozenset[str]) -> None:
        was_reasoning = self._is_reasoning
        self._calls.refusals.keep(self._task.summariser.asked, refused, time.monotonic())
        self._refused |= refused
        if self._is_reasoning and not was_reasoning:
            self._completion_factor = REASONING_FACTOR

    def _go_on(self, note: str) -> None:
        """Go on to the next part, with the note on the parts before it; to all the rest at once if time is short."""
        self._base_text = note
        del self._parts[0]
        self._told += 1
        now = asyncio.get_running_loop().time()
        if not has_time(now, self._timeout.when() or inf, self._slowest_seconds):
            self._join()

    def _join(self) -> bool:
        """Ask for all remaining parts in one question, the oldest as a list; return whether that changes anything."""
        is_other = len(self._parts) > 1
        self._parts = [join_parts(self._parts)]
        return is_other

    def _change_form(self) -> bool:
        """Change to the form that was not tried yet; return whether there is one."""
        if len(self._forms) == 1:
            return False
        del self._forms[0]
        return True

    async def _write_body(self) -> tuple[Question, bytes]:
        summariser, apart = self._task.summariser, self._task.apart
        while (inline := self._forms[0]) is not None:
            question = self._make_question(self._parts[-1], inline.room_tokens)
            body = await asyncio.to_thread(inline.write, question)
            if body is not None:
                self._prompt_tokens = inline.tokens
                return question, body
            if not self._change_form():
                raise NoSummaryError("no other form")
        prompt = await asyncio.to_thread(self._write_prompt)
        question = self._make_question(self._parts[0])
        body = None if apart is None else await asyncio.to_thread(apart.write, question, prompt)
        return question, summariser.codec.ask(question, prompt) if body is None else body

    def _make_question(self, asked: SummaryRequest, room_tokens: int | None = None) -> Question:
        summariser = self._task.summariser
        factor = self._completion_factor if self._weigh is None else REASONING_FACTOR  # its thinking counts, too
        note_tokens = ceil(asked.max_tokens * summariser.token_ratio)
        # To think, a model has what the window leaves: some servers refuse a question that asks for more.
        most_tokens = note_tokens * factor if room_tokens is None else max(note_tokens, room_tokens)
        max_tokens = min(note_tokens * factor, most_tokens)
        refused, temperature = self._refused | self._suspected, summariser.settings.temperature
        return Question(summariser.model, max_tokens, temperature, self._is_reasoning, refused)

    def _write_prompt(self) -> str:
        """Write the question for the first remaining part; split the rest again if questions must be shorter."""
        count, tokens, base_text = self._task.count, self._input_tokens, self._base_text
        if not self._is_split:
            left, most = join_parts(self._parts), MOST_PARTS - self._told
            self._parts = split_request(left, base_text=base_text, max_tokens=tokens, most=most, count=count)
            self._is_split = True
        prompt = write_prompt(self._parts[0], base_text=base_text, max_tokens=tokens, count=count)
        self._prompt_tokens = count(prompt) + (self._task.apart.tokens if self._task.apart else 0)
        return prompt

    async def _call(self, question: Question, body: bytes) -> Summary:
        """Make one call. Raises NoSummaryError, or an error of the connection."""
        summariser = self._task.summariser
        tokens = round(summariser.token_ratio * self._prompt_tokens)
        asked = self._forms[0]
        form: Form = "transcript" if asked is None else "inline" if asked.weigh is None else "provider"
        started = asyncio.get_running_loop().time()
        place = summariser.url, summariser.codec.name
        with SummaryCall(self._calls, summariser.payer, form, tokens, place) as call:
            try:
                answer = await self._send(body, call)
                return await asyncio.to_thread(self._read_note, question, answer, call)
            except asyncio.CancelledError as given_up:
                if self._timeout.expired():
                    call.result = "timed_out"
                raise given_up from self._failed
            finally:
                self._slowest_seconds = max(self._slowest_seconds, asyncio.get_running_loop().time() - started)

    async def _send(self, body: bytes, call: SummaryCall) -> bytes:
        summariser, headers = self._task.summariser, self._task.summariser.find_headers()
        headers["Content-Type"] = "application/json"
        headers["Accept"] = "application/json, text/event-stream"
        if self._forms[0] is not None:
            add_to_lists(headers, self._forms[0].headers)
        if call.span is not None:
            call.span.write_into(headers)
        url = summariser.url
        if self._weigh is not None and summariser.provider is not None:
            base, mark, query = str(url).partition("?")  # the target of a request is one piece in it
            url = URL(f"{base}{summariser.provider.path}{mark}{query}", encoded=True)
        async with self._client.send("POST", url, headers, body, summariser.upstream) as response:
            call.status = response.status
            return await read_answer(response)

    def _read_note(self, question: Question, answer: bytes, call: SummaryCall) -> Summary:
        """Read the note in an answer, and count its cost. Raises NoSummaryError if there is none."""
        summariser, request, weigh = self._task.summariser, self._task.request, self._weigh
        provider = None if weigh is None else summariser.provider
        completion = read_completion(call.status or 0, answer, summariser.codec, question, provider)
        self._record_cost(completion, call, len(answer))
        if weigh is not None:
            return accept_provided(completion, weigh, request.room_tokens)
        covered_tokens = sum(message.tokens for message in (*request.earlier, *request.span))
        enough = ceil(request.max_tokens * OWN_FORM_SHARE) if request.instructions else None
        text = accept_note(completion, covered_tokens, self._task.count, enough_tokens=enough)
        return Summary(text, by_model=True)

    def _record_cost(self, completion: Completion, call: SummaryCall, answer_bytes: int) -> None:
        """Record the tokens that the upstream reports if they can be true, else those that we count."""
        ratio, payer = self._task.summariser.token_ratio, self._task.summariser.payer
        most_tokens = max(self._task.summariser.window_tokens, call.prompt_tokens)
        usage = believe(completion.usage, answer_bytes=answer_bytes, window_tokens=most_tokens)
        self._calls.metrics.vouch_for(payer.vouched)
        call.model = payer.label  # another one, if this is the model's first answer
        call.usage = usage
        counted = usage.completion_tokens
        call.completion_tokens = round(ratio * self._task.count(completion.text)) if counted is None else counted
        if usage.prompt_tokens is not None:
            call.prompt_tokens = usage.prompt_tokens
        call.charge(usage.cached_tokens, usage.written_tokens, payer)


def has_time(now: float, stop: float, slowest_seconds: float) -> bool:
    """Whether there is time for two more calls as slow as the slowest one so far."""
    return stop - now > 2 * slowest_seconds


def _order_forms(task: Task, *, asks_provider: bool) -> list[Inline | None]:
    """The forms to try, best first; None is the transcript form. `asks_provider`: it may write a note of its own."""
    if task.inline is None:
        return [None]
    if task.inline.provided is not None and asks_provider:
        return [task.inline.provided, *_order_forms(task, asks_provider=False)]
    if task.summariser.settings.request == "transcript":
        return [None, task.inline]
    # A transcript would take a session's prompt out of the cache of a slot.
    return [task.inline] if task.summariser.few_slots else [task.inline, None]
