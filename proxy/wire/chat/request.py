"""POST /v1/chat/completions: bytes <-> Conversation.

Law: what no rule touched goes out as the bytes it came in: messages, white space between them, and all other members.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from sys import getsizeof
from typing import Any

import msgspec

from proxy.lru import BytesLRU
from proxy.wire.chat.cost import DECODE_ERRORS, read_surroundings
from proxy.wire.chat.inline import write_members
from proxy.wire.chat.message import UndecodableError, decode_message, encode_message
from proxy.wire.json.repair import mend
from proxy.wire.json.spans import Array, find_array, has_more_parts
from rules.conversation import Conversation, CountTokens, Message
from rules.tokens.families import GENERIC, Costs
from rules.tokens.messages import count_format, count_shared_frame, count_tools

CACHE_BYTES = 64 * 1024 * 1024
"""Decoded messages kept; a message seen before is not decoded or counted again."""
OBJECT_BYTES = 150
"""What a message, a text, a part or a call costs in memory beside its characters."""
MAX_PARTS = 600_000
"""Strings of a request, and commas between its values. 15 million held the loop for 24 seconds, and 2 gigabytes."""
TOOLS_FACTOR = 16
"""Rendering hostile tools takes as long as counting so many times their length."""


_ESCAPED_KEY = "the key 'messages' is not written plainly"


class _Body(msgspec.Struct):
    messages: list[msgspec.Raw]
    model: Any = None
    stream: Any = None
    max_tokens: Any = None
    max_completion_tokens: Any = None
    tools: msgspec.Raw = msgspec.Raw()
    functions: msgspec.Raw = msgspec.Raw()
    tool_choice: msgspec.Raw = msgspec.Raw()
    function_call: msgspec.Raw = msgspec.Raw()
    response_format: msgspec.Raw = msgspec.Raw()


_decode_body = msgspec.json.Decoder(_Body).decode


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request split into its messages; `raws` is the JSON of each, oldest first.

    `fixed` is the JSON of what stands outside the messages and costs tokens: tools, functions, tool choice, function
    call, response format; empty for what is not there.
    """

    body: bytes
    raws: tuple[bytes, ...]
    model: str
    stream: bool
    max_tokens: int | None
    max_tokens_key: str
    fixed: tuple[bytes, ...]


def read_request(body: bytes) -> ChatRequest:
    """Split a body into its messages without decoding them. Raises UndecodableError."""
    decoded = _split(body)
    return _make_request(body, decoded, tuple(map(bytes, decoded.messages)))


def read_damaged_request(body: bytes) -> ChatRequest:
    """The same of a body that read_request refused, where all that is wrong with it can be mended.

    Lone surrogates, NaN and Infinity, a byte order mark: most upstreams' decoders read them. Slower. Messages keep
    their bytes.
    """
    clean = mend(body)
    decoded = _split(clean)
    spans = _find_messages(clean, tuple(map(bytes, decoded.messages))).elements
    return _make_request(body, decoded, tuple(body[span.start : span.stop] for span in spans))


def _make_request(body: bytes, decoded: _Body, raws: tuple[bytes, ...]) -> ChatRequest:
    key = "max_completion_tokens" if decoded.max_completion_tokens is not None else "max_tokens"
    wanted = getattr(decoded, key)
    fixed = (
        decoded.tools,
        decoded.functions,
        decoded.tool_choice,
        decoded.function_call,
        decoded.response_format,
    )
    return ChatRequest(
        body=body,
        raws=raws,
        model=decoded.model if isinstance(decoded.model, str) else "",
        stream=decoded.stream is True,
        max_tokens=wanted if type(wanted) is int else None,
        max_tokens_key=key,
        fixed=tuple(b"" if raw == b"null" else raw for raw in map(bytes, fixed)),
    )


def _split(body: bytes) -> _Body:
    """The body's members, its messages undecoded. Raises UndecodableError."""
    if len(body) > MAX_PARTS and has_more_parts(body, MAX_PARTS):
        message = "more parts than a chat has"
        raise UndecodableError(message)
    try:
        return _decode_body(body)
    except DECODE_ERRORS as error:
        raise UndecodableError(type(error).__name__) from error


@dataclass(frozen=True, slots=True)
class _Fixed:
    """What stands outside the messages: response format and frame, tools, and whether functions are among them."""

    format_tokens: int
    tools_tokens: int
    has_functions: bool


def _message_size(key: tuple[int, bytes], message: Message) -> int:
    """What a cached message holds: its bytes, its texts, its objects."""
    raw = key[1]
    texts = sum(map(getsizeof, message.texts)) + sum(getsizeof(call.arguments) for call in message.tool_calls)
    objects = 4 + len(message.texts) + len(message.media) + 4 * len(message.tool_calls)
    media = sum(len(part.raw) for part in message.media)
    return len(raw) + media + texts + OBJECT_BYTES * objects


def _find_messages(body: bytes, raws: Sequence[bytes]) -> Array:
    """Where the messages stand in a body. Raises UndecodableError where their key is written with escapes."""
    array = find_array(body, b'"messages"', raws)
    if array is None:
        raise UndecodableError(_ESCAPED_KEY)
    return array


class ChatCache:
    """What codecs remember: messages, and tokens of what stands outside them, each by the codec's own number."""

    def __init__(self) -> None:
        self.messages: BytesLRU[tuple[int, bytes], Message] = BytesLRU(CACHE_BYTES, _message_size)
        self.fixed: BytesLRU[tuple[int, tuple[bytes, ...]], _Fixed] = BytesLRU(
            CACHE_BYTES // 8, lambda key, _: sum(map(len, key[1]))
        )


class ChatCodec:
    """Turns requests into conversations and back; remembers the messages that it has decoded. Thread-safe.

    `number` sets it apart from other codecs that share the `cache`.
    """

    def __init__(self, count: CountTokens, costs: Costs = GENERIC.costs, *, cache: ChatCache, number: int = 0) -> None:
        self._count = count
        self._costs = costs
        self._cache = cache
        self._number = number

    def uncounted_bytes(self, request: ChatRequest) -> int:
        """Bytes of JSON that decode() would have to decode and count; tools count for more, as they take longer."""
        messages, number = self._cache.messages, self._number
        unknown = sum(len(raw) for raw in request.raws if (number, raw) not in messages)
        is_known = (number, request.fixed) in self._cache.fixed
        return unknown + (0 if is_known else TOOLS_FACTOR * sum(map(len, request.fixed)))

    def decode(self, request: ChatRequest) -> Conversation:
        """The request's transcript, counted. Raises UndecodableError where a message is no object with a role."""
        try:
            found = self._cache.messages.get_many([(self._number, raw) for raw in request.raws])
            new: dict[bytes, Message] = {}
            messages = tuple(
                self._read(raw, new) if message is None else message
                for raw, message in zip(request.raws, found, strict=True)
            )
            fixed = self._count_fixed(request.fixed)
            shared = (
                count_shared_frame(messages[0], self._count, self._costs) if fixed.has_functions and messages else 0
            )
            return Conversation(messages, max(fixed.format_tokens + fixed.tools_tokens + shared, 0))
        except DECODE_ERRORS as error:
            raise UndecodableError(type(error).__name__) from error

    def count_format(self, request: ChatRequest) -> int:
        """Tokens of the request's frame and response format: of what stands outside its messages, all but the tools."""
        return self._count_fixed(request.fixed).format_tokens

    def encode(self, request: ChatRequest, original: Conversation, compacted: Conversation) -> bytes:
        """The body with the compacted transcript; the body itself where that is the original one.

        Raises UndecodableError where the messages stand under an escaped key.
        """
        if compacted is original:
            return request.body
        array = _find_messages(request.body, request.raws)
        pieces = _write_array(request.body, array, original.messages, compacted.messages)
        return b"".join((request.body[: array.start], *pieces, request.body[array.stop :]))

    def write_inline(
        self, request: ChatRequest, prefix: Sequence[Message], prompt: str
    ) -> dict[str, msgspec.Raw] | None:
        """The members of a body that asks `prompt` behind the forwarded messages `prefix`, with the same tools.

        None if the answer has a prescribed form, or if the body's members cannot be told apart.
        """
        kept = write_members(request.body)
        if kept is None:
            return None
        question = Message("user", (prompt,))
        kept["messages"] = msgspec.Raw(b"[" + b",".join(map(encode_message, (*prefix, question))) + b"]")
        return kept

    def _read(self, raw: bytes, new: dict[bytes, Message]) -> Message:
        """A message that was not known; one of those alike in `new`, as it will be once all are known."""
        message = new.get(raw)
        if message is None:
            message = new[raw] = decode_message(raw, self._count, self._costs)
            self._cache.messages[self._number, raw] = message
        return message

    def _count_fixed(self, raws: tuple[bytes, ...]) -> _Fixed:
        key = (self._number, raws)
        fixed = self._cache.fixed.get(key)
        if fixed is None:
            around = read_surroundings(raws)
            fixed = self._cache.fixed[key] = _Fixed(
                count_format(around, self._count, self._costs),
                count_tools(around, self._count, self._costs),
                has_functions=bool(around.functions),
            )
        return fixed


def _write_array(
    body: bytes, array: Array, original: Sequence[Message], compacted: Sequence[Message]
) -> Iterator[bytes]:
    """The pieces of the messages array; what stood between two neighbours of the original stays between them."""
    spans = array.elements
    places = _find_places(original, compacted)
    yield body[array.start : spans[0].start] if places and places[0] == 0 else b"["
    previous: int | None = None
    number = 0
    while number < len(compacted):
        place = places[number]
        if number:
            follows = place is not None and previous is not None and place == previous + 1
            yield body[spans[place - 1].stop : spans[place].start] if follows and place else b","
        if place is None or compacted[number].edited:
            yield encode_message(compacted[number])
            number += 1
        else:
            stop = _end_run(number, places, compacted)
            yield body[spans[place].start : spans[place + stop - number - 1].stop]
            place, number = place + stop - number - 1, stop
        previous = previous if place is None else place
    yield body[spans[-1].stop : array.stop] if places and places[-1] == len(spans) - 1 else b"]"


def _end_run(start: int, places: Sequence[int | None], compacted: Sequence[Message]) -> int:
    """Where the run of untouched neighbours that begins at `start` ends: they are copied in one piece."""
    first = places[start] or 0
    stop = start + 1
    while stop < len(places) and places[stop] == first + stop - start and not compacted[stop].edited:
        stop += 1
    return stop


def _find_places(original: Sequence[Message], compacted: Sequence[Message]) -> Sequence[int | None]:
    """Where each compacted message stood; None for one of ours. Messages that are alike are taken in order."""
    if len(original) == len(compacted) and all(map(_is_alike, original, compacted)):
        return range(len(original))
    alike = {id(message.raw): [index] for index, message in enumerate(original)}
    if len(alike) < len(original):
        alike = {key: [] for key in alike}
        for index, message in enumerate(original):
            alike[id(message.raw)].append(index)
    places: list[int | None] = []
    after = -1
    for message in compacted:
        found = alike.get(id(message.raw), ()) if message.raw is not None else ()
        rank = bisect_left(found, after + 1)
        place = found[rank] if rank < len(found) else None
        after = after if place is None else place
        places.append(place)
    return places


def _is_alike(left: Message, right: Message) -> bool:
    return left.raw is right.raw
