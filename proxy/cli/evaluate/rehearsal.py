"""The session to evaluate, as the proxy would compact it, and the arms: the ways to bring it into the window.

Law: a session's requests are beginnings of its last one. They are compacted twice: with digests before a model is
asked, to tell the price, and then by a proxy in this process, which asks for the summaries. Each is ready in time. If
one fails, the proxy's digest replaces it. Every arm is in a form that the strictest server accepts.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import aiohttp
import msgspec
import orjson

from trimtab.proxy.cli.options import StoppedError
from trimtab.proxy.cli.records.inputs import split_turns
from trimtab.proxy.cli.records.sums import slide_window
from trimtab.proxy.compaction.engine import Compaction, Variant, compact
from trimtab.proxy.config.schema import Config
from trimtab.proxy.exchange.for_caller import PATH
from trimtab.proxy.server.app import run_proxy
from trimtab.proxy.telemetry.logs import get_log
from trimtab.proxy.wire.codec import Request, UndecodableError
from trimtab.proxy.wire.dialects import DEFAULT
from trimtab.proxy.wire.json import DECODE_ERRORS, decode_members, mend
from trimtab.rules.conversation import Conversation, CountTokens, Message, Role, find_beside
from trimtab.rules.results.pairing import pair_tool_calls
from trimtab.rules.summary.prompts import PROMPT_TOKENS
from trimtab.rules.summary.request import SummaryRequest
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
    """The text that a cut needs. prompt_tokens: about, of the question for it, at most."""

    request: SummaryRequest
    prompt_tokens: int


class Tokens(msgspec.Struct):
    """Calls, and the tokens of their prompts and completions."""

    calls: int = 0
    prompt: int = 0
    completion: int = 0

    def add(self, prompt: int, completion: int, calls: int = 1) -> None:
        self.calls += calls
        self.prompt += prompt
        self.completion += completion

    def describe(self) -> str:
        return f"{self.calls:,} calls, {self.prompt:,} prompt tokens, {self.completion:,} completion tokens"


class Rehearsal(msgspec.Struct, frozen=True):
    """A session's requests, compacted with digests. wanted: the texts that they need on the way, oldest first."""

    request: Request
    variant: Variant
    last: Compaction
    wanted: tuple[WantedSummary, ...]


def rehearse(session: Request, variant: Variant) -> Rehearsal:
    """Compact a session as the proxy would, with digests. Raises LimitExceededError."""
    asked: dict[str, int] = {}
    wanted: dict[str, WantedSummary] = {}
    last: Compaction | None = None
    before_tokens = 0
    for body in split_turns(session.body, DEFAULT.name):
        last = compact(DEFAULT.read(body), variant)
        plan = last.original_plan
        for one in (plan.prefetch, plan.request):
            if one is not None:  # it is asked behind the prompt that announced it, or behind the one before
                asked.setdefault(one.key, max(before_tokens, plan.reserved_tokens) + PROMPT_TOKENS)
        before_tokens = plan.reserved_tokens
        if plan.request is not None:
            wanted.setdefault(plan.request.key, WantedSummary(plan.request, asked[plan.request.key]))
    assert last is not None  # a session has at least one request  # noqa: S101
    if last.refusal is not None:
        raise last.refusal
    return Rehearsal(session, variant, last, tuple(wanted.values()))


STAGE = (
    "listen=127.0.0.1:0", "metrics_listen=null", "workers=1", "store=memory", "record=null", "client_keys=null",
    "dashboard.enabled=false", "tracing.otlp_endpoint=null", "mode=enforce",
)  # fmt: skip
"""Settings of the proxy that compacts a session for its evaluation."""


class StageLog:
    """Stands for the log of that proxy. failures: why calls for summaries gave none. on_call: called after each."""

    def __init__(self, spent: Tokens, on_call: Callable[[], None]) -> None:
        log = get_log()
        self.debug, self.warning, self.error = log.debug, log.warning, log.error
        self.failures: list[str] = []
        self._is_busy = False
        self._spent, self._on_call = spent, on_call

    def info(self, event: str, **fields: Any) -> None:
        if event == "summary":
            self._spent.add(fields["prompt_tokens"], fields["completion_tokens"])
            if self._is_busy:  # that server was waited for, and then asked again
                self.failures.pop()
            self._is_busy = fields["result"] == "busy"
            self.failures += [] if fields["result"] == "written" else [fields["reason"] or fields["result"]]
            self._on_call()


async def compact_session(
    config: Config, window_tokens: int, session: Request, key: str | None, log: StageLog
) -> bytes:
    """Have a proxy compact a session, request by request. config: with the settings of STAGE. Raises StoppedError."""
    keys = {"context_window": window_tokens, "context_windows": (), "mode": None, "observe_share": 0.0}
    shown = {} if key is None else {"Authorization": f"Bearer {key}"}
    staged, compacted = config.change_policies(lambda _: keys), session.body
    unlimited = aiohttp.ClientTimeout()  # a summary may take as long as the configuration says
    async with run_proxy(staged, log) as proxy, aiohttp.ClientSession(headers=shown, timeout=unlimited) as client:
        url = f"{proxy.url}{PATH}?dialect={DEFAULT.name}&only_body=1"
        for body in (*split_turns(session.body, DEFAULT.name), session.body):
            async with client.post(url, data=body) as answer:
                compacted = await answer.read()
            if answer.status != 200:
                raise StoppedError(orjson.loads(compacted)["error"]["message"])
            await proxy.services.summaries.settle()  # so the next request finds each summary there
    return compacted


class Arm(msgspec.Struct, frozen=True):
    """What a model sees of the session: a conversation, of a request's messages. tokens: the model's own.

    problem: why it cannot be asked; None if it can.
    """

    name: str
    request: Request
    conversation: Conversation
    tokens: int
    problem: str | None = None


def make_arm(name: str, rehearsal: Rehearsal, compacted: bytes | None, room_tokens: int) -> Arm:
    """Make one of NAMES. room_tokens: largest prompt, in the model's own tokens.

    compacted: the session with a model's summaries; None if none are written yet: then the digests stand for them.
    """
    compactor, ratio = rehearsal.variant.compactor, rehearsal.variant.policy.token_ratio
    request, conversation = rehearsal.request, rehearsal.last.compacted.forwarded
    if compacted is not None and name in {"trimtab", "truncate"}:
        request = DEFAULT.read(compacted)
        conversation = DEFAULT.decode(request, compactor.counting)
    if name in {"none", "truncate"}:
        whole = pair_tool_calls(rehearsal.last.planned.original, count=compactor.count).conversation
        request = rehearsal.request
        conversation = whole if name == "none" else slide_window(whole, conversation.tokens)
    tokens = round(ratio * conversation.tokens)
    problem = f"does not fit the window, which has room for {room_tokens:,} tokens" if tokens > room_tokens else None
    return Arm(name, request, _pause(conversation, compactor.count), tokens, problem)


def _pause(conversation: Conversation, count: CountTokens) -> Conversation:
    """Append a message of the assistant, unless the conversation ends with one that calls no tool."""
    messages = conversation.messages
    if messages and messages[-1].role is Role.ASSISTANT and not messages[-1].tool_calls:
        return conversation
    line = finish_message(Message(Role.ASSISTANT, (PAUSED,), beside=find_beside(messages)), count)
    return replace(conversation, messages=(*messages, line), origins=(*conversation.origins, None))
