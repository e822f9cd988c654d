"""The demo's upstream: a chat completions server with scripted answers and a simulated prompt cache.

Law: it reports exactly what it received. Like OpenAI, it refuses a prompt larger than the window, and a tool call that
its result does not follow at once.
"""

import re
from dataclasses import astuple, dataclass, replace
from hashlib import sha256
from itertools import accumulate, takewhile
from math import inf
from typing import Any

import orjson
from aiohttp import web

from trimtab.proxy.cli.demo.session import MODEL, Session
from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.codec import Counting, UndecodableError
from trimtab.rules.conversation import CountTokens
from trimtab.rules.results.pairing import pair_tool_calls
from trimtab.rules.tokens.messages import MESSAGE_TOKENS

PIECE_CHARS = 48
"""Characters of an answer in one event of a stream. Chosen: any size works."""
NOTE_PATHS = 60
"""Paths that a handoff note names at most. Chosen: the project has 48 files."""
_PATH = re.compile(r"\b(?:[\w-]+/)+[\w-]+\.\w{1,4}\b")

_Json = dict[str, Any]
_FRAME: _Json = {"id": "chatcmpl-demo", "object": "chat.completion", "created": 0, "model": MODEL}


@dataclass(frozen=True, slots=True)
class Cost:
    """Tokens that requests used at an upstream. The cached tokens are part of the prompt tokens."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(*(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)))


class PromptCache:
    """A prompt cache that never forgets. It compares beginnings of prompts by whole messages, byte for byte."""

    def __init__(self, count: CountTokens) -> None:
        self._counting = Counting(count, make_known())
        self._seen: set[bytes] = set()

    def read(self, body: bytes, window_tokens: float = inf) -> Cost:
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
    """One request as the upstream saw it. `answer_hash` is the SHA-256 of the response body."""

    is_stream: bool
    status: int
    cost: Cost
    answer_hash: str


class SimulatedUpstream:
    """Answers each prompt of the session with the message that follows it there.

    served: the requests, oldest first.
    """

    def __init__(self, session: Session, window_tokens: int, count: CountTokens) -> None:
        self.served: list[Served] = []
        self._window_tokens = window_tokens
        self._cache = PromptCache(count)
        self.count = count
        self._counting = Counting(count, make_known())
        messages = list(map(orjson.loads, session.messages))
        self._script = {_name(messages[turn - 1]): messages[turn] for turn in session.turns}

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/v1/models":
            return web.json_response({"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        body = await request.content.read()
        try:
            cost, chat = self._cache.read(body, self._window_tokens), orjson.loads(body)
        except (UndecodableError, orjson.JSONDecodeError):
            return _refuse("the body is not a chat request", "invalid_json")
        is_stream, response = chat.get("stream") is True, self._judge(cost, body)
        if response is None:
            cost, response = self._answer(cost, chat["messages"], is_stream=is_stream)
        answer_hash = sha256((response.text or "").encode()).hexdigest()
        self.served.append(Served(is_stream, response.status, cost, answer_hash))
        return response

    def _judge(self, cost: Cost, body: bytes) -> web.Response | None:
        """The error that OpenAI sends for such a prompt; None if it accepts the prompt."""
        conversation = CHAT.decode(CHAT.read(body), self._counting)
        if cost.prompt_tokens > self._window_tokens:
            most = f"This model's maximum context length is {self._window_tokens} tokens."
            message = f"{most} However, your messages resulted in {cost.prompt_tokens} tokens."
            return _refuse(message, "context_length_exceeded")
        if conversation.messages and pair_tool_calls(conversation, count=self.count).conversation is conversation:
            return None
        return _refuse("An assistant message with 'tool_calls' must be followed by tool messages.", None)

    def _answer(self, cost: Cost, messages: list[_Json], *, is_stream: bool) -> tuple[Cost, web.Response]:
        """The cost, and the response: the script's to a stream that it knows, else a handoff note."""
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
    """Identifies a prompt of the session by its last message: each call id and each user message occurs only once."""
    return str(message.get("tool_call_id") or message.get("content"))


def _write_note(messages: list[_Json]) -> _Json:
    paths = list(dict.fromkeys(_PATH.findall("\n".join(str(message.get("content")) for message in messages))))
    done = "1. Progress: the files below, in order.\n2. Constraints: as the task says.\n3. Remaining: the other files."
    return {"role": "assistant", "content": f"{done}\n4. Exact data: {', '.join(paths[-NOTE_PATHS:]) or 'none'}."}


def _write_stream(answer: _Json, usage: _Json) -> str:
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
