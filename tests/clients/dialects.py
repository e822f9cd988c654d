"""What a provider says, and what the tests read of a request, in each dialect that clients speak."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import orjson
from aiohttp import web
from support import checker
from support.dialects import messages_checker, responses_checker
from upstreams.recording import error, event
from upstreams.scripted import Turn
from upstreams.speech import messages, responses
from upstreams.speech.spent import Said, Spent, write_event

Wire = dict[str, Any]

SAID = Said(Turn("half and whole"), "1", Spent(11, 0))
MESSAGE = "it is so"
_BILLING = re.compile(rb'\{"type":"text","text":"x-anthropic-billing-header:[^"]*"\},')


@dataclass(frozen=True, slots=True)
class Dialect:
    """A dialect.

    check: all problems of a forwarded body, given the client's.
    read_results: the texts of the tool results in a body.
    refuse: an error response with a status.
    beginning: the first events of a stream.
    failure: an error as an event of a stream.
    """

    check: Callable[[bytes, bytes], list[str]]
    read_results: Callable[[Wire], Iterator[str]]
    refuse: Callable[[int], web.Response]
    beginning: bytes
    failure: bytes


def _join(texts: object) -> str:
    return "".join(checker.texts_of({"content": texts}))


def _read_chat(body: Wire) -> Iterator[str]:
    yield from (_join(message["content"]) for message in body["messages"] if message["role"] == "tool")


def _read_responses(body: Wire) -> Iterator[str]:
    yield from (_join(item["output"]) for item in body["input"] if item.get("type", "").endswith("_output"))


def _read_messages(body: Wire) -> Iterator[str]:
    blocks = (block for message in body["messages"] if message["role"] == "user" for block in message["content"])
    yield from (_join(one["content"]) for one in blocks if isinstance(one, dict) and one["type"] == "tool_result")


def _check_messages(original: bytes, sent: bytes) -> list[str]:
    """Claude Code's line for billing is not sent to other upstreams than Anthropic's: it changes with each session."""
    return messages_checker.check_request(_BILLING.sub(b"", original, count=1), sent)


def _begin(events: Iterable[Wire], count: int) -> bytes:
    return b"".join(map(write_event, islice(events, count)))


def _refuse(status: int) -> web.Response:
    return error(status, message=MESSAGE, type="a_type", code="a_code", param=None)


DIALECTS = {
    "chat": Dialect(
        checker.check_request,
        _read_chat,
        _refuse,
        event("half"),
        b"data: " + orjson.dumps({"error": {"message": MESSAGE, "type": "server_error", "code": 500}}) + b"\n\n",
    ),
    "responses": Dialect(
        responses_checker.check_request,
        _read_responses,
        _refuse,
        _begin(responses.number(responses.make_events({"model": "m"}, SAID)), 5),
        write_event({"type": "error", "sequence_number": 5, "code": "server_error", "message": MESSAGE, "param": None}),
    ),
    "messages": Dialect(
        _check_messages,
        _read_messages,
        lambda status: messages.fault(status, "a_type", MESSAGE),
        _begin(messages.make_events(messages.make_message({"model": "m", "messages": []}, SAID)), 4),
        write_event({"type": "error", "error": {"type": "overloaded_error", "message": MESSAGE}}),
    ),
}
