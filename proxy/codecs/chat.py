"""POST /v1/chat/completions: bytes <-> Conversation.

Law: what no rule touched goes out as the bytes it came in. A message that a rule edited keeps its other keys as
bytes; only its content is written anew.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import orjson

from proxy.codecs.spans import Span, find_elements, find_member
from proxy.codecs.surrogates import replace_lone_surrogates
from proxy.lru import BytesLRU
from rules.conversation import Conversation, CountTokens, Message, ToolCall
from rules.prefix import digest_message
from rules.tokens import PRIMING_TOKENS, count_message

CACHE_BYTES = 64 * 1024 * 1024
"""Decoded messages kept; a message seen before is not decoded or counted again."""
MESSAGE_FACTOR = 3
"""What a cached message costs in memory, per byte of JSON: its bytes, its texts, its objects."""
EXTRA_TEXT_KEYS = ("reasoning_content", "reasoning", "refusal")
"""Texts outside `content` that upstreams read back from assistant messages."""
TEXT_PARTS = frozenset({"text", "input_text", "output_text"})


_ESCAPED_KEY = "the key 'messages' is not written plainly"


class UndecodableError(ValueError):
    """The body is no chat request: it is forwarded as it came, and the upstream judges."""


class _Body(msgspec.Struct):
    messages: msgspec.Raw
    model: Any = None
    stream: Any = None
    max_tokens: Any = None
    max_completion_tokens: Any = None
    tools: msgspec.Raw = msgspec.Raw()
    functions: msgspec.Raw = msgspec.Raw()
    response_format: msgspec.Raw = msgspec.Raw()


_decode_body = msgspec.json.Decoder(_Body).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_errors = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request split into its messages. `array` is the JSON of all of them, `raws` that of each, oldest first.

    `fixed` is the JSON of what stands outside the messages and costs tokens: tools, response format.
    """

    body: bytes
    array: bytes
    raws: tuple[bytes, ...]
    model: str
    stream: bool
    max_tokens: int | None
    max_tokens_key: str
    fixed: tuple[bytes, ...]


def read_request(body: bytes) -> ChatRequest:
    """Split a body into its messages without decoding them. Raises UndecodableError."""
    try:
        decoded, array, raws = _split(body)
    except UndecodableError:
        clean = replace_lone_surrogates(body)
        if clean == body:
            raise
        decoded, array, raws = _split(clean)
        array, raws = _take_back(body, clean, array, raws)
    key = "max_completion_tokens" if decoded.max_completion_tokens is not None else "max_tokens"
    wanted = getattr(decoded, key)
    fixed = (decoded.tools, decoded.functions, decoded.response_format)
    return ChatRequest(
        body=body,
        array=array,
        raws=raws,
        model=decoded.model if isinstance(decoded.model, str) else "",
        stream=decoded.stream is True,
        max_tokens=wanted if type(wanted) is int else None,
        max_tokens_key=key,
        fixed=tuple(raw for raw in map(bytes, fixed) if raw not in {b"", b"null"}),
    )


def _split(body: bytes) -> tuple[_Body, bytes, tuple[bytes, ...]]:
    """The body's members, its messages array, and each message. Raises UndecodableError."""
    try:
        decoded = _decode_body(body)
        array = bytes(decoded.messages)
        return decoded, array, tuple(map(bytes, _decode_list(array)))
    except _decode_errors as error:
        raise UndecodableError(type(error).__name__) from error


def _take_back(body: bytes, clean: bytes, array: bytes, raws: tuple[bytes, ...]) -> tuple[bytes, tuple[bytes, ...]]:
    """Array and messages as the client wrote them, found where they stand in the cleaned body."""
    place = find_member(clean, b'"messages"', array)
    if place is None:
        raise UndecodableError(_ESCAPED_KEY)
    written = body[place.start : place.stop]
    return written, tuple(written[span.start : span.stop] for span in find_elements(array, raws))


class ChatCodec:
    """Turns requests into conversations and back; remembers the messages that it has decoded. Thread-safe."""

    def __init__(self, count: CountTokens) -> None:
        self._count = count
        self._messages: BytesLRU[bytes, Message] = BytesLRU(CACHE_BYTES, lambda raw, _: len(raw) * MESSAGE_FACTOR)
        self._fixed: BytesLRU[bytes, int] = BytesLRU(CACHE_BYTES // 8, lambda raw, _: len(raw))

    def uncounted_bytes(self, request: ChatRequest) -> int:
        """Bytes of the request's JSON that decode() would have to decode and count."""
        messages, fixed = self._messages, self._fixed
        unknown = sum(len(raw) for raw in request.raws if raw not in messages)
        return unknown + sum(len(raw) for raw in request.fixed if raw not in fixed)

    def decode(self, request: ChatRequest) -> Conversation:
        """The request's transcript, counted. Raises UndecodableError where a message is no object with a role."""
        try:
            messages = tuple(map(self._message, request.raws))
            return Conversation(messages, PRIMING_TOKENS + sum(map(self._fixed_tokens, request.fixed)))
        except _decode_errors as error:
            raise UndecodableError(type(error).__name__) from error

    def encode(self, request: ChatRequest, original: Conversation, compacted: Conversation) -> bytes:
        """The body with the compacted transcript; the body itself where that is the original one.

        Raises UndecodableError where the messages stand under an escaped key.
        """
        if compacted is original:
            return request.body
        place = find_member(request.body, b'"messages"', request.array)
        if place is None:
            raise UndecodableError(_ESCAPED_KEY)
        array = b"".join(_write_array(request, original.messages, compacted.messages))
        return b"".join((request.body[: place.start], array, request.body[place.stop :]))

    def _message(self, raw: bytes) -> Message:
        message = self._messages.get(raw)
        if message is None:
            message = self._messages[raw] = decode_message(raw, self._count)
        return message

    def _fixed_tokens(self, raw: bytes) -> int:
        tokens = self._fixed.get(raw)
        if tokens is None:
            compact = msgspec.json.format(raw, indent=-1)
            tokens = self._fixed[raw] = self._count(compact.decode())
        return tokens


def decode_message(raw: bytes, count: CountTokens) -> Message:
    """One message of a chat request, counted. Raises UndecodableError, or an error of msgspec."""
    members = _read_members(raw)
    role = _decode_value(members.get("role"))
    if not isinstance(role, str):
        problem = "a message has no role"
        raise UndecodableError(problem)
    texts, media = _read_content(members.get("content"))
    name = _decode_value(members.get("name"))
    answers = _decode_value(members.get("tool_call_id"))
    message = Message(
        role=role,
        texts=texts,
        tool_calls=_read_calls(members),
        answers=answers if isinstance(answers, str) else None,
        name=name if isinstance(name, str) else None,
        media=media,
        raw=raw,
    )
    extra = [_decode_value(members[key]) for key in EXTRA_TEXT_KEYS if key in members]
    tokens = count_message(message, count, [text for text in extra if isinstance(text, str)])
    return replace(message, tokens=tokens, digest=digest_message(message, map(_canonical, media)))


def encode_message(message: Message) -> bytes:
    """The JSON of one message: its own bytes, or those with the content that a rule gave it."""
    if message.raw is None:
        made: dict[str, str] = {"role": message.role, "content": "\n\n".join(message.texts)}
        if message.answers is not None:
            made["tool_call_id"] = message.answers
        return orjson.dumps(made)
    if not message.edited:
        return message.raw
    members = _read_members(message.raw)
    members["content"] = msgspec.Raw(_write_content(message, members.get("content")))
    return msgspec.json.encode(members)


def _read_members(raw: bytes) -> dict[str, msgspec.Raw]:
    """The members of a message; a lone surrogate in it reads as U+FFFD."""
    try:
        return _decode_members(raw)
    except msgspec.DecodeError:
        return _decode_members(replace_lone_surrogates(raw))


def _decode_value(raw: msgspec.Raw | None) -> Any:
    return None if raw is None else msgspec.json.decode(raw)


def _read_content(content: msgspec.Raw | None) -> tuple[tuple[str, ...], tuple[bytes, ...]]:
    """Texts and other parts of a message's content, each in wire order."""
    if content is None:
        return (), ()
    encoded = bytes(content)
    if encoded[:1] == b"[":
        texts: list[str] = []
        media: list[bytes] = []
        for part in map(bytes, _decode_list(encoded)):
            text = _part_text(part)
            if text is None:
                media.append(part)
            else:
                texts.append(text)
        return tuple(texts), tuple(media)
    if encoded[:1] == b'"':
        return (msgspec.json.decode(encoded),), ()
    return (), () if encoded == b"null" else (encoded,)


def _part_text(part: bytes) -> str | None:
    """The text of a text part; None for any other part."""
    if part[:1] != b"{":
        return None
    members = _decode_members(part)
    text, kind = _decode_value(members.get("text")), _decode_value(members.get("type"))
    return text if isinstance(text, str) and isinstance(kind, str) and kind in TEXT_PARTS else None


def _read_calls(members: dict[str, msgspec.Raw]) -> tuple[ToolCall, ...]:
    """The message's tool calls; those of an unknown type keep their id, and all of their JSON as arguments."""
    if "tool_calls" not in members:
        return ()
    calls = _decode_value(members["tool_calls"])
    if not isinstance(calls, list):
        return ()
    return tuple(_read_call(call) for call in calls if isinstance(call, dict))


def _read_call(call: dict[str, Any]) -> ToolCall:
    function = call.get("function") or call.get("custom")
    if not isinstance(function, dict):
        return ToolCall(str(call.get("id") or ""), str(call.get("type") or ""), msgspec.json.encode(call).decode())
    arguments = function.get("arguments", function.get("input", ""))
    if not isinstance(arguments, str):
        arguments = msgspec.json.encode(arguments).decode()
    return ToolCall(str(call.get("id") or ""), str(function.get("name") or ""), arguments)


def _canonical(part: bytes) -> bytes:
    """A content part without what may change while it says the same: key order, white space, `cache_control`."""
    decoded = msgspec.json.decode(part)
    if isinstance(decoded, dict):
        decoded.pop("cache_control", None)
    return msgspec.json.encode(decoded, order="deterministic")


def _write_content(message: Message, content: msgspec.Raw | None) -> bytes:
    """The content of an edited message, in the form that the client chose: one string, or parts."""
    encoded = b"null" if content is None else bytes(content)
    if encoded[:1] != b"[" and not message.media:
        return orjson.dumps("\n\n".join(message.texts))
    parts = list(map(bytes, _decode_list(encoded))) if encoded[:1] == b"[" else []
    return b"[" + b",".join(_write_parts(message, parts)) + b"]"


def _write_parts(message: Message, parts: Sequence[bytes]) -> Iterator[bytes]:
    """The client's parts with the new texts in the places of the old; what is new comes last."""
    texts = iter(message.texts)
    media = iter(message.media)
    for part in parts:
        old = _part_text(part)
        new = next(media, None) if old is None else next(texts, None)
        if isinstance(new, bytes):
            yield new
        elif new is not None:
            yield part if new == old else _replace_text(part, new)
    for text in texts:
        yield orjson.dumps({"type": "text", "text": text})
    yield from media


def _replace_text(part: bytes, text: str) -> bytes:
    members = _decode_members(part)
    members["text"] = msgspec.Raw(orjson.dumps(text))
    return msgspec.json.encode(members)


def _write_array(request: ChatRequest, original: Sequence[Message], compacted: Sequence[Message]) -> Iterator[bytes]:
    """The pieces of the messages array; what stood between two neighbours of the original stays between them."""
    array = request.array
    spans = find_elements(array, request.raws)
    places: defaultdict[int, list[int]] = defaultdict(list)
    for index, message in enumerate(original):
        places[id(message.raw)].append(index)
    yield array[: spans[0].start] if compacted and compacted[0].raw is original[0].raw else b"["
    previous: int | None = None
    place: int | None = None
    for number, message in enumerate(compacted):
        found = places.get(id(message.raw), []) if message.raw is not None else []
        # The same message may stand in several places; this one is the first behind its neighbour.
        rank = bisect_left(found, 0 if previous is None else previous + 1)
        place = found[rank] if rank < len(found) else None
        if number:
            yield _between(array, spans, previous, place)
        yield encode_message(message)
        previous = place if place is not None else previous
    yield array[spans[-1].stop :] if previous == len(spans) - 1 and place == previous else b"]"


def _between(array: bytes, spans: Sequence[Span], left: int | None, right: int | None) -> bytes:
    if left is None or right != left + 1:
        return b","
    return array[spans[left].stop : spans[right].start]
