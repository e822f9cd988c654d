"""The marks by which a request tells the upstream what to cache.

Law: marks are no part of what the model reads. A message without its marks is the message that the client sent.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import orjson

from bench.sessions.prompts import Part, has_read, read_fixed, read_part

CONTROL = "cache_control"
"""Source: Anthropic's Messages, and Claude behind chat completions."""
BREAKPOINT = "prompt_cache_breakpoint"
OPTIONS = "prompt_cache_options"
"""Source: OpenAI's chat completions and Responses from GPT-5.6 on."""
_NAMES = (CONTROL, BREAKPOINT)
_AT_END = sys.maxsize
"""The number of the block of a mark that stands beside a message's content: behind all of its blocks."""


@dataclass(frozen=True, slots=True)
class Place:
    """The end of a content block: the index of its part, and the characters of the part's text up to there."""

    index: int
    chars: int


@dataclass(frozen=True, slots=True)
class Marks:
    """The marks of one request, in order.

    `controls` are places with `cache_control`, `breakpoints` those with `prompt_cache_breakpoint`. `is_automatic`:
    `cache_control` stands beside the messages, so the upstream marks the last block. `is_explicit`: the implicit
    breakpoint is switched off.
    """

    controls: tuple[Place, ...] = ()
    breakpoints: tuple[Place, ...] = ()
    is_automatic: bool = False
    is_explicit: bool = False


NO_MARKS = Marks()


class _Body(msgspec.Struct):
    messages: list[msgspec.Raw]
    model: str = ""
    tools: msgspec.Raw = msgspec.Raw(b"")
    cache_control: msgspec.Raw = msgspec.Raw(b"")
    prompt_cache_options: dict[str, Any] = {}


_decode = msgspec.json.Decoder(_Body).decode


def split_marked(body: bytes) -> tuple[tuple[Part, ...], Marks]:
    """The parts of a request body of chat completions, without marks, and its marks."""
    decoded = _decode(body)
    tools, marked_tool = _unmark_tools(bytes(decoded.tools))
    parts = [read_fixed(decoded.model, tools)]
    found: dict[str, list[Place]] = {name: [] for name in _NAMES}
    if marked_tool:
        found[CONTROL].append(Place(0, len(parts[0].text)))
    for index, raw in enumerate(decoded.messages, start=1):
        part, blocks = _unmark(bytes(raw))
        parts.append(part)
        for name, block in blocks:
            ends = part.block_ends
            found[name].append(Place(index, ends[block] if block < len(ends) else len(part.text)))
    marks = Marks(
        tuple(found[CONTROL]),
        tuple(found[BREAKPOINT]),
        is_automatic=bool(decoded.cache_control),
        is_explicit=decoded.prompt_cache_options.get("mode") == "explicit",
    )
    return tuple(parts), marks


def _unmark(raw: bytes) -> tuple[Part, Sequence[tuple[str, int]]]:
    """A message without its marks; each mark's name with the number of its block."""
    if not _may_be_marked(raw):
        return read_part(raw), ()
    message = orjson.loads(raw)
    blocks = message.get("content")
    found = list(_find_marks(blocks)) if isinstance(blocks, list) else []
    found += [(name, _AT_END) for name in _NAMES if message.get(name)]
    if not found:
        return read_part(raw), ()
    return read_part(_write_plain(message)), found


def _may_be_marked(raw: bytes) -> bool:
    return any(name.encode() in raw for name in _NAMES)


def _find_marks(blocks: Sequence[object]) -> Iterator[tuple[str, int]]:
    for number, block in enumerate(blocks):
        if isinstance(block, Mapping):
            yield from ((name, number) for name in _NAMES if block.get(name))


def _write_plain(message: dict[str, Any]) -> bytes:
    """A message without marks. A text that was made a block only to bear a mark is a plain text again."""
    plain = {key: value for key, value in message.items() if key not in _NAMES}
    if isinstance(plain.get("content"), list):
        blocks = [_drop_marks(block) for block in plain["content"]]
        plain["content"] = blocks
        listed = orjson.dumps(plain)
        if len(blocks) == 1 and isinstance(blocks[0], dict) and blocks[0].keys() == {"type", "text"}:
            spelled = orjson.dumps({**plain, "content": blocks[0]["text"]})
            return listed if has_read(listed) and not has_read(spelled) else spelled
        return listed
    return orjson.dumps(plain)


def _drop_marks(block: object) -> object:
    if not isinstance(block, dict):
        return block
    return {key: value for key, value in block.items() if key not in _NAMES}


def _unmark_tools(tools: bytes) -> tuple[bytes, bool]:
    """The tool schemas without marks, and whether one was marked. A mark counts at the end of the tools."""
    if CONTROL.encode() not in tools:
        return tools, False
    schemas = orjson.loads(tools)
    plain = [_drop_marks(schema) for schema in schemas]
    return (orjson.dumps(plain), True) if plain != schemas else (tools, False)
