"""A test dialect unlike chat completions. It proves that a dialect needs only a codec, and no change elsewhere.

A transcript is a list of items. A user item holds blocks: a text, or the result of a call. Thoughts, texts and calls of
the model are separate items. Instructions are outside of the list, and no system message may be inside.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby

import msgspec
import orjson

from trimtab.proxy.wire.answering import PROMPT_TOO_LONG, Completion, ErrorText
from trimtab.proxy.wire.answers.sse import FirstEvent
from trimtab.proxy.wire.answers.sse import write_event as write_sse_event
from trimtab.proxy.wire.answers.tap import Piece, Tap
from trimtab.proxy.wire.answers.usage import Usage
from trimtab.proxy.wire.codec import Codec, Counting, Request, UndecodableError
from trimtab.proxy.wire.json.decode import DECODE_ERRORS
from trimtab.proxy.wire.json.spans import find_array
from trimtab.proxy.wire.overflow.classify import Overflow, read_overflow
from trimtab.proxy.wire.parameters import Question
from trimtab.proxy.wire.transcript.beginnings import Begun
from trimtab.proxy.wire.transcript.decoding import FixedTokens
from trimtab.proxy.wire.transcript.elements import Placed, Source, write_elements
from trimtab.rules.conversation import Conversation, Message, Role, Shape, ToolCall
from trimtab.rules.prefix import digest_message
from trimtab.rules.tokens.messages import count_message

USER_SIDE = {Role.USER, Role.TOOL}


class Item(msgspec.Struct):
    """The `blocks` of a user item, or one thought, text or call of the model."""

    blocks: list[msgspec.Raw] | None = None
    thought: str = ""
    said: str = ""
    call: str = ""
    tool: str = ""
    input: str = ""


class Block(msgspec.Struct, omit_defaults=True):
    """A user's text, or the result of a call."""

    text: str
    result: str | None = None


class Body(msgspec.Struct):
    """A request."""

    items: list[msgspec.Raw]
    model: str = ""
    stream: bool = False
    limit: int | None = None
    instructions: str = ""


class Answer(msgspec.Struct):
    """A response, or an event of one."""

    said: str = ""
    spent: tuple[int, int] | None = None
    fault: str = ""


def _find_units(raws: Sequence[bytes], start: int) -> Iterator[tuple[int, int]]:
    """Items that belong together: each user item alone, and all items of one model turn."""
    for is_user, group in groupby(range(start, len(raws)), key=lambda at: b'"blocks"' in raws[at]):
        members = list(group)
        yield from ((at, at + 1) for at in members) if is_user else ((members[0], members[-1] + 1),)


def _decode_unit(counting: Counting, unit: bytes) -> tuple[Message, ...]:
    items = msgspec.json.decode(b"[" + unit + b"]", type=list[Item])
    if items[0].blocks == []:
        raise UndecodableError
    if items[0].blocks is not None:
        messages = [_read_block(bytes(raw)) for raw in items[0].blocks]
    else:
        texts = tuple(item.thought or item.said for item in items if not item.call)
        calls = tuple(ToolCall(item.call, item.tool, item.input) for item in items if item.call)
        messages = [Message(Role.ASSISTANT, texts, calls, raw=unit)]
    return tuple(
        replace(one, tokens=count_message(one, counting.count), digest=digest_message(one)) for one in messages
    )


def _read_block(raw: bytes) -> Message:
    block = msgspec.json.decode(raw, type=Block)
    return Message(Role.USER if block.result is None else Role.TOOL, (block.text,), answers=block.result, raw=raw)


def _write_items(placed: Sequence[Placed]) -> bytes:
    """The items for these messages. A block that no rule edited keeps its bytes."""
    items: list[bytes] = []
    for is_user, group in groupby((message for message, _ in placed), key=lambda message: message.role in USER_SIDE):
        if is_user:
            items.append(b'{"blocks":[' + b",".join(block for one in group for block in _write_blocks(one)) + b"]}")
        else:
            items += [one.raw or orjson.dumps({"said": one.text}) for one in group]
    return b",".join(items)


def _write_blocks(message: Message) -> list[bytes]:
    if not message.edited:
        return [message.raw]
    return [msgspec.json.encode(Block(text, message.answers)) for text in message.texts]


def _read_answer(data: bytes, usage: Usage | None) -> tuple[Usage | None, Sequence[Piece]]:
    with suppress(*DECODE_ERRORS):
        answer = msgspec.json.decode(data, type=Answer)
        return Usage(*answer.spent) if answer.spent else usage, [Piece("said", answer.said)] if answer.said else ()
    return usage, ()


class TurnsCodec(Codec):
    """The dialect of turns."""

    name = "turns"
    path = "/v1/turns"
    ending = "/turns"
    transcript = "turns"
    limits = refusable_limits = ()
    find_units = staticmethod(_find_units)
    decode_unit = staticmethod(_decode_unit)

    def read(self, body: bytes, begun: Begun | None = None, *, max_chars: int | None = None) -> Request:
        try:
            said = msgspec.json.decode(body, type=Body)
        except DECODE_ERRORS as error:
            raise UndecodableError from error
        raws = tuple(map(bytes, said.items))
        return Request(self, body, raws, said.model, said.stream, said.limit, (said.instructions.encode(),))

    def peek_model(self, beginning: bytes) -> str:
        return ""

    def look_at(self, request: Request, messages: tuple[Message, ...]) -> tuple[tuple[Message, ...], Shape, bool]:
        return messages, Shape(has_system_messages=False), False

    def count_fixed(self, counting: Counting, raws: tuple[bytes, ...]) -> FixedTokens:
        return FixedTokens(counting.count(raws[0].decode()), 0)

    def knows_members(self, members: Mapping[str, msgspec.Raw]) -> bool:
        """Always true: a request has no members that are not counted."""
        return True

    def encode(self, request: Request, before: Conversation, after: Conversation) -> tuple[bytes, ...]:
        array = find_array(request.body, b'"items"', request.raws)
        if after is before or array is None:
            return (request.body,)
        shares = lambda left, right: {left.role, right.role} <= USER_SIDE  # noqa: E731 - a name makes the rule readable
        written, ending = write_elements(Source(request.body, array, before), after, _write_items, shares)
        return (*written.pieces, ending)

    def tap(self, *, is_stream: bool, asks_usage: bool = False) -> Tap:
        return Tap(_read_answer, is_stream=is_stream, asks_usage=asks_usage)

    def hold_first_event(self, *, keeps_all: bool) -> FirstEvent:
        return FirstEvent(lambda line: b'"said"' in line, keeps_all=keeps_all)

    def read_refusal(self, status: int, body: bytes) -> Overflow | None:
        with suppress(*DECODE_ERRORS):
            fault = msgspec.json.decode(body, type=Answer).fault
            return read_overflow(status, orjson.dumps({"error": {"message": fault}})) if fault else None
        return None

    def write_error(self, error: ErrorText, *, as_event: bool) -> bytes:
        body = orjson.dumps({"fault": error.message, "is_too_long": error.code == PROMPT_TOO_LONG})
        return self.write_event(400, body) if as_event else body

    def write_event(self, status: int, body: bytes) -> bytes:
        return b"event: status %d\n" % status + write_sse_event(body)

    def ask(self, question: Question, prompt: str) -> bytes:
        members = {"model": question.model, "limit": question.max_tokens, "temperature": question.temperature}
        return orjson.dumps({**members, "items": [{"blocks": [{"text": prompt}]}]})

    def ask_behind(
        self, request: Request, prefix: Conversation, question: Question, prompt: str, *, is_apart: bool = False
    ) -> bytes | None:
        asked = (Message(Role.USER, (prompt,), edited=True), None)
        items = _write_items([*zip(prefix.messages, prefix.origins, strict=True), asked])
        own = {"model": msgspec.Raw(msgspec.json.encode(question.model))}
        members = own if is_apart else msgspec.json.decode(request.body, type=dict[str, msgspec.Raw])
        limit = msgspec.Raw(b"%d" % question.max_tokens)
        return msgspec.json.encode({**members, "limit": limit, "items": msgspec.Raw(b"[" + items + b"]")})

    def read_completion(self, answer: bytes) -> Completion:
        usage, pieces = _read_answer(answer, None)
        return Completion("".join(piece.text for piece in pieces), usage or Usage())


TURNS = TurnsCodec()
