"""Summaries: from the store, from a call under way, or from a new one.

Law: whoever asks gets a text; where no model's summary is to be had, the digest. A text can be found only with the
credential that paid for it. One call for one summary, however many ask.
"""

import asyncio
import re
import time
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec
import orjson
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from multidict import CIMultiDict
from yarl import URL

from proxy.config import SummaryConfig, UpstreamConfig
from proxy.errors import ProxyError
from proxy.lru import BytesLRU
from proxy.metrics import Metrics
from proxy.stores import SummaryStore
from proxy.stream import Usage
from proxy.upstream import UpstreamClient
from rules.conversation import CountTokens
from rules.summarise import PROMPT_VERSION, Summary, SummaryRequest, make_digest, write_prompt
from rules.truncate import truncate_text

ATTEMPTS = 3
"""Calls for one summary at most; each refusal halves its input, or drops what the upstream refused."""
REFUSED = frozenset({400, 413, 422, 500})
"""Statuses with which servers answer a prompt that is too long or a parameter that they do not know."""
MAX_ANSWER_BYTES = 4 * 1024 * 1024
PAUSE_SECONDS = 15.0
"""After a failed summary, doubled with each further one, the digest stands in without a call."""
MAX_PAUSE_SECONDS = 600.0
REASONING_FACTOR = 4
"""Models that want `max_completion_tokens` think first, and their thinking counts against it."""
_SCOPES_BYTES = 1024 * 1024
_THINKING = re.compile(r"\A\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Summariser:
    """Whom to ask for a summary, and on whose account.

    `headers` are the client's credential headers, empty for an upstream with a key of its own. `window_tokens` is
    what the summariser's prompt may have.
    """

    upstream: UpstreamConfig
    url: URL
    headers: tuple[tuple[str, str], ...]
    credential: str
    model: str
    max_tokens_key: str
    window_tokens: int
    label: str
    settings: SummaryConfig


@dataclass(frozen=True, slots=True)
class _Pause:
    failures: int
    until: float


class _RefusedError(Exception):
    """The summariser's upstream refused the request; `param` is what it names as the reason, if it names one."""

    def __init__(self, status: int, param: str | None) -> None:
        super().__init__(f"status {status}")
        self.param = param


class _FailedError(Exception):
    """There is no summary to be had; the message says why, in one word, for the metrics' log."""


def derive_id(credential: str, prefix_hash: str, model: str) -> str:
    """The id of a summary: HKDF-SHA256 of the credential, bound to the prefix, the prompt and the model."""
    info = f"{prefix_hash}\0{PROMPT_VERSION}\0{model}".encode("utf-8", "surrogatepass")
    hkdf = HKDF(algorithm=SHA256(), length=32, salt=b"trimtab summary id", info=info)
    return hkdf.derive(credential.encode("utf-8", "surrogatepass")).hex()


class Summaries:
    """Gets summaries; owns the calls under way. Close it when done."""

    def __init__(self, store: SummaryStore, client: UpstreamClient, metrics: Metrics) -> None:
        self._store = store
        self._client = client
        self._metrics = metrics
        self._under_way: dict[str, asyncio.Task[Summary]] = {}
        self._pauses: BytesLRU[str, _Pause] = BytesLRU(_SCOPES_BYTES, lambda scope, _: len(scope))

    async def get(self, request: SummaryRequest, summariser: Summariser, count: CountTokens) -> Summary:
        """The text for a cut. A caller that leaves does not stop the call: its summary is paid for."""
        summary_id = derive_id(summariser.credential, request.key, summariser.model)
        summary = await self._store.get(summary_id)
        if summary is not None:
            self._metrics.summaries.labels(summariser.label, "hit").inc()
            return summary
        task = self._under_way.get(summary_id)
        if task is None:
            # Not of the caller's own: it outlives a client that leaves, and close() ends it.
            task = asyncio.get_running_loop().create_task(self._make(summary_id, request, summariser, count))
            self._under_way[summary_id] = task
            task.add_done_callback(lambda _: self._under_way.pop(summary_id, None))
        else:
            self._metrics.summaries.labels(summariser.label, "joined").inc()
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Give up the calls under way."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _make(
        self, summary_id: str, request: SummaryRequest, summariser: Summariser, count: CountTokens
    ) -> Summary:
        """A new text, kept in the store: the model's, else the digest."""
        base: Summary | None = None
        if request.base is not None:
            base = await self._store.get(derive_id(summariser.credential, request.base, summariser.model))
        base_text = base.text if base is not None else None
        text = await self._try_model(request, base_text, summariser, count) if request.asks_model else None
        self._metrics.summaries.labels(summariser.label, "digest" if text is None else "made").inc()
        if text is not None:
            return await self._store.put(summary_id, Summary(text, by_model=True))
        text = await asyncio.to_thread(make_digest, request, base_text=base_text, count=count)
        return await self._store.put(summary_id, Summary(text, by_model=False))

    async def _try_model(
        self, request: SummaryRequest, base_text: str | None, summariser: Summariser, count: CountTokens
    ) -> str | None:
        """The model's text; None where it is not to be had, or where failures before this one ask for a pause."""
        scope = derive_id(summariser.credential, "", summariser.model)
        pause = self._pauses.get(scope)
        if pause is not None and time.monotonic() < pause.until:
            return None
        try:
            async with asyncio.timeout(summariser.settings.timeout_seconds):
                text = await self._ask(request, base_text, summariser, count)
        except (TimeoutError, ProxyError, aiohttp.ClientError, OSError, _RefusedError, _FailedError):
            self._pauses[scope] = _lengthen(pause)
            self._metrics.summaries.labels(summariser.label, "failed").inc()
            return None
        self._pauses[scope] = _Pause(0, 0.0)
        return text

    async def _ask(
        self, request: SummaryRequest, base_text: str | None, summariser: Summariser, count: CountTokens
    ) -> str:
        """The model's text. Each refusal teaches the next attempt: a parameter changed, or half of the input."""
        parameters: dict[str, Any] = {"temperature": summariser.settings.temperature}
        parameters[summariser.max_tokens_key] = _completion_tokens(summariser.max_tokens_key, request)
        input_tokens = summariser.window_tokens
        refusal: _RefusedError | None = None
        for _ in range(ATTEMPTS):
            prompt = await asyncio.to_thread(
                write_prompt, request, base_text=base_text, max_tokens=input_tokens, count=count
            )
            messages = [{"role": "user", "content": prompt}]
            body = {"model": summariser.model, "messages": messages, **parameters, "stream": False}
            try:
                text = await self._call(summariser, orjson.dumps(body))
            except _RefusedError as refused:
                refusal = refused
                if refused.param == "temperature":
                    parameters.pop("temperature", None)
                elif refused.param == "max_tokens" and parameters.pop("max_tokens", None):
                    key = "max_completion_tokens"
                    parameters[key] = _completion_tokens(key, request)
                else:
                    input_tokens //= 2
                continue
            return await asyncio.to_thread(_accept, text, request, count)
        raise refusal or _FailedError

    async def _call(self, summariser: Summariser, body: bytes) -> str:
        """One request for a summary; raises _RefusedError, _FailedError, or an error of the connection."""
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
                raise _FailedError(message)
        return self._read_text(answer, summariser.label)

    def _read_text(self, answer: bytes, label: str) -> str:
        """The summary in an answer, its cost counted. Raises _FailedError where there is none."""
        try:
            decoded = msgspec.json.decode(answer, type=_Completion)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            message = "unreadable"
            raise _FailedError(message) from error
        if decoded.usage is not None:
            self._metrics.summary_tokens.labels(label, "prompt").inc(max(decoded.usage.prompt_tokens or 0, 0))
            self._metrics.summary_tokens.labels(label, "completion").inc(max(decoded.usage.completion_tokens or 0, 0))
        text = decoded.choices[0].message.content if decoded.choices else None
        text = _THINKING.sub("", text or "").strip()
        if not text:
            message = "empty"
            raise _FailedError(message)
        return text


def _accept(text: str, request: SummaryRequest, count: CountTokens) -> str:
    """A model's text within the reserve. Raises _FailedError where it is longer than what it stands for."""
    if count(text) >= sum(message.tokens for message in (*request.earlier, *request.span)):
        message = "does not shrink"
        raise _FailedError(message)
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


def _completion_tokens(key: str, request: SummaryRequest) -> int:
    return request.max_tokens * (REASONING_FACTOR if key == "max_completion_tokens" else 1)


async def _read_bounded(response: aiohttp.ClientResponse) -> bytes:
    answer = bytearray()
    async for chunk in response.content.iter_any():
        answer += chunk
        if len(answer) > MAX_ANSWER_BYTES:
            message = "too long"
            raise _FailedError(message)
    return bytes(answer)


def _read_param(answer: bytes) -> str | None:
    """Which parameter an OpenAI error names."""
    try:
        return msgspec.json.decode(answer, type=_ErrorAnswer).error.param
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _lengthen(pause: _Pause | None) -> _Pause:
    failures = pause.failures + 1 if pause else 1
    seconds = min(PAUSE_SECONDS * 2 ** min(failures - 1, 10), MAX_PAUSE_SECONDS)
    return _Pause(failures, time.monotonic() + seconds)
