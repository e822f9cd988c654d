"""A request as an upstream sees it: its parts, their tokens, and whether a strict upstream would accept it.

Law: a part is known by its exact bytes; it is decoded and counted once in a run. Only marks for the upstream's cache
are no part of it: a message is the same with them and without (see marks.py).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import msgspec
import orjson

from bench.harness.counting import load_encoding, make_counter

MESSAGE_TOKENS = 3
ROLE_TOKENS = 1
PRIMING_TOKENS = 3
CALL_TOKENS = 5
"""Source: the frames in OpenAI's cookbook; independent of the proxy's counting."""
LEADERS = ("system", "developer")
_count = make_counter(load_encoding())


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One message, or the part before all messages (model and tool schemas; its `role` is empty).

    `text` is all that the model reads of it, in order. `calls` are the ids of its tool calls; `answers` is the id of
    the call that a tool result answers. `block_ends` are the characters of `text` up to the end of each content block
    and each tool call, ascending. Two parts are equal only if they are the same object: see `read_part`.
    """

    role: str
    text: str
    tokens: int
    calls: tuple[str, ...] = ()
    answers: str | None = None
    block_ends: tuple[int, ...] = ()


class _Body(msgspec.Struct):
    messages: list[msgspec.Raw]
    model: str = ""
    tools: msgspec.Raw = msgspec.Raw(b"")


_decode_body = msgspec.json.Decoder(_Body).decode
_parts: dict[bytes, Part] = {}


def split_body(body: bytes) -> tuple[Part, ...]:
    """The parts of a request body."""
    decoded = _decode_body(body)
    return (read_fixed(decoded.model, bytes(decoded.tools)), *(read_part(bytes(raw)) for raw in decoded.messages))


def read_part(raw: bytes) -> Part:
    """A message from its JSON; the same bytes give the same object."""
    part = _parts.get(raw)
    if part is None:
        part = _parts[raw] = _decode_message(orjson.loads(raw))
    return part


def has_read(raw: bytes) -> bool:
    """Whether these bytes were read before as a message."""
    return raw in _parts


def read_fixed(model: str, tools: bytes) -> Part:
    """The part before the messages."""
    key = model.encode() + b"\n" + tools
    part = _parts.get(key)
    if part is None:
        text = tools.decode()
        part = _parts[key] = Part("", f"{model}\n{text}", PRIMING_TOKENS + count_text(text))
    return part


def count_text(text: str) -> int:
    """Tokens of a text in o200k_base."""
    return _count(text) if text else 0


def count_parts(parts: Iterable[Part]) -> int:
    """Prompt tokens of a request."""
    return sum(part.tokens for part in parts)


def count_common_text(left: Part, right: Part) -> int:
    """Tokens at the front of two different parts that are the same."""
    if left.role != right.role:
        return 0
    low, high = 0, min(len(left.text), len(right.text))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if left.text[:middle] == right.text[:middle] else (low, middle - 1)
    return min(count_text(left.text[:low]), left.tokens, right.tokens)


def is_paired(parts: Sequence[Part]) -> bool:
    """Whether every tool call has exactly one result in the block right after it, and every result has its call."""
    wanted: Counter[str] = Counter()
    for part in parts:
        if part.role == "tool":
            answers = part.answers or ""
            if not wanted[answers]:
                return False
            wanted[answers] -= 1
        elif any(wanted.values()):
            return False
        else:
            wanted = Counter(part.calls)
    return not any(wanted.values())


def _decode_message(message: dict[str, Any]) -> Part:
    calls = [call.get("function") or {} for call in message.get("tool_calls") or ()]
    named = [(str(call.get("name") or ""), str(call.get("arguments") or "")) for call in calls]
    texts = _read_texts(message.get("content"))
    tokens = MESSAGE_TOKENS + ROLE_TOKENS + sum(map(count_text, texts))
    tokens += sum(CALL_TOKENS + 2 * count_text(name) + count_text(arguments) for name, arguments in named)
    if message.get("name"):
        tokens += 1 + count_text(message["name"])
    blocks = (*texts, *("\n".join(call) for call in named))
    lengths = accumulate(len(block) + 1 for block in blocks)
    return Part(
        role=message["role"],
        text="\n".join(blocks),
        tokens=tokens,
        calls=tuple(call.get("id") or "" for call in message.get("tool_calls") or ()),
        answers=message.get("tool_call_id"),
        block_ends=tuple(length - 1 for length in lengths),
    )


def _read_texts(content: object) -> list[str]:
    """The texts of a message's content; a part that is not text counts as its JSON."""
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else []
    return [part["text"] if isinstance(part.get("text"), str) else orjson.dumps(part).decode() for part in parts]
