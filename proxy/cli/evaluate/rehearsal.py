"""The session to evaluate, as the proxy would compact it, and the arms: the ways to bring it into the window.

Law: a session's requests are beginnings of its last one. Every request is planned before a model is asked, because no
cut depends on a summary's text. A summary is asked for as the proxy does: after what was forwarded, or with a
transcript, continuing the previous one. Each is assumed to be ready in time. If one fails, the digest replaces it, and
the result says so. Every arm is made from the client's own last request, in a form that the strictest server accepts.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

import msgspec

from trimtab.proxy.cli.records.inputs import split_turns
from trimtab.proxy.cli.records.sums import slide_window
from trimtab.proxy.compaction.compactor import Compacted
from trimtab.proxy.compaction.engine import Compaction, Text, Variant, compact
from trimtab.proxy.http.client import UpstreamClient
from trimtab.proxy.summaries.calls import NoSummaryError, SummaryCalls
from trimtab.proxy.summaries.summariser import Inline, Summariser, Task, ask_model
from trimtab.proxy.wire.codec import Request, UndecodableError
from trimtab.proxy.wire.dialects import DEFAULT
from trimtab.proxy.wire.json import DECODE_ERRORS, decode_members, mend
from trimtab.rules.conversation import Conversation, CountTokens, Message, Role, find_beside
from trimtab.rules.pipeline.plan import Plan
from trimtab.rules.results.pairing import pair_tool_calls
from trimtab.rules.summary.prompts import PROMPT_TOKENS, fit_inline
from trimtab.rules.summary.request import Summary, SummaryRequest, make_digest
from trimtab.rules.tokens.messages import finish_message

_ANSWER_SHAPE = frozenset({"response_format", "tool_choice", "function_call", "stream", "stream_options"})
"""Members that prescribe the form of an answer. They are dropped: the questions need plain answers."""
NAMES = ("none", "trimtab", "digest", "truncate")
"""`none`: the whole session. `trimtab`: compacted, with a model's summaries. `digest`: compacted, without a model.
`truncate`: the task and the newest messages that fit."""
PAUSED = "The work is paused here."


class NoSessionError(ValueError):
    """The file holds no session that can be evaluated. The message says what to do."""


def read_session(data: bytes, model: str | None = None) -> Request:
    """The session in a file: a request body, or the longest of several lines. Raises NoSessionError.

    model: replaces the one that the session names.
    """
    lines = data.splitlines()
    with suppress(UndecodableError):
        DEFAULT.read(data)
        lines = [data]
    body = max(lines, key=len, default=b"")
    try:
        request = _read_request(body, model)
        next(split_turns(request.body, DEFAULT.name))  # raises if a message is none
    except (UndecodableError, *DECODE_ERRORS) as error:
        raise NoSessionError("not a chat request; each line must be a JSON object with `messages`") from error
    if not request.model:
        raise NoSessionError("the session names no model; choose one with --model")
    return request


def _read_request(body: bytes, model: str | None) -> Request:
    try:
        members = decode_members(body)
    except DECODE_ERRORS:
        members = decode_members(mend(body))
    kept = {name: value for name, value in members.items() if name not in _ANSWER_SHAPE and bytes(value) != b"null"}
    if model is not None:
        kept["model"] = msgspec.Raw(msgspec.json.encode(model))
    return DEFAULT.read(msgspec.json.encode(kept))


class WantedSummary(msgspec.Struct, frozen=True):
    """The text that a cut needs. asked: the request that first asks for it. prompt_tokens: about, of that question."""

    request: SummaryRequest
    asked: Request
    prompt_tokens: int


class Rehearsal(msgspec.Struct, frozen=True):
    """A session's requests, compacted with digests. wanted: the texts that they need on the way, oldest first."""

    request: Request
    variant: Variant
    last: Compaction
    wanted: tuple[WantedSummary, ...]

    def apply(self, texts: Mapping[str, Summary]) -> Compacted:
        compaction = compact(self.request, self.variant, partial(_choose, texts))
        if compaction.refusal is not None:
            raise compaction.refusal
        return compaction.compacted


def _choose(texts: Mapping[str, Summary], plan: Plan) -> Text:
    return Text(plan, None if plan.request is None else texts.get(plan.request.key))


def rehearse(session: Request, variant: Variant) -> Rehearsal:
    first_seen: dict[str, tuple[Request, int]] = {}
    wanted: dict[str, WantedSummary] = {}
    last: Compaction | None = None
    for body in split_turns(session.body, DEFAULT.name):
        asked = DEFAULT.read(body)
        last = compact(asked, variant)
        plan = last.original_plan
        for request in (plan.prefetch, plan.request):
            if request is not None:
                first_seen.setdefault(request.key, (asked, plan.reserved_tokens + PROMPT_TOKENS))
        if plan.request is not None and plan.request.key not in wanted:
            wanted[plan.request.key] = WantedSummary(plan.request, *first_seen[plan.request.key])
    assert last is not None  # a session has at least one request  # noqa: S101
    return Rehearsal(session, variant, last, tuple(wanted.values()))


async def write_summaries(
    rehearsal: Rehearsal,
    summariser: Summariser,
    client: UpstreamClient,
    calls: SummaryCalls,
    on_written: Callable[[], None],
) -> tuple[dict[str, Summary], list[str]]:
    """Have texts written, each continuing the one before; and why models wrote none. on_written: after each call."""
    texts: dict[str, Summary] = {}
    failures: list[str] = []
    count = rehearsal.variant.compactor.count
    for one in rehearsal.wanted:
        base = texts.get(one.request.base or "")
        summary: Summary | None = None
        if one.request.asks_model:
            inline = await asyncio.to_thread(_find_inline, rehearsal, one, texts, summariser)
            task = Task(one.request, summariser, count, inline)
            try:
                summary = await ask_model(task, base.text if base and base.by_model else None, client, calls)
            except NoSummaryError as error:
                failures.append(str(error) or type(error).__name__)
            on_written()
        digest = partial(make_digest, one.request, base=base, count=count)
        texts[one.request.key] = summary or Summary(await asyncio.to_thread(digest), by_model=False)
    return texts, failures


def _find_inline(
    rehearsal: Rehearsal, one: WantedSummary, texts: Mapping[str, Summary], summariser: Summariser
) -> Inline | None:
    """The question for a summary after the forwarded messages; None if it must contain a transcript instead."""
    request, wanted, variant = one.asked, one.request, rehearsal.variant
    if summariser.settings.upstream is not None or summariser.model != request.model:
        return None

    def choose(plan: Plan) -> Text:
        is_first = plan.request is not None and plan.request.key == wanted.key
        return _choose(texts, plan.put_off() or plan if is_first else plan)

    compaction = compact(request, variant, choose)
    plan = compaction.planned.plan
    if compaction.refusal is not None or (plan.request is not None and plan.request.key == wanted.key):
        return None
    prefix = plan.find_prefix(compaction.compacted.forwarded, wanted.at)
    if prefix is None:
        return None
    fitted = fit_inline(wanted, prefix, variant.policy, variant.compactor.count)
    if fitted is None:
        return None
    fitting, tokens = fitted
    return Inline(partial(variant.compactor.ask_behind, compaction.request, prefix, fitting), tokens)


class Arm(msgspec.Struct, frozen=True):
    """What a model sees of the session. tokens: the model's own. problem: why it cannot be asked; None if it can."""

    name: str
    conversation: Conversation
    tokens: int
    problem: str | None = None


def make_arm(name: str, rehearsal: Rehearsal, forwarded: Conversation, room_tokens: int) -> Arm:
    """Make one of NAMES. forwarded: what compaction leaves. room_tokens: largest prompt, in the model's own tokens."""
    count, ratio = rehearsal.variant.compactor.count, rehearsal.variant.policy.token_ratio
    whole = pair_tool_calls(rehearsal.last.planned.original, count=count).conversation
    conversation = forwarded
    if name == "none":
        conversation = whole
    elif name == "truncate":
        conversation = slide_window(whole, forwarded.tokens)
    tokens = round(ratio * conversation.tokens)
    problem = f"does not fit the window, which has room for {room_tokens:,} tokens" if tokens > room_tokens else None
    return Arm(name, _pause(conversation, count), tokens, problem)


def _pause(conversation: Conversation, count: CountTokens) -> Conversation:
    """Append a message of the assistant, unless the conversation ends with one that calls no tool."""
    messages = conversation.messages
    if messages and messages[-1].role is Role.ASSISTANT and not messages[-1].tool_calls:
        return conversation
    line = finish_message(Message(Role.ASSISTANT, (PAUSED,), beside=find_beside(messages)), count)
    return replace(conversation, messages=(*messages, line), origins=(*conversation.origins, None))
