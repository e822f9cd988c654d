"""Steps of an agent: tool calls with their results."""

from dataclasses import replace
from itertools import count as numbers

import orjson
from support.builders import assistant, call, result

from trimtab.rules.conversation import Message, ToolCall
from trimtab.rules.summary.calls import Answered

_NUMBERS = numbers()


def step(name: str, arguments: object, said: str = "ok", *, fails: bool = False) -> list[Message]:
    """One call with its result. Arguments that are not a text are encoded as JSON."""
    one = make_call(name, arguments)
    return [assistant(None, one), replace(result(one.id, said), is_error=fails)]


def answered(name: str, arguments: object, said: str | None = "ok", *, fails: bool = False) -> Answered:
    """The same as an `Answered` pair. It has no result if `said` is None."""
    one = make_call(name, arguments)
    return Answered(one, None if said is None else replace(result(one.id, said), is_error=fails))


def make_call(name: str, arguments: object) -> ToolCall:
    """A call with a unique id."""
    text = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
    return call(f"c{next(_NUMBERS)}", name, text)
