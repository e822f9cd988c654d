"""The face of `import trimtab`: the messages of an agent in, the messages to send out.

Law: the same engine as the proxy's (engine.py). No I/O but the loading of a vocabulary; a model is asked only through
the function that the caller gives. What is returned for a transcript that has grown begins with what was returned
before, except where a cut moves.
"""

import asyncio
import inspect
import json  # noqa: TID251 - it writes what orjson refuses
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from typing import Any, Protocol

import msgspec
import orjson

from trimtab.proxy.catalogue.prices import read_prices
from trimtab.proxy.compaction import engine
from trimtab.proxy.compaction.pool import load_compactor
from trimtab.proxy.config.policy import PolicyConfig, PricesConfig
from trimtab.proxy.config.validation import Overlaid, check_policy, validate
from trimtab.proxy.lru import BytesLRU
from trimtab.proxy.wire.codec import Request, UndecodableError
from trimtab.proxy.wire.dialects import name_codec
from trimtab.proxy.wire.json import decode_any
from trimtab.rules.conversation import Decision
from trimtab.rules.pipeline.plan import Plan
from trimtab.rules.policy import Policy, Prices
from trimtab.rules.summary.handoff import read_given
from trimtab.rules.summary.prompts import write_prompt
from trimtab.rules.summary.request import Summary, make_digest
from trimtab.rules.summary.request import SummaryRequest as Wanted

SUMMARIES_BYTES = 16 * 1024 * 1024
"""Chosen: the summaries of some thousand sessions."""


class Summaries(Protocol):
    """Where the texts of summaries are kept, by the keys of their cuts. A dict is one."""

    def get(self, key: str, /) -> str | None:
        """The text of a cut; None if it has none."""

    def __setitem__(self, key: str, text: str, /) -> None: ...


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """A question to a model, whose answer replaces the digest of a cut.

    key: names the cut. It stays the same until the cut moves.
    max_tokens: the most that the answer may have.
    """

    key: str
    max_tokens: int
    _write: Callable[[], str] = field(repr=False, compare=False)

    @property
    def prompt(self) -> str:
        """The question, as the text of one user message, with the transcript in it. Written whenever it is read."""
        return self._write()


Summarise = Callable[[SummaryRequest], str | Awaitable[str | None] | None]
"""Asks a model. None if it has no answer: then the digest stays in that cut."""


class Tokens(msgspec.Struct, frozen=True):
    """Tokens of a prompt before and after compaction, and the most that it may have."""

    original: int
    sent: int
    limit: int


@dataclass(frozen=True, slots=True)
class Result:
    """What to send.

    messages: those that were not changed are the caller's own objects.
    summary_request: the question for a model's summary, while a digest stands for it; else None.
    members: the other members of the request, `system` and `instructions` among them.
    with_summary: makes the result with a model's answer to `summary_request`, which is kept: the first one counts, also
        for later calls. Without an answer (None, or a refusal) the digest stays.
    explain: says what was done, in sentences.
    """

    messages: list[Any]
    decisions: tuple[Decision, ...]
    tokens: Tokens
    summary_request: SummaryRequest | None
    members: Mapping[str, Any] = field(repr=False)
    with_summary: "Callable[[str | None], Result]" = field(repr=False, compare=False)
    explain: Callable[[], list[str]] = field(repr=False, compare=False)


class Compactor:
    """Compacts the messages of one client. Keep it: what it has counted and decided is not done again. Thread-safe.

    policy: None for the defaults; `make_policy` makes one from keys of the configuration.
    model: decides how tokens are counted. dialect: `chat`, `responses` or `messages`.
    summarise: asks a model for the summary of a cut; without it, a digest stands in, which needs no model.
    summaries: where answers are kept; None for the memory of this object.

    Raises VocabularyError, ValueError for an unknown dialect, and TypeError for a value of another type.
    """

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        model: str = "",
        dialect: str = "chat",
        summarise: Summarise | None = None,
        summaries: Summaries | None = None,
        vocabulary: str = "auto",
    ) -> None:
        for name, value, kind in (("policy", policy, Policy | None), ("model", model, str), ("dialect", dialect, str)):
            if not isinstance(value, kind):
                wanted = "a Policy (make_policy makes one)" if name == "policy" else "a text"
                message = f"{name} must be {wanted}, not {value!r:.40}"
                raise TypeError(message)
        self._codec = name_codec(dialect)
        self._model = model
        self._variant = engine.Variant(load_compactor(model, vocabulary=vocabulary), policy or Policy())
        self._summarise = summarise
        kept: BytesLRU[str, str] = BytesLRU(SUMMARIES_BYTES, lambda key, text: len(key) + 4 * len(text))
        self._texts: Summaries = kept if summaries is None else summaries
        self._unanswered: BytesLRU[str, bool] = BytesLRU(SUMMARIES_BYTES, lambda key, _: len(key))

    def compact(self, messages: Sequence[Any], **members: Any) -> Result:
        """Compact the messages of a request, oldest first.

        members: its other members, such as `tools`, `system`, `instructions` or `max_tokens`: they cost tokens, too.

        Raises UndecodableError; LimitExceededError if the policy refuses what does not fit; TypeError if `messages` is
        no list, or `summarise` must be awaited; and what `summarise` raises.
        """
        result = self._compact(_read_list(messages), members)
        if self._summarise is None or result.summary_request is None:
            return result
        text = self._summarise(result.summary_request)
        if inspect.isawaitable(text):
            if inspect.iscoroutine(text):
                text.close()  # else Python warns that it was never awaited
            message = "summarise must be awaited: call compact_async"
            raise TypeError(message)
        return result.with_summary(text)

    async def compact_async(self, messages: Sequence[Any], **members: Any) -> Result:
        """As `compact`, for an event loop: the work is done in a thread, and `summarise` may be a coroutine."""
        result = await asyncio.to_thread(self._compact, _read_list(messages), members)
        if self._summarise is None or result.summary_request is None:
            return result
        text = self._summarise(result.summary_request)
        return await asyncio.to_thread(result.with_summary, await text if inspect.isawaitable(text) else text)

    def _compact(self, messages: list[Any], members: Mapping[str, Any]) -> Result:
        body = {"model": self._model, **members, self._codec.transcript: messages}
        request = self._codec.read(_write(body))
        return self._carry_out(request, messages)

    def _carry_out(self, request: Request, messages: list[Any]) -> Result:
        compaction = engine.compact(request, self._variant, self._choose)
        if compaction.refusal is not None:
            raise compaction.refusal
        compacted, asked = compaction.compacted, self._ask(compaction.text.plan)
        left, members = _read_back(request, messages, compacted.body)
        return Result(
            messages=left,
            decisions=compacted.decisions,
            tokens=Tokens(compacted.original_tokens, compacted.sent_tokens, compacted.limit_tokens),
            summary_request=asked,
            members=members,
            with_summary=partial(self._answer, request, messages, asked),
            explain=lambda: [sentence.text for sentence in compaction.tell().sentences],
        )

    def _answer(self, request: Request, messages: list[Any], asked: SummaryRequest | None, text: str | None) -> Result:
        if asked is not None:
            if not (note := read_given(text)):
                self._unanswered[asked.key] = True
            elif self._texts.get(asked.key) is None:
                self._texts[asked.key] = note
        return self._carry_out(request, messages)

    def _choose(self, plan: Plan) -> engine.Text:
        wanted = plan.request
        if wanted is None:
            return engine.Text(plan)
        if (text := self._texts.get(wanted.key)) is not None:
            return engine.Text(plan, Summary(text, by_model=True))
        if (before := self._find_base(wanted)) is None:
            return engine.Text(plan)
        digest = make_digest(wanted, base=Summary(before, by_model=True), count=self._variant.compactor.count)
        return engine.Text(plan, Summary(digest, by_model=False))

    def _find_base(self, wanted: Wanted) -> str | None:
        return None if wanted.base is None else self._texts.get(wanted.base)

    def _ask(self, plan: Plan) -> SummaryRequest | None:
        wanted, policy, count = plan.request, self._variant.policy, self._variant.compactor.count
        if wanted is None or not wanted.asks_model or wanted.key in self._unanswered:
            return None
        if self._texts.get(wanted.key) is not None:
            return None
        answer_tokens = ceil(wanted.max_tokens * policy.token_ratio)
        before, most = self._find_base(wanted), policy.limit_tokens(answer_tokens)
        write = partial(write_prompt, wanted, base_text=before, max_tokens=most, count=count)
        return SummaryRequest(wanted.key, answer_tokens, write)


_ASKING = "your function `summarise` asks the model, so it decides that"
UNHEEDED: Mapping[str, str] = {
    "upstream": "the library sends nothing; send result.messages where you like",
    "mode": "the library always compacts; to observe, send your own messages and read result.tokens",
    "observe_share": "the library always compacts; decide for each session whether to send result.messages",
    "prices": "the library looks no prices up; give numbers: {input, cached_input, output}",
    "pairing": "the library refuses no request; calls and results are paired, and a decision says so",
    "drop_tools": "leave these tools out of tools=",
    "local_items": "leave these items out of the messages",
    "context_windows": "a compactor has one window; give context_window, and make a compactor for each",
    "recall": "only the proxy can answer the model's calls of a tool; inject works here",
    "recall_without_tools": "only the proxy can answer the model's calls of a tool",
    "count": "give the compactor its vocabulary: Compactor(vocabulary=...)",
    **{
        f"summary.{name}": _ASKING
        for name in ("by", "model", "upstream", "request", "wait_seconds", "timeout_seconds", "temperature")
    },
    "summary.when": "a model is asked when a cut is made; without the function `summarise`, none is",
    "summary.instructions": "add them to asked.prompt in your function `summarise`",
}
"""The keys that need the proxy, each with what to do instead. To say what the library does anyway is no error."""
_ANYWAY = {"mode": "enforce", "recall": "inject"}


def make_policy(**keys: Any) -> Policy:
    """A policy from the keys of `defaults` in the configuration, such as `context_window`, `economy` or `high_water`.

    Raises ValueError, with a line for each problem: a key or a value that the configuration would refuse, or a key that
    only the proxy can heed.
    """
    validated = validate(keys, PolicyConfig)
    config = validated.model or PolicyConfig()
    found = [*validated.problems, *check_policy(Overlaid((), config, config), validated.wrong)]
    problems = [f"{'.'.join(map(str, one.path)) or 'policy'}: {one.words}" for one in found]
    if problems := problems or [f"{name}: {words}" for name, words in UNHEEDED.items() if not _heeds(config, name)]:
        raise ValueError("\n".join(problems))
    prices = config.prices
    return config.to_policy(Prices() if not isinstance(prices, PricesConfig) else read_prices(prices).to_ratios())


def _heeds(config: PolicyConfig, name: str) -> bool:
    """Whether a key of UNHEEDED has no value, or one that asks for nothing that the library does not do."""
    at, default = config, PolicyConfig()
    for step in name.split("."):
        at, default = getattr(at, step), getattr(default, step)
    return at in (default, _ANYWAY.get(name, default)) or isinstance(at, PricesConfig)


def _read_list(messages: Sequence[Any]) -> list[Any]:
    if isinstance(messages, str | bytes | Mapping):
        message = f"messages must be a list of messages, not a {type(messages).__name__}"
        raise TypeError(message)
    return [*messages]


def _write(body: Mapping[str, Any]) -> bytes:
    """The body as JSON. Raises UndecodableError."""
    try:
        return orjson.dumps(body, default=_dump)
    except orjson.JSONEncodeError as error:
        fault = error.__cause__ or error
    try:  # Python's own takes long integers, and lone surrogates, as `surrogateescape` leaves them in outputs
        return json.dumps(body, default=_dump).encode()
    except (TypeError, ValueError, RecursionError):
        raise UndecodableError(str(fault)) from fault


def _dump(value: Any) -> Any:
    if (dump := getattr(value, "model_dump", None)) is None:
        message = f"a {type(value).__name__} is no JSON: {value!r:.80}"
        raise TypeError(message)
    return dump(mode="json", exclude_none=True)


def _read_back(request: Request, messages: list[Any], body: bytes) -> tuple[list[Any], Mapping[str, Any]]:
    """The messages of a compacted body, and its other members. What was not changed is the caller's own object."""
    own: dict[bytes, deque[Any]] = defaultdict(deque)
    for raw, message in zip(request.raws, messages, strict=True):
        own[raw].append(message)
    left = [own[raw].popleft() if own.get(raw) else decode_any(raw) for raw in request.codec.read(body).raws]
    members = decode_any(body)
    del members[request.codec.transcript]
    return left, members
