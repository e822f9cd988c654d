"""The demo's upstream: a chat completions server that answers from a script and keeps a simulated prompt cache.

Law: what it reports is what it received. It refuses what OpenAI refuses: a prompt larger than the window, a tool call
that is not answered right behind it.
"""

import re
from dataclasses import astuple, dataclass, replace
from hashlib import sha256
from itertools import accumulate, takewhile
from math import inf
from typing import Any

import orjson
from aiohttp import web

from proxy.cli.demo.session import MODEL, Session
from proxy.compaction.caches import make_known
from proxy.wire.chat.codec import CHAT
from proxy.wire.codec import Counting, UndecodableError
from rules.conversation import CountTokens
from rules.results.pairing import pair_tool_calls
from rules.tokens.messages import MESSAGE_TOKENS

PIECE_CHARS = 48
"""Of an answer in one event of a stream."""
NOTE_PATHS = 60
_PATH = re.compile(r"\b(?:[\w-]+/)+[\w-]+\.\w{1,4}\b")

_Json = dict[str, Any]
_FRAME: _Json = {"id": "chatcmpl-demo", "object": "chat.completion", "created": 0, "model": MODEL}


@dataclass(frozen=True, slots=True)
class Cost:
    """What requests took of an upstream, in tokens."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(*(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)))


class PromptCache:
    """Knows with what an earlier prompt began, message by message and byte for byte. It never forgets."""

    def __init__(self, count: CountTokens) -> None:
        self._counting = Counting(count, make_known())
        self._seen: set[bytes] = set()

    def read(self, body: bytes, window_tokens: float = inf) -> Cost:
        """The size of a prompt, which is kept if the window holds it. Raises UndecodableError."""
        request = CHAT.read(body)
        conversation = CHAT.decode(request, self._counting)
        sizes = [conversation.fixed_tokens, *(message.tokens for message in conversation.messages)]
        pieces = (b"\n".join(request.fixed), *request.raws)
        prefixes = tuple(accumulate(pieces, lambda chain, piece: sha256(chain + piece).digest(), initial=b""))[1:]
        warm = takewhile(lambda prefix: prefix[0] in self._seen, zip(prefixes, sizes, strict=True))
        cost = Cost(sum(sizes), sum(size for _, size in warm))
        if cost.prompt_tokens <= window_tokens:
            self._seen.update(prefixes)
        return cost


@dataclass(frozen=True, slots=True)
class Served:
    """One request as the upstream saw it; `answer_hash` is that of the answer's body."""

    is_stream: bool
    status: int
    cost: Cost
    answer_hash: str


class SimulatedUpstream:
    """Answers each prompt of the session with what follows it there; `served` is the record, oldest first."""

    def __init__(self, session: Session, window_tokens: int, count: CountTokens) -> None:
        self.served: list[Served] = []
        self._window_tokens = window_tokens
        self._cache = PromptCache(count)
        self.count = count
        self._counting = Counting(count, make_known())
        messages = list(map(orjson.loads, session.messages))
        self._script = {_name(messages[turn - 1]): messages[turn] for turn in session.turns}

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        if request.path == "/v1/models":
            return web.json_response({"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        body = await request.content.read()
        try:
            cost, chat = self._cache.read(body, self._window_tokens), orjson.loads(body)
        except (UndecodableError, orjson.JSONDecodeError):
            return _refuse("the body is no chat request", "invalid_json")
        is_stream, response = chat.get("stream") is True, self._judge(cost, body)
        if response is None:
            cost, response = self._answer(cost, chat["messages"], is_stream=is_stream)
        answer_hash = sha256((response.text or "").encode()).hexdigest()
        self.served.append(Served(is_stream, response.status, cost, answer_hash))
        return response

    def _judge(self, cost: Cost, body: bytes) -> web.Response | None:
        """What OpenAI answers to a prompt that it does not take; None for one that it does."""
        conversation = CHAT.decode(CHAT.read(body), self._counting)
        if cost.prompt_tokens > self._window_tokens:
            most = f"This model's maximum context length is {self._window_tokens} tokens."
            message = f"{most} However, your messages resulted in {cost.prompt_tokens} tokens."
            return _refuse(message, "context_length_exceeded")
        if conversation.messages and pair_tool_calls(conversation, count=self.count).conversation is conversation:
            return None
        return _refuse("An assistant message with 'tool_calls' must be followed by tool messages.", None)

    def _answer(self, cost: Cost, messages: list[_Json], *, is_stream: bool) -> tuple[Cost, web.Response]:
        """What the prompt and its answer cost, and the answer: the script's to a stream, else a handoff note."""
        answer = (self._script.get(_name(messages[-1])) if is_stream else None) or _write_note(messages)
        functions = [call["function"] for call in answer.get("tool_calls", ())]
        written = [answer["content"], *(function["name"] + function["arguments"] for function in functions)]
        cost = replace(cost, completion_tokens=MESSAGE_TOKENS + sum(map(self.count, written)))
        usage: _Json = {"prompt_tokens": cost.prompt_tokens, "completion_tokens": cost.completion_tokens}
        usage["total_tokens"] = cost.prompt_tokens + cost.completion_tokens
        usage["prompt_tokens_details"] = {"cached_tokens": cost.cached_tokens}
        if is_stream:
            return cost, web.Response(text=_write_stream(answer, usage), content_type="text/event-stream")
        choices = [{"index": 0, "message": answer, "finish_reason": "stop"}]
        return cost, web.json_response({**_FRAME, "choices": choices, "usage": usage})


def _name(message: _Json) -> str:
    """What tells the last message of a prompt from all others of the session: ids and requests come once."""
    return str(message.get("tool_call_id") or message.get("content"))


def _write_note(messages: list[_Json]) -> _Json:
    """A handoff note, as a model might write it, that names the files of the prompt."""
    paths = list(dict.fromkeys(_PATH.findall("\n".join(str(message.get("content")) for message in messages))))
    done = "1. Progress: the files below, in order.\n2. Constraints: as the task says.\n3. Remaining: the other files."
    return {"role": "assistant", "content": f"{done}\n4. Exact data: {', '.join(paths[-NOTE_PATHS:]) or 'none'}."}


def _write_stream(answer: _Json, usage: _Json) -> str:
    """The answer as server-sent events, the usage in the last."""
    text, calls = answer["content"], answer.get("tool_calls", ())
    deltas: list[_Json] = [{"content": text[start : start + PIECE_CHARS]} for start in range(0, len(text), PIECE_CHARS)]
    deltas += [{"tool_calls": [{"index": index, **call}]} for index, call in enumerate(calls)]
    fields: list[_Json] = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    reason = "tool_calls" if calls else "stop"
    fields.append({"choices": [{"index": 0, "delta": {"role": "assistant"}, "finish_reason": reason}]})
    fields.append({"choices": [], "usage": usage})
    events = [orjson.dumps({**_FRAME, "object": "chat.completion.chunk", **each}).decode() for each in fields]
    return "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"])


def _refuse(message: str, code: str | None) -> web.Response:
    error = {"message": message, "type": "invalid_request_error", "param": "messages", "code": code}
    return web.json_response({"error": error}, status=400)
