"""What the dialects share: how a request is decoded, counted and written, and what may be refused in a question.

A dialect sets the tables and writes the functions that differ.

Law: no name of a dialect's field stands here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Any

import msgspec

from trimtab.proxy.wire.codec import Adapted, Counting, Question, Request, UndecodableError, Unsent, leave_body
from trimtab.proxy.wire.content.cache_help import Client, Helped, help_openly
from trimtab.proxy.wire.content.parts import replace_texts
from trimtab.proxy.wire.content.tool_lists import ToolList, drop_tools, find_used
from trimtab.proxy.wire.json.decode import DECODE_ERRORS
from trimtab.proxy.wire.json.spans import Array, Span, find_member
from trimtab.proxy.wire.parameters import find_refused, list_forms
from trimtab.proxy.wire.routing import peek_model
from trimtab.proxy.wire.transcript.beginnings import find_transcript
from trimtab.proxy.wire.transcript.body import Edit, Form, find_elements, read_outside
from trimtab.proxy.wire.transcript.decoding import FindUnits, FixedTokens, KnownView, decode_units, join_units, recall
from trimtab.proxy.wire.transcript.elements import Shares, Source, WriteElement, write_elements
from trimtab.rules.conversation import Conversation, Decision, Message, Origin, Shape
from trimtab.rules.tokens.messages import Surroundings, count_format, count_shared_frame, count_tools

TOOLS_FACTOR = 16
"""Tools count this many times their bytes as work. Fitted on hostile tools: rendering them takes as long as counting a
text of this many times their length."""
OUTSIDE = Origin(0, 0)
"""The position of a message that is in no element: before all of them."""
SHAPE = Shape()


class Dialect:
    """The part of the protocol `Codec` (codec.py, which documents each method) that is the same in all dialects.

    form: how the transcript is written.
    find_units: which elements are decoded together; None if each stands alone.
    counted_fixed: which of `Request.fixed` cost tokens and are read by `read_surroundings`.
    known_members: the members of a body that are counted, or that no server puts into the prompt.
    limits: the names of the limit of a question, the usual one first; refusable_limits: those that may be left out.
    refusable: further members of a question that an upstream may refuse.
    """

    name: str
    transcript: str
    ending: str
    path: str
    is_count = False

    form: Form[Any]
    find_units: FindUnits | None = None
    decode_unit: Callable[[Counting, bytes], tuple[Message, ...]]
    read_surroundings: Callable[[Sequence[bytes]], Surroundings]
    counted_fixed = slice(None)
    known_members: frozenset[str]
    limits: tuple[str, ...]
    refusable_limits: tuple[str, ...]
    refusable: tuple[str, ...] = ()

    peek_model = staticmethod(peek_model)
    adapt: Callable[[Request, Conversation, Conversation, tuple[bytes, ...]], Adapted] = staticmethod(leave_body)

    def clean(self, request: Request, _: Unsent, /) -> tuple[bytes, tuple[Decision, ...]]:
        """The body itself."""
        return request.body, ()

    def help_cache(self, _: Request, __: Conversation, pieces: tuple[bytes, ...], /) -> Helped:
        """The body itself."""
        return Helped(pieces)

    def list_outside(self, _: Request, /) -> Sequence[bytes]:
        """The JSON of the messages in no element, from which `decode_outside` makes them."""
        return ()

    def decode_outside(self, counting: Counting, raw: bytes, /) -> tuple[Message, ...]:
        """The messages of what `list_outside` has listed."""
        return self.decode_unit(counting, raw)

    def look_at(self, _: Request, messages: tuple[Message, ...], /) -> tuple[tuple[Message, ...], Shape, bool]:
        """The messages as the server counts them, what it demands of them, and whether it holds earlier ones.

        Raises one of DECODE_ERRORS.
        """
        return messages, SHAPE, False

    def decode(self, request: Request, counting: Counting) -> Conversation:
        """Also notes in the request's beginning what was decoded, for the request that continues it."""
        known = counting.known.view(self.name, counting.number)
        try:
            decode = partial(self.decode_unit, counting)
            messages, origins = decode_units(request.raws, request.beginning, known, decode, self.find_units)
            outside = self.list_outside(request)
            found = known.decode(outside, partial(self.decode_outside, counting)) if outside else []
            fixed = self._count_fixed(request, counting, known)
            messages, shape, continues = self.look_at(request, messages)
        except DECODE_ERRORS as error:
            raise UndecodableError(type(error).__name__) from error
        if found:
            before = [message for each in found for message in each]
            messages, origins = (*before, *messages), (OUTSIDE,) * len(before) + origins
        tokens = fixed.format_tokens + fixed.tools_tokens
        if fixed.has_functions and messages:
            tokens += count_shared_frame(messages[0], counting.count, counting.costs)
        return Conversation(messages, max(tokens, 0), origins, shape, continues)

    def uncounted_bytes(self, request: Request, counting: Counting) -> int:
        """Tools count TOOLS_FACTOR times, because they take longer."""
        known, raws = counting.known.view(self.name, counting.number), request.raws
        start = recall(raws, request.beginning, known, self.find_units).elements
        new = raws[start:] if self.find_units is None else join_units(raws, self.find_units(raws, start))
        counted = request.fixed[self.counted_fixed]
        return known.count_unknown_bytes([*self.list_outside(request), *new], counted, TOOLS_FACTOR)

    def count_format(self, request: Request, counting: Counting) -> int:
        """Tokens of the frame and of the response format."""
        return self._count_fixed(request, counting, counting.known.view(self.name, counting.number)).format_tokens

    def _count_fixed(self, request: Request, counting: Counting, known: KnownView) -> FixedTokens:
        return known.count_fixed(request.fixed[self.counted_fixed], partial(self.count_fixed, counting))

    def count_fixed(self, counting: Counting, raws: tuple[bytes, ...]) -> FixedTokens:
        """The tokens of those members outside the transcript that `counted_fixed` names."""
        around, count, costs = self.read_surroundings(raws), counting.count, counting.costs
        return FixedTokens(
            count_format(around, count, costs), count_tools(around, count, costs), has_functions=bool(around.functions)
        )

    def counts_all(self, request: Request) -> bool:
        """A member that cannot be read is not counted."""
        try:
            return self.knows_members(read_outside(request.body, request.beginning))
        except DECODE_ERRORS:
            return False

    def knows_members(self, members: Mapping[str, msgspec.Raw]) -> bool:
        """Whether each of these members is counted, or is known to cost no tokens. Raises one of DECODE_ERRORS."""
        return members.keys() <= self.known_members

    def list_tools(self, _: Request, /) -> tuple[ToolList, ...]:
        """The lists of declarations in a request."""
        return ()

    def list_called(self, _: Request, transcript: Conversation, /) -> frozenset[str]:
        """The tools that a transcript calls or has loaded."""
        return find_used(transcript.messages)

    def drop_tools(
        self, request: Request, transcript: Conversation, globs: tuple[str, ...], counting: Counting
    ) -> tuple[bytes, int]:
        """See `content.tool_lists.drop_tools`."""
        lists, used = self.list_tools(request), self.list_called(request, transcript)
        return drop_tools(request.body, find_transcript(request.beginning), lists, used, globs, counting.tool_lists)

    def list_parameters(self, question: Question) -> tuple[str, ...]:
        """The forms that an upstream may refuse in a question, the most doubtful first."""
        return list_forms(question, self.refusable_limits, self.refusable)

    def find_refused(self, question: Question, answer: bytes) -> str | None:
        """The form of a parameter that an error names; None if it names none."""
        return find_refused(question, self.list_parameters(question), answer, self.limits)


def find_array(form: Form[Any], request: Request) -> Array:
    """The positions of a request's elements. Raises UndecodableError if their key is written with escapes."""
    beginning = request.beginning
    return find_elements(form, request.body, request.raws) if beginning is None else beginning.array


def write_transcript(
    request: Request,
    array: Array,
    before: Conversation,
    after: Conversation,
    write: WriteElement,
    shares: Shares | None = None,
) -> tuple[bytes, ...]:
    """The body with the elements of `after`, in pieces; what was written is kept for the body that continues it."""
    beginning = request.beginning
    earlier = None if beginning is None else beginning.written
    written, ending = write_elements(Source(request.body, array, before), after, write, shares, written=earlier)
    if beginning is not None:
        beginning.written = written
    return (*written.pieces, ending)


def take_off_outside(conversation: Conversation) -> Conversation:
    """The conversation without the messages that are in no element."""
    number = sum(1 for _ in takewhile(lambda origin: origin == OUTSIDE, conversation.origins))
    if not number:
        return conversation
    return replace(conversation, messages=conversation.messages[number:], origins=conversation.origins[number:])


def write_outside(after: Conversation, read_value: Callable[[bytes], bytes]) -> bytes | None:
    """The value of the message in no element with shortened texts; None if no rule has changed it.

    read_value: finds the value in the JSON of the message.
    """
    if after.origins[:1] != (OUTSIDE,) or not after.messages[0].edited:
        return None
    message = after.messages[0]
    return replace_texts(read_value(message.raw), iter(message.texts))


def find_edit(body: bytes, key: bytes, array: Span, value: bytes) -> Edit:
    """A new value for a member beside the transcript. Raises UndecodableError if its place is not found."""
    place = find_member(body, key, array)
    if place is None:
        problem = "a key is written with escapes"
        raise UndecodableError(problem)
    return Edit(place, value)


MarkMessages = Callable[[Request, Conversation, Client], Mapping[int, Message]]


def help_with_markers(
    request: Request,
    after: Conversation,
    pieces: tuple[bytes, ...],
    mark_messages: MarkMessages,
    encode: Callable[[Message], bytes],
) -> Helped:
    """The body with `request.cache`, for a dialect of OpenAI's. Raises one of DECODE_ERRORS."""
    client = request.read_client()
    marked = mark_messages(request, after, client)
    asked = request.cache if "prompt_cache_key" not in client.outside else replace(request.cache, key="")
    return help_openly(asked, pieces, after.messages, marked, encode)
