"""Calls with the results that answer them, the newest first, and what a call's arguments say.

Law: linear, and total on any arguments. Whoever looks for the newest of something stops where it was found.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from rules.conversation import Message, Role, ToolCall
from rules.results.calls import OpenCalls
from rules.results.tools.arguments import MAX_ARGUMENTS_CHARS
from rules.results.tools.failure import tells_failure

_decode = msgspec.json.Decoder().decode


class Answered(NamedTuple):
    """A call and its result; None if it has none."""

    call: ToolCall
    result: Message | None

    @property
    def has_failed(self) -> bool:
        """Whether the client, or the result, says that the call failed."""
        return self.result is not None and tells_failure(self.result)


class Step(NamedTuple):
    """A message that is no result, and the calls that it makes, in their order."""

    message: Message
    calls: tuple[Answered, ...]


def newest_steps(messages: Sequence[Message]) -> Iterator[Step]:
    """The steps of a paired transcript, the newest first."""
    results: list[Message] = []
    for message in reversed(messages):
        if message.role is Role.TOOL:
            results.append(message)
            continue
        yield Step(message, _pair(message, results))
        results = []


def read_arguments(call: ToolCall) -> dict[str, Any]:
    """The members of a call's arguments; under the empty name a list, or a text that is no JSON.

    Arguments that were encoded twice are decoded twice. There are none of arguments beyond MAX_ARGUMENTS_CHARS.
    """
    if len(call.arguments) > MAX_ARGUMENTS_CHARS:
        return {}
    value = decode(call.arguments)
    if isinstance(value, str) and value.startswith("{"):
        value = decode(value)
    if isinstance(value, dict):
        return value
    return {"": call.arguments if value is None else value}


def decode(text: str) -> Any:
    """What a text of JSON says; None if it is none."""
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def _pair(message: Message, results: Sequence[Message]) -> tuple[Answered, ...]:
    """The message's calls, each with the one of the results that answers it; the newest result comes first."""
    if not message.tool_calls:
        return ()
    if len(message.tool_calls) == len(results) == 1 and results[0].answers == message.tool_calls[0].id:
        return (Answered(message.tool_calls[0], results[0]),)
    calls = OpenCalls()
    calls.answer(message)
    answers: dict[int, Message] = {}
    for result in reversed(results):
        call = calls.answer(result)
        if call is not None:
            answers[id(call)] = result
    return tuple(Answered(call, answers.get(id(call))) for call in message.tool_calls)
