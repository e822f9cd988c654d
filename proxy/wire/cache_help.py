"""What trimtab adds to a request so that its provider finds more of the prompt in its cache.

Law: no provider puts what is added into the prompt. What the client sets itself stays, and nothing is added beside it.
A request has never more than four markers.
A marker never counts as part of what a message says, because clients move them at each request.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import msgspec

from trimtab.proxy.wire.json import decode_items, decode_member, read_members
from trimtab.rules.conversation import Message, Origin, Role, count_leading
from trimtab.rules.text.markers import SUMMARY_START

CACHE_MARKERS = ("cache_control", "prompt_cache_breakpoint")
"""Members of a message or a part that ask for a prompt cache up to this position: Anthropic's and OpenAI's.

A client moves them to the end of its transcript at each request. So they do not count as part of a message's text.
"""


def find_markers(item: bytes) -> dict[str, msgspec.Raw]:
    if item[:1] != b"{" or not any(name.encode() in item for name in CACHE_MARKERS):
        return {}
    members = read_members(item)
    return {name: members[name] for name in CACHE_MARKERS if name in members}


def find_markers_within(raw: bytes) -> dict[str, msgspec.Raw]:
    """The cache markers of a message and of its parts; the last one of each name."""
    if not any(name.encode() in raw for name in CACHE_MARKERS):
        return {}
    content = bytes(read_members(raw).get("content", b""))
    parts = map(bytes, decode_items(content)) if content[:1] == b"[" else ()
    return {name: marker for item in (raw, *parts) for name, marker in find_markers(item).items()}


def unmark(part: bytes) -> bytes:
    if not find_markers(part):
        return part
    members = read_members(part)
    return msgspec.json.encode({name: value for name, value in members.items() if name not in CACHE_MARKERS})


def mark(part: bytes, markers: dict[str, msgspec.Raw]) -> bytes:
    """The part with these cache markers added; a marker that it already has stays."""
    members = read_members(part)
    missing = {name: marker for name, marker in markers.items() if name not in members}
    return msgspec.json.encode(members | missing) if missing else part


Addition = Literal["cache_key", "cache_breakpoint", "cache_control", "thinking", "provider_note"]
"""What may be added, by the name of the decision that says so.

- `cache_key`: the member `prompt_cache_key`.
- `cache_breakpoint`: OpenAI's `prompt_cache_breakpoint` at the end of the summary.
- `cache_control`: Anthropic's marker. In the Messages API at the end of the summary; in chat completions also at the
  end of the system prompt and of the transcript.
- `thinking`: Anthropic's `block_binding`, which has nothing to do with the cache; see messages/codec.py.
- `provider_note`: the provider's own note; neither has that.
"""
FIELDS: Mapping[Addition, bytes] = {
    "cache_key": b"prompt_cache_key",
    "cache_breakpoint": b"prompt_cache_breakpoint",
    "cache_control": b"cache_control",
}
"""The names of the fields on the wire; a refusal names them."""
BREAKPOINT = b'{"prompt_cache_breakpoint":{"mode":"explicit"}}'
CONTROL = b'{"cache_control":{"type":"ephemeral"}}'
MAX_MARKERS = 4
"""Source: OpenAI's guide to prompt caching (four writes for each request, of which the implicit one is one), and
Anthropic's page on prompt caching (a fifth marker is refused)."""
MIN_TOKENS = 512  # A shorter prompt gets no markers. Source: Anthropic's page on prompt caching.
NEWEST_MESSAGES = 20
"""For the marker at the end. Source: Anthropic's page on prompt caching: the API looks back 20 blocks."""
_TOOL_CONTROL = re.compile(rb'"cache_control"\s*+:\s*+\{\s*+"(?:type"\s*+:\s*+"ephemeral"|ttl")')
"""Matches a marker of the client in its tools. A property of a tool may have the same name."""
_ADDED_KEY = re.compile(rb'[^{]*+\{"prompt_cache_key":"([0-9a-f]++)",')
_NEEDLES = tuple(b'"%b"' % name.encode() for name in CACHE_MARKERS)


class CacheHelp(msgspec.Struct, frozen=True):
    """What the provider of a request takes for its prompt cache. key: of `prompt_cache_key`; empty if not known."""

    adds: frozenset[Addition] = frozenset()
    key: str = ""


NO_HELP = CacheHelp()


class Helped(NamedTuple):
    pieces: tuple[bytes, ...]
    added: tuple[Addition, ...] = ()


class Client(NamedTuple):
    """What the client says about the prompt cache. outside: the body without the transcript. marked: by number."""

    outside: Mapping[str, msgspec.Raw]
    marked: Mapping[int, bytes]


def has_markers(raw: bytes) -> bool:
    """Whether an element has a cache marker. A text cannot look like one, because its quotes are escaped."""
    return any(needle in raw for needle in _NEEDLES)


def find_summary(messages: Iterable[Message]) -> int | None:
    """The index of the message that a rule made of the messages before a cut; None if nothing was cut."""
    for index, message in enumerate(messages):
        is_made = message.edited and message.role is not Role.TOOL
        if is_made and any(text.startswith(SUMMARY_START) for text in message.texts):
            return index
    return None


def add_breakpoint(
    messages: Sequence[Message], origins: Sequence[Origin | None], client: Client, *, at_end: bool = False
) -> dict[int, Message]:
    """The messages with a new breakpoint, by index: the summary, and the last message if `at_end`.

    None of them if the client places all breakpoints itself, or if there would be more than four. The model's own
    messages take none. Source: OpenAI's guide to prompt caching.
    """
    summary = find_summary(messages)
    places = [] if summary is None else [summary]
    places += [len(messages) - 1] if at_end and messages and summary != len(messages) - 1 else []
    places = [at for at in places if messages[at].speaker is not Role.ASSISTANT and _ends_in_text(messages[at])]
    options = decode_member(client.outside.get("prompt_cache_options"))
    marks_all = isinstance(options, dict) and options.get("mode") == "explicit"
    # Those that are forwarded: in elements that stay, and in what the summary took in.
    stays = {origin.start for origin in origins if origin is not None} if client.marked else set()
    raws = [raw for at, raw in client.marked.items() if at in stays]
    raws += [raw for at in places[:1] for raw in messages[at].taken_in]
    implicit, forwarded = 1, sum(raw.count(b'"prompt_cache_breakpoint"') for raw in raws)
    if marks_all or implicit + forwarded + len(places) > MAX_MARKERS:
        return {}
    return {at: _mark(messages[at], BREAKPOINT) for at in places}


def add_controls(messages: Sequence[Message], client: Client) -> dict[int, Message]:
    """The messages with a new `cache_control`, by index.

    These are the last leading system message, the summary, and the newest message of the user's side. None of them if
    the client uses the marker itself, or the prompt is too short.

    Only text parts get one: OpenRouter does not answer if a message of a tool has it beside its content.
    Source: NousResearch/hermes-agent#2362.
    """
    is_outside = "cache_control" in client.outside or _TOOL_CONTROL.search(bytes(client.outside.get("tools", b"")))
    is_own = is_outside or any(b'"cache_control"' in raw for raw in client.marked.values())
    if is_own or sum(message.tokens for message in messages) < MIN_TOKENS:
        return {}
    systems, sides = count_leading(messages), {Role.USER, Role.TOOL}
    late = range(len(messages) - 1, max(len(messages) - NEWEST_MESSAGES, 0) - 1, -1)
    newest = next((at for at in late if messages[at].role in sides and _ends_in_text(messages[at])), None)
    places = {find_summary(messages), systems - 1 if systems else None, newest}
    found = (at for at in places if at is not None and messages[at].speaker is not Role.ASSISTANT)
    return {at: _mark(messages[at], CONTROL) for at in sorted(found) if _ends_in_text(messages[at])}


def _ends_in_text(message: Message) -> bool:
    """Whether the last part is a text that may bear a marker; an empty one may not."""
    has_media = any(not part.is_removed for part in message.media)
    return bool(message.texts) and not has_media and not message.has_fixed_texts and bool(message.texts[-1].strip())


def _mark(message: Message, marker: bytes) -> Message:
    return replace(message, edited=True, taken_in=(*message.taken_in, marker))


def replace_element(pieces: tuple[bytes, ...], old: bytes, new: bytes, *, is_late: bool) -> tuple[bytes, ...] | None:
    """The pieces with one element replaced; None if it is not found. `is_late`: it is searched from the end."""
    for at in range(len(pieces) - 1, -1, -1) if is_late else range(len(pieces)):
        piece = pieces[at]
        place = piece.rfind(old) if is_late else piece.find(old)
        if place >= 0:
            return (*pieces[:at], b"".join((piece[:place], new, piece[place + len(old) :])), *pieces[at + 1 :])
    return None


def find_key(body: bytes) -> str:
    found = _ADDED_KEY.match(body)
    return "" if found is None else found[1].decode()


def add_key(pieces: tuple[bytes, ...], key: str) -> tuple[bytes, ...]:
    """The body with `prompt_cache_key` as its first member. `pieces` begin like a JSON object that is not empty."""
    first = pieces[0]
    at = first.index(b"{") + 1
    return (b'%b"prompt_cache_key":"%b",%b' % (first[:at], key.encode(), first[at:]), *pieces[1:])


def help_openly(
    help_: CacheHelp,
    pieces: tuple[bytes, ...],
    messages: Sequence[Message],
    marked: Mapping[int, Message],
    write: Callable[[Message], bytes],
) -> Helped:
    """The body of a chat or Responses request with what its provider takes. write: the JSON of a message.

    marked: the messages, by index, whose last part gets a marker. A string becomes a part: only a part can hold it.
    """
    added: list[Addition] = []
    for at, message in marked.items():
        old, new = write(messages[at]), write(message)
        written = None if old == new else replace_element(pieces, old, new, is_late=2 * at >= len(messages))
        if written is not None:
            pieces = written
            added.append("cache_control" if "cache_control" in help_.adds else "cache_breakpoint")
    if help_.key:
        pieces = add_key(pieces, help_.key)
        added.append("cache_key")
    return Helped(pieces, tuple(dict.fromkeys(added)))
