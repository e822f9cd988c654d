"""An upstream's model that follows a script in three dialects, and refuses what the real providers refuse.

The path's end tells the dialect: `/chat/completions`, `/responses` or `/messages`. It also answers on their neighbours:
`/messages/count_tokens`, `/responses/compact` and `/models`.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
from aiohttp import web
from support.checker import check_pairing
from support.dialects import messages_validity, responses_validity
from support.dialects.seals import seal
from support.dialects.tools_validity import check_choice, check_tools
from upstreams import scripted
from upstreams.recording import Recorded, error
from upstreams.scripted import SUMMARY, Call, Turn
from upstreams.speech import messages, responses
from upstreams.speech.spent import Said, Spent

Wire = dict[str, Any]

BYTES_PER_TOKEN = 4
VERSION_HEADER = "anthropic-version"


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a provider reads, refuses and answers.

    check: what is wrong with a body.
    read_prompt: what the model reads of it.
    refuse: the error for an invalid body.
    refuse_long: the error for a prompt that is too long, by its tokens and the window.
    refuse_in_stream: the same within a response with status 200.
    reply: a turn, whole or as a stream.
    """

    check: Callable[[Wire], list[str]]
    read_prompt: Callable[[Wire], bytes]
    refuse: Callable[[str], web.Response]
    refuse_long: Callable[[int, int], web.Response]
    refuse_in_stream: Callable[[web.BaseRequest, Wire, Said], Awaitable[web.StreamResponse]]
    reply: Callable[[web.BaseRequest, Wire, Said], Awaitable[web.StreamResponse]]


def check_chat(body: Wire) -> list[str]:
    """What OpenAI refuses in a chat completion."""
    wires = body.get("messages")
    return (
        check_pairing(wires) if isinstance(wires, list) and wires else ["messages: missing or empty"]
    ) or check_tools(body)


def check_responses(body: Wire) -> list[str]:
    """What OpenAI refuses in a response's request, with encrypted contents that were changed."""
    return responses_validity.check_body(body) or responses.check_seals(body) or check_choice(body)


def check_messages(body: Wire) -> list[str]:
    """What Anthropic refuses, with thinking that was changed."""
    return messages_validity.check_body(body) or messages.check_seals(body) or check_tools(body)


def refuse_chat(problem: str) -> web.Response:
    """OpenAI's error for an invalid chat completion."""
    return error(400, message=problem, type="invalid_request_error", param="messages", code=None)


async def refuse_chat_in_stream(_: web.BaseRequest, __: Wire, said: Said) -> web.StreamResponse:
    """Chat completions have no such form."""
    return scripted.refuse(said.spent.prompt, 0)


async def reply_in_chat(request: web.BaseRequest, body: Wire, said: Said) -> web.StreamResponse:
    """A turn as a chat completion."""
    spent = said.spent
    usage: Wire = {"prompt_tokens": spent.prompt, "completion_tokens": spent.completion}
    usage["total_tokens"] = spent.prompt + spent.completion
    usage["prompt_tokens_details"] = {"cached_tokens": spent.cached}
    return await scripted.reply(request, body, said.turn, said.name, usage)


CHAT = Dialect(
    check_chat,
    lambda body: orjson.dumps([body.get("tools"), body.get("messages")]),
    refuse_chat,
    scripted.refuse,
    refuse_chat_in_stream,
    reply_in_chat,
)
RESPONSES = Dialect(
    check_responses,
    responses.read_prompt,
    responses.refuse,
    responses.refuse_long,
    responses.refuse_in_stream,
    responses.reply,
)
MESSAGES = Dialect(
    check_messages,
    messages.read_prompt,
    messages.refuse,
    messages.refuse_long,
    messages.refuse_in_stream,
    messages.reply,
)
DIALECTS = {"/chat/completions": CHAT, "/responses": RESPONSES, "/messages": MESSAGES}


@dataclass
class StrictModel:
    """Plays one turn for each request that offers tools, and says `plain` to a request without tools.

    Four bytes of what the model reads count as one token. What a request shares with the beginning of an earlier one of
    its dialect is read from the cache.

    window_tokens: a prompt that is longer is refused and plays no turn.
    is_late: it is refused within a response with status 200, if the dialect and the request have such a form.
    invalid: the requests that were refused for their form, with what was wrong.
    plain: what it says to a request without tools.
    fit: adapts a call of the script to the tools that a request offers.
    refusal: the error for a prompt that is too long, if it is not the one of the dialect.
    stored: the items before and in each response, by its id.
    threads: the last request of each thread of Messages with the response to it, by the response's id.
    """

    turns: Sequence[Turn]
    window_tokens: int | None = None
    is_late: bool = False
    plain: str = "All good."
    fit: Callable[[Call, list[Wire]], Call] = lambda call, _tools: call
    refusal: Callable[[int, int], web.Response] | None = None
    played: int = 0
    accepted: list[Recorded] = field(default_factory=list)
    refused: list[Recorded] = field(default_factory=list)
    invalid: list[tuple[Recorded, list[str]]] = field(default_factory=list)
    stored: dict[str, list[Wire]] = field(default_factory=dict)
    threads: dict[str, Wire] = field(default_factory=dict)
    spent: list[Spent] = field(default_factory=list)
    _read: dict[str, list[bytes]] = field(default_factory=dict)

    async def answer(self, recorded: Recorded, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request by its path; with 404 if nothing is there."""
        path = recorded.path.partition("?")[0].rstrip("/")
        if recorded.method == "POST":
            for suffix in DIALECTS:
                if path.endswith(suffix):
                    return await self._speak(suffix, recorded, request)
            if path.endswith("/messages/count_tokens"):
                return self._count_messages(recorded)
            if path.endswith("/responses/compact"):
                return self._compact(recorded)
        elif path.endswith("/models"):
            return web.json_response({"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "strict"}]})
        return error(404, message="nothing is here", type="invalid_request_error", param=None, code=None)

    async def _speak(self, suffix: str, recorded: Recorded, request: web.BaseRequest) -> web.StreamResponse:
        dialect = DIALECTS[suffix]
        whole, problems = self._judge(dialect, recorded)
        if problems:
            return self._refuse(dialect, recorded, problems)
        prompt = dialect.read_prompt(whole)
        spent = Spent(len(prompt) // BYTES_PER_TOKEN, self._find_cached(suffix, prompt))
        if self.window_tokens is not None and spent.prompt > self.window_tokens:
            return await self._refuse_long(dialect, recorded, request, spent)
        turn = self._choose(recorded, whole)
        if turn is None:
            return error(400, message="the script is over", type="test", code="script")
        self._read.setdefault(suffix, []).append(prompt)
        self.accepted.append(recorded)
        self.spent.append(spent)
        said = Said(turn, f"{len(self.accepted)}", spent)
        if dialect is RESPONSES and whole.get("store") is not False:
            self.stored[f"resp_{said.name}"] = [*_list_input(whole), *responses.make_output(said)]
        if dialect is MESSAGES and whole.get("thread"):
            spoken = {"role": "assistant", "content": messages.make_message(whole, said)["content"]}
            self.threads[f"msg_{said.name}"] = {**whole, "messages": [*whole["messages"], spoken]}
        return await dialect.reply(request, recorded.json, said)

    def _judge(self, dialect: Dialect, recorded: Recorded) -> tuple[Wire, list[str]]:
        """The body with the items that it continues, and what is wrong with it."""
        if dialect is MESSAGES and not recorded.header(VERSION_HEADER):
            return {}, [f"{VERSION_HEADER}: header is required"]
        try:
            body = recorded.json
        except orjson.JSONDecodeError as fault:
            return {}, [f"not JSON: {fault}"]
        if dialect is MESSAGES and (body.get("thread") or {}).get("type") == "continue":
            return self._judge_thread(body)
        problems = dialect.check(body)
        earlier = body.get("previous_response_id")
        if problems or not earlier:
            return body, problems
        if earlier not in self.stored:
            return body, [f"Previous response with id '{earlier}' not found."]
        alone = {key: value for key, value in body.items() if key != "previous_response_id"}
        whole = {**alone, "input": [*self.stored[earlier], *_list_input(body)]}
        return whole, dialect.check(whole)

    def _judge_thread(self, body: Wire) -> tuple[Wire, list[str]]:
        thread = self.threads.get(body["thread"]["previous_message_id"])
        if thread is None:
            return body, ["no usable Thread state was found for `previous_message_id`"]
        whole = {**thread, **body, "messages": [*thread["messages"], *body["messages"]]}
        return whole, MESSAGES.check(whole)

    async def _refuse_long(
        self, dialect: Dialect, recorded: Recorded, request: web.BaseRequest, spent: Spent
    ) -> web.StreamResponse:
        self.refused.append(recorded)
        body = recorded.json
        if self.is_late and (dialect is MESSAGES or (dialect is RESPONSES and body.get("stream"))):
            said = Said(Turn(""), f"late{len(self.refused)}", replace(spent, completion=0))
            return await dialect.refuse_in_stream(request, body, said)
        assert self.window_tokens is not None
        return (self.refusal or dialect.refuse_long)(spent.prompt, self.window_tokens)

    def _refuse(self, dialect: Dialect, recorded: Recorded, problems: list[str]) -> web.Response:
        self.invalid.append((recorded, problems))
        return dialect.refuse("; ".join(problems))

    def _choose(self, recorded: Recorded, body: Wire) -> Turn | None:
        if recorded.asks_for_summary:
            return Turn(SUMMARY)
        tools = responses.read_tools(body)
        if not tools:
            return Turn(self.plain)
        if self.played == len(self.turns):
            return None
        self.played += 1
        turn = self.turns[self.played - 1]
        return replace(turn, calls=tuple(self.fit(call, tools) for call in turn.calls))

    def _find_cached(self, suffix: str, prompt: bytes) -> int:
        """The tokens at the beginning that an earlier prompt had, too."""
        common = (count_common(earlier, prompt) for earlier in self._read.get(suffix, []))
        return max(common, default=0) // BYTES_PER_TOKEN

    def _count_messages(self, recorded: Recorded) -> web.Response:
        problems = messages_validity.check_body(recorded.json, counts_only=True)
        if problems:
            return self._refuse(MESSAGES, recorded, problems)
        return web.json_response({"input_tokens": len(messages.read_prompt(recorded.json)) // BYTES_PER_TOKEN})

    def _compact(self, recorded: Recorded) -> web.Response:
        """The user's messages, and everything else as one item that only the provider can read."""
        items = _list_input(recorded.json)
        packed = {"type": "compaction", "id": "cmp_1", "encrypted_content": seal(repr(items), 2000)}
        output = [*(item for item in items if item.get("role") == "user"), packed]
        usage = responses.make_usage(Spent(len(recorded.body) // BYTES_PER_TOKEN, 0))
        told = {"id": "resp_compacted", "object": "response.compaction", "created_at": 1}
        return web.json_response({**told, "output": output, "usage": usage})


def _list_input(body: Wire) -> list[Wire]:
    """The items of an input. A string is the user's message."""
    said = body.get("input") or []
    return [{"type": "message", "role": "user", "content": said}] if isinstance(said, str) else list(said)


def count_common(left: bytes, right: bytes) -> int:
    """How many bytes two texts have in common at their beginning."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if left[:middle] == right[:middle] else (low, middle - 1)
    return low
