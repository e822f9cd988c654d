"""The demo's upstream: a chat completions server that answers from a script and keeps a simulated prompt cache.

Law: what it reports is what it received. It refuses what OpenAI refuses: a prompt larger than the window, a tool call
that is not answered right behind it.
"""

import hashlib
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import accumulate, takewhile

import orjson
from aiohttp import web

from proxy.cli.demo.session import MODEL, Session
from proxy.config.values import site_url
from proxy.wire.chat.codec import CHAT
from proxy.wire.chat.message import decode_message
from proxy.wire.codec import Counting, UndecodableError
from proxy.wire.known import Known
from rules.conversation import CountTokens, Message, Role
from rules.tokens.families import GENERIC
from rules.tokens.messages import MESSAGE_TOKENS

PIECE_CHARS = 48
"""Of an answer in one event of a stream."""
NOTE_PATHS = 60
_PATH = re.compile(r"\b(?:[\w-]+/)+[\w-]+\.\w{1,4}\b")
_ERROR_LINE = re.compile(r"^E {2,}\S.*$|^\S*Error: .*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as a server sees it; `cached_tokens` of it are a prefix of an earlier prompt, message by message.

    `chain` are the hashes of all its prefixes, shortest first.
    """

    messages: tuple[Message, ...]
    stream: bool
    tokens: int
    cached_tokens: int
    chain: tuple[bytes, ...]


class PromptCache:
    """Knows with what an earlier prompt began, byte for byte. It never forgets."""

    def __init__(self, count: CountTokens) -> None:
        self._counting = Counting(count, Known())
        self._seen: set[bytes] = set()

    def read(self, body: bytes) -> Prompt:
        """The prompt of a request, counted. Raises UndecodableError."""
        request = CHAT.read(body)
        conversation = CHAT.decode(request, self._counting)
        sizes = [conversation.fixed_tokens, *(message.tokens for message in conversation.messages)]
        chain = tuple(accumulate((b"\n".join(request.fixed), *request.raws), _extend, initial=b""))[1:]
        warm = takewhile(lambda link: link[0] in self._seen, zip(chain, sizes, strict=True))
        cached_tokens = sum(size for _, size in warm)
        return Prompt(conversation.messages, request.stream, sum(sizes), cached_tokens, chain)

    def admit(self, prompt: Prompt) -> None:
        """Keep a prompt: later ones may begin as it does."""
        self._seen.update(prompt.chain)


@dataclass(frozen=True, slots=True)
class Served:
    """One request as the upstream saw it; `answer_hash` is that of the answer's body."""

    is_stream: bool
    status: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    answer_hash: str


class SimulatedUpstream:
    """Answers each prompt of the session with what follows it there; `served` is the record, oldest first."""

    def __init__(self, session: Session, window_tokens: int, count: CountTokens) -> None:
        self.served: list[Served] = []
        self._window_tokens = window_tokens
        self._cache = PromptCache(count)
        self._count = count
        messages = [decode_message(raw, count, GENERIC.costs) for raw in session.messages]
        self._script = {_name(messages[turn - 1]): messages[turn] for turn in session.turns}

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        if request.path == "/v1/models":
            return _answer_json({"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "demo"}]})
        if request.path != "/v1/chat/completions":
            return _answer_json(_describe_error(f"no such path: {request.path}", None, "not_found"), 404)
        try:
            prompt = self._cache.read(await request.content.read())
        except UndecodableError:
            return _answer_json(_describe_error("the body is no chat request", None, "invalid_json"), 400)
        refusal = self._refuse(prompt)
        if refusal is not None:
            self._record(prompt, 400, 0, [orjson.dumps(refusal)])
            return _answer_json(refusal, 400)
        self._cache.admit(prompt)
        answer = self._script.get(_name(prompt.messages[-1])) if prompt.stream else None
        answer = answer or Message(Role.ASSISTANT, (_write_note(prompt),))
        completion_tokens = self._count_completion(answer)
        usage = _describe_usage(prompt, completion_tokens)
        pieces = list(_write_stream(answer, usage)) if prompt.stream else [orjson.dumps(_write_answer(answer, usage))]
        self._record(prompt, 200, completion_tokens, pieces)
        return await _send(request, pieces, "text/event-stream" if prompt.stream else "application/json")

    def _refuse(self, prompt: Prompt) -> dict[str, object] | None:
        """What OpenAI answers to a prompt that it does not take; None for one that it does."""
        if prompt.tokens > self._window_tokens:
            message = (
                f"This model's maximum context length is {self._window_tokens} tokens. However, your messages resulted"
                f" in {prompt.tokens} tokens. Please reduce the length of the messages."
            )
            return _describe_error(message, "messages", "context_length_exceeded")
        if not prompt.messages or not _answers_every_call(prompt.messages):
            message = "An assistant message with 'tool_calls' must be followed by tool messages responding to each one."
            return _describe_error(message, "messages", None)
        return None

    def _count_completion(self, answer: Message) -> int:
        written = (*answer.texts, *(call.name + call.arguments for call in answer.tool_calls))
        return MESSAGE_TOKENS + sum(map(self._count, written))

    def _record(self, prompt: Prompt, status: int, completion_tokens: int, pieces: Sequence[bytes]) -> None:
        answer_hash = hashlib.sha256(b"".join(pieces)).hexdigest()
        self.served.append(
            Served(prompt.stream, status, prompt.tokens, prompt.cached_tokens, completion_tokens, answer_hash)
        )


@asynccontextmanager
async def run_upstream(upstream: SimulatedUpstream) -> AsyncIterator[str]:
    """The upstream on a free port of this machine, until the block is left; yields its base URL."""
    runner = web.ServerRunner(web.Server(upstream.handle, access_log=None), shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield site_url("127.0.0.1", runner.addresses[0][1]) + "/v1"
    finally:
        await runner.cleanup()


def _extend(chain: bytes, piece: bytes) -> bytes:
    """The hash of a prefix that is longer by a piece."""
    return hashlib.blake2b(chain + piece, digest_size=16).digest()


def _name(message: Message) -> str:
    """What tells the last message of a prompt from all others of the session: ids and requests come once."""
    return message.answers or message.text


def _answers_every_call(messages: Sequence[Message]) -> bool:
    """Whether each call has its one result right behind it, and no result stands elsewhere."""
    open_calls: set[str | None] = set()
    for message in messages:
        if message.role is Role.TOOL:
            if message.answers not in open_calls:
                return False
            open_calls.remove(message.answers)
        elif open_calls:
            return False
        else:
            open_calls = {call.id for call in message.tool_calls}
    return not open_calls


def _write_note(prompt: Prompt) -> str:
    """A handoff note, as a model might write it, of what stands in the prompt."""
    text = "\n".join(message.text for message in prompt.messages)
    paths = list(dict.fromkeys(_PATH.findall(text)))
    errors = list(dict.fromkeys(_ERROR_LINE.findall(text)))[-3:]
    if not paths:
        return f"The demo's upstream received {prompt.tokens} prompt tokens, {prompt.cached_tokens} of them cached."
    return "\n".join(
        (
            f"1. Progress and decisions: {len(paths)} files were looked at; the work went through them in order.",
            "2. Constraints and preferences: as the task says; nothing was added.",
            f"3. Remaining: go on behind {paths[-1]}, and run the tests after every change.",
            "4. Exact data: " + ", ".join(paths[-NOTE_PATHS:]),
            *(f"   error seen: {error}" for error in errors),
        )
    )


def _describe_usage(prompt: Prompt, completion_tokens: int) -> dict[str, object]:
    return {
        "prompt_tokens": prompt.tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt.tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": prompt.cached_tokens},
    }


def _write_answer(answer: Message, usage: dict[str, object]) -> dict[str, object]:
    message = {"role": "assistant", "content": answer.text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {**_frame("chat.completion"), "choices": [choice], "usage": usage}


def _write_stream(answer: Message, usage: dict[str, object]) -> Iterator[bytes]:
    """The answer as server-sent events, one at a time, the usage in the last."""
    frame = _frame("chat.completion.chunk")
    deltas: list[dict[str, object]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in _split(answer.text)]
    for index, call in enumerate(answer.tool_calls):
        function = {"name": call.name, "arguments": ""}
        deltas.append({"tool_calls": [{"index": index, "id": call.id, "type": "function", "function": function}]})
        for piece in _split(call.arguments):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    for delta in deltas:
        yield _write_event({**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    reason = "tool_calls" if answer.tool_calls else "stop"
    yield _write_event({**frame, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    yield _write_event({**frame, "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def _split(text: str) -> list[str]:
    return [text[start : start + PIECE_CHARS] for start in range(0, len(text), PIECE_CHARS)]


def _frame(kind: str) -> dict[str, object]:
    return {"id": "chatcmpl-demo", "object": kind, "created": 0, "model": MODEL}


def _write_event(event: dict[str, object]) -> bytes:
    return b"data: " + orjson.dumps(event) + b"\n\n"


def _describe_error(message: str, param: str | None, code: str | None) -> dict[str, object]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}


def _answer_json(body: dict[str, object], status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")


async def _send(request: web.BaseRequest, pieces: Sequence[bytes], content_type: str) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": content_type})
    await response.prepare(request)
    for piece in pieces:
        await response.write(piece)
    await response.write_eof()
    return response
