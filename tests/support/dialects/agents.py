"""An agent's client in each dialect: it keeps the transcript, and takes what the model says into it unchanged.

Law: it knows no codec. What it sends is what a client without an SDK would send.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from support import checker
from support.dialects import messages_checker, responses_checker
from support.dialects.spoken.dialect import read_sse

Wire = dict[str, Any]

NAME = "read_file"
PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}}
MAX_TOKENS = 2000
"""The completion limit of a Messages request. It must be larger than the tokens for thinking."""
THINKING_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class Speech:
    """How a client of a dialect speaks.

    name: of the dialect.
    path: of the requests.
    transcript: the member of a body with the transcript.
    headers: that each request needs.
    begin: the members of a body around the transcript, for a system prompt. `thinks`: the model reasons.
    read: what the model said, as elements of the transcript. `is_stream`: the response is a stream.
    list_calls: the ids of the calls in these elements, in order.
    write_results: elements of the transcript for results, by the ids of their calls.
    check: the problems of a forwarded body, given the client's.
    """

    name: str
    path: str
    transcript: str
    headers: Mapping[str, str]
    begin: Callable[..., Wire]
    read: Callable[..., list[Wire]]
    list_calls: Callable[[Sequence[Wire]], list[str]]
    write_results: Callable[[Mapping[str, str]], list[Wire]]
    check: Callable[..., list[str]]

    def __str__(self) -> str:
        return self.name


@dataclass(slots=True)
class Agent:
    """An agent with its transcript. `change` is applied to each body that it sends."""

    speech: Speech
    system: str = "You are a coding agent. Read what you are told to read."
    thinks: bool = False
    more: Wire = field(default_factory=dict)
    change: Callable[[Wire], Wire] = lambda body: body
    elements: list[Wire] = field(default_factory=list)

    def write(self) -> bytes:
        """The body of the next request."""
        outside = {"model": "m", **self.speech.begin(self.system, thinks=self.thinks), **self.more}
        leading = [{"role": "system", "content": self.system}] if self.speech is CHAT else []
        return orjson.dumps(self.change({**outside, self.speech.transcript: [*leading, *self.elements]}))

    def say(self, text: str) -> None:
        """Add a message of the user."""
        self.elements.append({"role": "user", "content": text})

    def hear(self, answer: bytes, *, is_stream: bool) -> list[str]:
        """Add what the model said. Returns the ids of its calls."""
        said = self.speech.read(answer, is_stream=is_stream)
        self.elements += said
        return self.speech.list_calls(said)

    def answer(self, results: Mapping[str, str]) -> None:
        """Add the results of calls, by the ids of the calls."""
        self.elements += self.speech.write_results(results)


def _begin_chat(_system: str, **_: bool) -> Wire:
    return {"tools": [{"type": "function", "function": {"name": NAME, "parameters": PARAMETERS}}]}


def _read_chat(answer: bytes, *, is_stream: bool) -> list[Wire]:
    if not is_stream:
        return [orjson.loads(answer)["choices"][0]["message"]]
    message: Wire = {"role": "assistant", "content": ""}
    for delta in (choice["delta"] for event in read_sse(answer) for choice in event["choices"]):
        message["content"] += delta.get("content") or ""
        for call in delta.get("tool_calls") or ():
            calls = message.setdefault("tool_calls", [])
            if call["index"] == len(calls):
                calls.append({key: value for key, value in call.items() if key != "index"})
            else:
                calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
    return [message]


def _begin_responses(system: str, *, thinks: bool) -> Wire:
    body: Wire = {"instructions": system, "store": False}
    if thinks:
        body |= {"include": ["reasoning.encrypted_content"], "reasoning": {"effort": "medium"}}
    return {**body, "tools": [{"type": "function", "name": NAME, "parameters": PARAMETERS, "strict": False}]}


def read_response(answer: bytes, *, is_stream: bool) -> Wire:
    """A finished response of Responses."""
    finished: Wire = read_sse(answer)[-1]["response"] if is_stream else orjson.loads(answer)
    assert finished["status"] == "completed"
    return finished


def _begin_messages(system: str, *, thinks: bool) -> Wire:
    body: Wire = {"max_tokens": MAX_TOKENS, "system": [{"type": "text", "text": system}]}
    if thinks:
        body["thinking"] = {"type": "enabled", "budget_tokens": THINKING_TOKENS}
    return {**body, "tools": [{"name": NAME, "input_schema": PARAMETERS}]}


def _read_messages(answer: bytes, *, is_stream: bool) -> list[Wire]:
    blocks = list(_join_blocks(read_sse(answer))) if is_stream else orjson.loads(answer)["content"]
    return [{"role": "assistant", "content": blocks}]


def _join_blocks(events: Iterable[Wire]) -> Iterator[Wire]:
    """The blocks of a stream."""
    block: Wire = {}
    written = ""
    for event in events:
        if event["type"] == "content_block_start":
            block, written = event["content_block"], ""
        elif event["type"] == "content_block_delta":
            delta = event["delta"]
            written += delta.get("partial_json") or ""
            for name in {"text", "thinking", "signature"} & set(delta):
                block[name] += delta[name]
        elif event["type"] == "content_block_stop":
            yield {**block, "input": orjson.loads(written)} if block["type"] == "tool_use" else block


def _pair(results: Mapping[str, str], kind: str, key: str, said: str) -> list[Wire]:
    return [{"type": kind, key: one, said: text} for one, text in results.items()]


CHAT = Speech(
    "chat",
    "/v1/chat/completions",
    "messages",
    {},
    _begin_chat,
    _read_chat,
    lambda said: [call["id"] for message in said for call in message.get("tool_calls", ())],
    lambda results: [{"role": "tool", "tool_call_id": one, "content": text} for one, text in results.items()],
    checker.check_request,
)
RESPONSES = Speech(
    "responses",
    "/v1/responses",
    "input",
    {},
    _begin_responses,
    lambda answer, **form: read_response(answer, **form)["output"],
    lambda said: [item["call_id"] for item in said if item["type"] == "function_call"],
    lambda results: _pair(results, "function_call_output", "call_id", "output"),
    responses_checker.check_request,
)
MESSAGES = Speech(
    "messages",
    "/v1/messages",
    "messages",
    {"anthropic-version": "2023-06-01"},
    _begin_messages,
    _read_messages,
    lambda said: [block["id"] for message in said for block in message["content"] if block["type"] == "tool_use"],
    lambda results: [{"role": "user", "content": _pair(results, "tool_result", "tool_use_id", "content")}],
    messages_checker.check_request,
)
