"""Tool calls with their results, the newest first, and the decoded arguments of calls.

Law: linear; no arguments make it fail. The steps are generated one by one, so a search for the newest of something can
stop early.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from rules.conversation import Message, Role, ToolCall
from rules.results.calls import MAX_ARGUMENTS_CHARS, OpenCalls, tells_failure

_decode = msgspec.json.Decoder().decode


class Answered(NamedTuple):
    """A call and its result; None if the call was not answered."""

    call: ToolCall
    result: Message | None

    @property
    def has_failed(self) -> bool:
        """Whether the client or the result says that the call failed."""
        return self.result is not None and tells_failure(self.result)


class Step(NamedTuple):
    """A message that is not a tool result, and its calls in order."""

    message: Message
    calls: tuple[Answered, ...]


def newest_steps(messages: Sequence[Message]) -> Iterator[Step]:
    """Yield the steps of a transcript, the newest first. Each tool result must follow the message that calls it."""
    results: list[Message] = []
    for message in reversed(messages):
        if message.role is Role.TOOL:
            results.append(message)
            continue
        yield Step(message, _pair(message, results))
        results = []


def read_arguments(call: ToolCall) -> dict[str, Any]:
    """Return the members of a call's arguments.

    If the arguments are not a JSON object, their value (or their text, if they are not JSON) is the member "".
    Arguments that were encoded as JSON twice are decoded twice. Arguments of more than MAX_ARGUMENTS_CHARS characters
    have no members.
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
    """Decode a JSON text; None if it is not JSON."""
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def _pair(message: Message, results: Sequence[Message]) -> tuple[Answered, ...]:
    """The message's calls with their results; `results` has the newest first."""
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
