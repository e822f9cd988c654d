"""A recorded session in a form from which each dialect's requests can be written without adding anything.

Law: what one dialect needs and another does not is in the session itself, before it is converted: a user message at
the beginning, definitions of the tools, valid ids, arguments that are an object.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from bench.material.workload import MODEL, Session, encode
from bench.sessions.prompts import Part, read_fixed, read_part

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from support.dialects.oddities import NotConvertibleError, pair, parts_of, split_leading
from support.dialects.spoken.chat import CHAT
from support.dialects.spoken.messages import MESSAGES
from support.dialects.spoken.responses import RESPONSES
from support.dialects.to_messages import FIRST, guess_tools, read_input

__all__ = ["DIALECTS", "NotConvertibleError", "Spoken", "make_comparable"]

Wire = dict[str, Any]

DIALECTS = {dialect.name: dialect for dialect in (CHAT, RESPONSES, MESSAGES)}
MAX_TOKENS = 4096
"""The completion limit of each request, because Messages needs one. Chosen: Claude Code's is larger; half of the
reserve at the smallest window would be reserved without it."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """A session as a client of a dialect sends it."""

    dialect: str
    session: Session

    def write(self, stop: int) -> bytes:
        """The request with the first `stop` messages."""
        row = {"messages": [orjson.loads(raw) for raw in self.session.messages[:stop]]}
        tools = orjson.loads(self.session.tools or b"[]")
        body = DIALECTS[self.dialect].write(row["messages"], tools, max_tokens=MAX_TOKENS)
        return orjson.dumps({**body, "model": MODEL})

    def split(self, body: bytes) -> Sequence[Part]:
        """The parts of a request in the dialect, read as those of chat completions."""
        messages = DIALECTS[self.dialect].read(orjson.loads(body))
        return (read_fixed(MODEL, self.session.tools), *(read_part(orjson.dumps(message)) for message in messages))


def make_comparable(session: Session) -> Session:
    """The session in that form. Raises NotConvertibleError.

    Left out are messages without content. Several leading system messages become one.
    """
    messages = [orjson.loads(raw) for raw in session.messages[: session.stops[-1]]]
    leading, rest = split_leading(messages)
    texts = [part["text"] for message in leading for part in parts_of(message)]
    system = [{"role": "system", "content": "\n\n".join(texts)}] if texts else []
    said = list(_clean(rest))
    first = [] if said and said[0]["role"] == "user" else [{"role": "user", "content": FIRST}]
    tools = orjson.loads(session.tools or b"[]") or [
        {"type": "function", **tool} for tool in guess_tools(rest)
    ]
    return encode(session.id, {"messages": [*system, *first, *said], "tools": tools})


def _clean(messages: Sequence[Wire]) -> Iterator[Wire]:
    for paired in pair(messages):
        message = paired.message
        parts = parts_of(message)
        content = parts[0]["text"] if len(parts) == 1 and "text" in parts[0] else parts or None
        if message["role"] == "tool":
            yield {"role": "tool", "tool_call_id": paired.ids[0], "content": content or ""}
            continue
        if message["role"] not in {"user", "assistant"}:
            why = f"a {message['role']} message that does not lead"
            raise NotConvertibleError(why)
        calls = [
            _call(call, key) for call, key in zip(message.get("tool_calls") or (), paired.ids, strict=True)
        ]
        if parts or calls:
            yield {"role": message["role"], "content": content, **({"tool_calls": calls} if calls else {})}


def _call(call: Wire, key: str) -> Wire:
    arguments = orjson.dumps(read_input(call["function"]["arguments"])).decode()
    return {"id": key, "type": "function", "function": {"name": call["function"]["name"], "arguments": arguments}}
