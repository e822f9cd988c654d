"""One wire dialect: what the rest of the proxy asks of it, all that dialects share, and the values that they exchange.

To add a dialect: a folder beside `chat/` with a subclass of `Codec`, and one line in `dialects.py`. The subclass sets
the tables and writes the functions that differ.

Law: nothing outside a dialect's folder knows the names of its fields, and none of them stands here. A codec has no
state of its own: it remembers only in the `Known` that it is given. Every method may run in a thread.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import msgspec
import orjson
from msgspec import structs

from trimtab.proxy.wire.answering import CACHE_KEY, Answers, ProviderNote, Question, Questions
from trimtab.proxy.wire.answers.recall import Sifter
from trimtab.proxy.wire.cache_help import (
    NO_HELP,
    Addition,
    CacheHelp,
    Client,
    Helped,
    add_breakpoint,
    add_controls,
    has_markers,
    help_openly,
)
from trimtab.proxy.wire.json import DECODE_ERRORS, Array, Span, decode_items, decode_member, splice
from trimtab.proxy.wire.routing import peek_model
from trimtab.proxy.wire.tools import ListMemo, ToolList, drop_tools, find_used, forces_call, read_fixed
from trimtab.proxy.wire.transcript.body import (
    Adapted,
    Form,
    KeptBody,
    PrefixMatch,
    Unsent,
    find_edit,
    find_elements,
    find_flaw,
    find_transcript,
    look_through,
    read_outside,
    replace_outside,
    split_body,
)
from trimtab.proxy.wire.transcript.body import UndecodableError as UndecodableError  # noqa: PLC0414 - of the interface
from trimtab.proxy.wire.transcript.decoding import (
    FindUnits,
    FixedTokens,
    Known,
    KnownView,
    decode_units,
    join_units,
    recall,
)
from trimtab.proxy.wire.transcript.elements import (
    OUTSIDE,
    Shares,
    Source,
    WriteElement,
    group_elements,
    take_off_outside,
    write_elements,
)
from trimtab.rules.conversation import Conversation, CountTokens, Decision, Message, Role, Shape
from trimtab.rules.tokens.families import GENERIC, Costs
from trimtab.rules.tokens.messages import ToolsAndFormat, count_format, count_shared_frame, count_tools
from trimtab.rules.tokens.scripts import NO_CHARS, count_bytes


@dataclass(frozen=True, slots=True)
class Request:
    """A request that is split into the elements of its transcript, which are not decoded yet.

    raws: JSON of each element, oldest first, in the client's own bytes.
    fixed: JSON of the members outside the transcript that cost prompt tokens. Only the dialect knows their order.
    is_reasoning: the request says that the model's reasoning counts against `max_tokens`.
    asks_usage: the request wants its stream to end with the usage.
    cache: what its provider takes for its prompt cache.
    takes_binding: its upstream has not refused that it is told of a changed transcript.
    breaks_past: answers of the model were given behind other messages than are sent now.
    keeps_messages: their number and order stay: nothing is paired, and results before a cut become placeholders.
    cleaned: what was taken out of the client's body, in our tokens.
    kept_body: kept for the request that continues this one; None if the body is too short for that to pay.
    """

    codec: "Codec"
    body: bytes
    raws: tuple[bytes, ...]
    model: str
    stream: bool
    max_tokens: int | None
    fixed: tuple[bytes, ...] = ()
    is_reasoning: bool = False
    asks_usage: bool = False
    cache: CacheHelp = NO_HELP
    takes_binding: bool = True
    breaks_past: bool = False
    keeps_messages: bool = False
    cleaned: tuple[Decision, ...] = ()
    kept_body: KeptBody | None = field(default=None, compare=False)

    def read_client(self) -> Client:
        """What a client of OpenAI's APIs says about the prompt cache. Raises one of DECODE_ERRORS."""
        marked = look_through(self.raws, self.kept_body, has_markers) if self.cache.adds - {"cache_key"} else ()
        return Client(read_outside(self.body, self.kept_body), {at: self.raws[at] for at, _ in marked})

    def find_array(self) -> Array:
        """The positions of the elements. Raises UndecodableError if their key is written with escapes."""
        known = self.kept_body
        return find_elements(self.codec.form, self.body, self.raws) if known is None else known.array

    def reduce_to(self, left: "Request", decisions: tuple[Decision, ...]) -> "Request":
        """What is `left` of this request, with everything that is known of it beside its body."""
        known = replace(left, model=self.model, cache=self.cache, takes_binding=self.takes_binding)
        return replace(known, keeps_messages=self.keeps_messages, cleaned=(*self.cleaned, *decisions))


class Counting(msgspec.Struct, frozen=True):
    """How a codec counts tokens, and what it has counted so before. number: identifies this way of counting."""

    count: CountTokens
    known: Known
    costs: Costs = GENERIC.costs
    number: int = 0
    tool_lists: ListMemo = msgspec.field(default_factory=dict[Any, Any])


def leave_out_thinking(request: Request, pieces: tuple[bytes, ...], drop: Callable[[bytes], bytes]) -> Adapted:
    """A written body after `drop` from each element. Raises UndecodableError, or one of DECODE_ERRORS."""
    body = b"".join(pieces)
    raws = request.codec.read(body).raws
    spans = find_elements(request.codec.form, body, raws).elements
    left = splice(body, [(span, drop(raw)) for span, raw in zip(spans, raws, strict=True)])
    decision = Decision("thinking", "thinking that no longer fits is left out", 0, 0, 0, 0)
    return Adapted((left,), decisions=(decision,))


ELEMENT_BYTES = 256  # To decode and plan an element takes as long as to count this text. Measured: 0.06 to 0.09 ms.
TOOLS_FACTOR = 16  # Tools count this many times their bytes as work. Fitted on hostile tools, which render so slowly.
SHAPE = Shape()


class Codec(Answers, Questions):
    """What all dialects share. A dialect sets these tables, and writes what it has otherwise than here.

    ending: the last segments of the paths whose POST requests the dialect claims, as `/chat/completions`.
    path: for summary requests that do not follow a client's request.
    is_count: the upstream only counts the tokens of a request and generates nothing.
    transcript: the member of a body with the elements of the transcript. form: how these are written.
    outside: the member beside it that is a message, too.
    fixed: lists the members that `Request.fixed` holds; one with a value of `empty` counts as missing.
    counted_fixed: which of them cost tokens and are read by `read_tools_and_format`.
    known_members: the members of a body that are counted, or that no server puts into the prompt.
    find_units: which elements are decoded together; None if each stands alone.
    markers: the cache markers that providers of the dialect take, where `help_cache` puts them.
    taken_over, of_session: the members of a client's request that a question behind it has, too: if it continues the
        conversation, and in any case. choices: those of them that may force the model to call a tool.
    """

    name: str
    ending: str
    path: str
    is_count = False

    transcript: str
    form: Form
    outside = ""
    fixed: Callable[[Any], tuple[msgspec.Raw, ...]]
    counted_fixed = slice(None)
    empty: tuple[bytes, ...] = (b"null",)
    known_members: frozenset[str]
    find_units: FindUnits | None = None
    shares: Shares | None = None
    markers: frozenset[Addition] = frozenset()
    peek_model = staticmethod(peek_model)  # The model that the beginning of a body names; else empty

    describe: Callable[[Any], tuple[Any, bool, bool]]
    """What the decoded members of a body ask for: `max_tokens` as it was decoded, `is_reasoning`, `asks_usage`."""
    decode_unit: Callable[[Counting, bytes], tuple[Message, ...]]  # The messages of a unit. Raises DECODE_ERRORS.
    read_tools_and_format: Callable[..., ToolsAndFormat]
    """What the decoded members of `counted_fixed` cost; None for a missing one."""
    encode_message: Callable[[Message], bytes]
    """The JSON of one message: its own bytes, with new content if a rule edited it."""

    def read(self, body: bytes, match: PrefixMatch | None = None, *, max_chars: int | None = None) -> Request:
        """Split a body into its elements without decoding them. Raises UndecodableError.

        The part that the body has in common with `match` is not read again; the result is the same. Invalid JSON is
        repaired if possible. That is slow: raises LargeWorkError if a body of more than `max_chars` needs it.
        """
        split = split_body(self.form, body, match, max_chars=max_chars)
        members, (max_tokens, is_reasoning, asks_usage) = split.members, self.describe(split.members)
        return Request(
            codec=self,
            body=body,
            raws=split.raws or self.list_text(members),
            model=members.model if isinstance(members.model, str) else "",
            stream=members.stream is True,
            max_tokens=max_tokens if type(max_tokens) is int else None,
            fixed=tuple([b"" if raw in self.empty else raw for raw in map(bytes, self.fixed(members))]),
            is_reasoning=is_reasoning,
            asks_usage=asks_usage,
            kept_body=split.kept_body,
        )

    def list_text(self, _: Any, /) -> tuple[bytes, ...]:
        return ()

    def clean(self, request: Request, _: Unsent, /) -> tuple[bytes, tuple[Decision, ...]]:
        """The body without what must not be sent, itself if there is none; and a decision for each kind.

        All other bytes stay.
        """
        return request.body, ()

    def list_outside(self, _: Request, /) -> Sequence[bytes]:
        """The JSON of the messages in no element, from which `decode_outside` makes them."""
        return ()

    def decode_outside(self, counting: Counting, raw: bytes, /) -> tuple[Message, ...]:
        return self.decode_unit(counting, raw)

    def write_outside(self, _: Conversation, /) -> bytes | None:
        """The value of the message in no element with shortened texts; None if no rule has changed it."""
        return None

    def look_at(self, _: Request, messages: tuple[Message, ...], /) -> tuple[tuple[Message, ...], Shape, bool]:
        """The messages as the server counts them, its demands, whether it holds earlier ones. Raises DECODE_ERRORS."""
        return messages, SHAPE, False

    def decode(self, request: Request, counting: Counting) -> Conversation:
        """The request's transcript with its token counts and the origin of each message. Raises UndecodableError.

        Every element must be the origin of a message; any other element would be lost when the transcript is written.
        Notes in the request's kept body what was decoded, for the request that continues it.
        """
        known = counting.known.view(self.name, counting.number)
        try:
            decode = partial(self.decode_unit, counting)
            decoded = decode_units(request.raws, request.kept_body, known, decode, self.find_units)
            outside = self.list_outside(request)
            found = known.decode(outside, partial(self.decode_outside, counting)) if outside else []
            fixed = self._count_fixed(request, counting, known)
            messages, shape, continues = self.look_at(request, decoded.messages)
        except (UndecodableError, *DECODE_ERRORS) as error:
            quick = partial(self.decode_unit, structs.replace(counting, count=len))
            raise UndecodableError(find_flaw(self.transcript, request.raws, quick, error)) from error
        origins = decoded.origins
        if found:
            before = [message for each in found for message in each]
            messages, origins = (*before, *messages), (OUTSIDE,) * len(before) + origins
        unspoken = counting.costs.unspoken_tokens if messages and messages[0].role is not Role.SYSTEM else 0
        tokens = fixed.format_tokens + fixed.tools_tokens + unspoken
        if fixed.has_functions and messages:
            frame = partial(count_shared_frame, count=counting.count, costs=counting.costs)
            tokens += known.count_first(messages[0], frame)
        return Conversation(messages, max(tokens, 0), origins, shape, continues, fixed.chars)

    def uncounted_bytes(self, request: Request, counting: Counting) -> int:
        """How many bytes `decode` would have to decode and count for the first time, roughly, by the work for them."""
        known, raws = counting.known.view(self.name, counting.number), request.raws
        start = recall(raws, request.kept_body, known, self.find_units).elements
        new = raws[start:] if self.find_units is None else join_units(raws, self.find_units(raws, start))
        counted = request.fixed[self.counted_fixed]
        return known.count_unknown_bytes(
            [*self.list_outside(request), *new], counted, fixed_factor=TOOLS_FACTOR, element_bytes=ELEMENT_BYTES
        )

    def count_outside(self, request: Request, counting: Counting) -> FixedTokens:
        return self._count_fixed(request, counting, counting.known.view(self.name, counting.number))

    def _count_fixed(self, request: Request, counting: Counting, known: KnownView) -> FixedTokens:
        return known.count_fixed(request.fixed[self.counted_fixed], partial(self.count_fixed, counting))

    def count_fixed(self, counting: Counting, raws: tuple[bytes, ...]) -> FixedTokens:
        around, count, costs = read_fixed(raws, self.read_tools_and_format), counting.count, counting.costs
        format_tokens, tools_tokens = count_format(around, count, costs), count_tools(around, count, costs)
        chars = NO_CHARS if costs.drops_tools else count_bytes(b"".join(raws))
        return FixedTokens(format_tokens, tools_tokens, has_functions=bool(around.functions), chars=chars)

    def counts_all(self, request: Request) -> bool:
        """Whether each member outside the transcript is counted or costs nothing. One that cannot be read is not."""
        try:
            return self.knows_members(read_outside(request.body, request.kept_body))
        except DECODE_ERRORS:
            return False

    def knows_members(self, members: Mapping[str, msgspec.Raw]) -> bool:
        """Whether each of these members is counted, or is known to cost no tokens. Raises one of DECODE_ERRORS."""
        return members.keys() <= self.known_members

    def list_tools(self, _: Request, /) -> tuple[ToolList, ...]:
        return ()

    def list_called(self, _: Request, transcript: Conversation, /) -> frozenset[str]:
        return find_used(transcript.messages)

    recall_tool = b""  # The declaration of trimtab's own tool; empty if the dialect has none
    one_answer: Mapping[str, frozenset[bytes]] = MappingProxyType({})
    """Members by which a request gets several answers, or none here; and their values with which it gets one."""
    sifter: Callable[[], Sifter]  # Makes what takes calls of that tool out of the answers of one exchange

    def drop_tools(
        self, request: Request, transcript: Conversation, globs: tuple[str, ...], counting: Counting
    ) -> tuple[bytes, int]:
        """The body without tools that match `globs`, and their number; all other bytes stay. `transcript`: decoded."""
        lists, used = self.list_tools(request), self.list_called(request, transcript)
        return drop_tools(request.body, find_transcript(request.kept_body), lists, used, globs, counting.tool_lists)

    def encode(self, request: Request, before: Conversation, after: Conversation) -> tuple[bytes, ...]:
        """The body with the transcript `after`, in pieces; itself if that is `before`, the result of `decode`.

        What no rule touched keeps its bytes. Raises UndecodableError if the elements cannot be found in the body.
        """
        if after is before:
            return (request.body,)
        if not self.outside:
            return self.encode_transcript(request, before, after)[0]
        pieces, place = self.encode_transcript(request, take_off_outside(before), take_off_outside(after))
        value = self.write_outside(after)
        if value is None:
            return pieces
        edit = find_edit(request.body, b'"%b"' % self.outside.encode(), place, value)
        return replace_outside(request.body, place.start, pieces, edit)

    def encode_transcript(
        self, request: Request, before: Conversation, after: Conversation
    ) -> tuple[tuple[bytes, ...], Span]:
        """The body with the elements of `after`, in pieces, and where they were. Raises UndecodableError."""
        kept_body, array = request.kept_body, request.find_array()
        written, ending = write_elements(
            Source(request.body, array, before),
            after,
            self.make_writer(request, after.messages),
            self.shares,
            written=None if kept_body is None else kept_body.written,
        )
        if kept_body is not None:
            kept_body.written = written
        return (*written.pieces, ending), Span(array.start, array.stop)

    def make_writer(self, _: Request, __: Sequence[Message], /) -> WriteElement:
        return lambda placed: self.encode_message(placed[0][0])

    def adapt(self, _: Request, __: Conversation, ___: Conversation, pieces: tuple[bytes, ...], /) -> Adapted:
        """What `encode` wrote, as its provider takes it after a change. Raises UndecodableError, DECODE_ERRORS."""
        return Adapted(pieces)

    def help_cache(self, request: Request, after: Conversation, pieces: tuple[bytes, ...]) -> Helped:
        """The body with `request.cache`; what the client sets itself stays. Raises one of DECODE_ERRORS."""
        if not self.markers:
            return Helped(pieces)
        client = request.read_client()
        marked = self._mark_messages(request, after, client)
        asked = request.cache if CACHE_KEY not in client.outside else structs.replace(request.cache, key="")
        return help_openly(asked, pieces, after.messages, marked, self.encode_message)

    def _mark_messages(
        self, request: Request, after: Conversation, client: Client, *, at_end: bool = False
    ) -> dict[int, Message]:
        """The messages that get a cache marker, by index. `at_end`: the last one gets a breakpoint in any case."""
        adds = request.cache.adds & self.markers
        if "cache_control" in adds:
            return add_controls(after.messages, client)
        return add_breakpoint(after.messages, after.origins, client, at_end=at_end) if adds else {}

    taken_over: frozenset[str]
    of_session: frozenset[str]
    prescribes_form: Callable[[dict[str, msgspec.Raw]], bool]
    """Whether a request prescribes an answer that a summary would not have, or continues what the upstream holds."""
    choices: frozenset[str]
    read_thinking: Callable[[dict[str, msgspec.Raw]], int | None]
    """The tokens that a request allows for thinking, which the limit must include: 0 if it gives no number.

    None if the request does not turn thinking on itself. With thinking on, no temperature is accepted.
    """
    provider_note: ProviderNote | None = None

    def ask(self, question: Question, prompt: str) -> bytes:
        asked = orjson.Fragment(self.encode_message(Message(Role.USER, (prompt,), edited=True)))
        members = {"model": question.model, self.transcript: [asked], **self.keep_nothing(question)}
        return orjson.dumps({**members, **self.write_parameters(question, None)})

    def keep_nothing(self, _: Question, /) -> dict[str, Any]:
        """What asks an upstream to keep nothing of a question, in dialects whose upstreams else keep answers."""
        return {}

    def ask_behind(
        self, request: Request, prefix: Conversation, question: Question, prompt: str, *, is_apart: bool = False
    ) -> bytes | None:
        """The body of a request with `prompt` after forwarded messages, and with the client's own tools.

        `is_apart`: `prefix` has only the system messages. The body then has no tools, and of the client's other members
        only those by which the upstream knows its session. None if the request prescribes the form of the response,
        which a summary would not have, or if the members of its body cannot be read.
        """
        asked = Message(Role.USER, (prompt,), edited=True)
        if (members := self.write_members(request, prefix, (asked,), is_apart=is_apart)) is None:
            return None
        if request.cache.key and CACHE_KEY in self.refusable and CACHE_KEY not in question.refused:
            members.setdefault(CACHE_KEY, msgspec.Raw(orjson.dumps(request.cache.key)))
        own = {"model": question.model} if is_apart else {}
        kept = {**self.keep_nothing(question), **members} if is_apart else members
        parameters = self.write_parameters(question, self.read_thinking(members), request.max_tokens or 0)
        return msgspec.json.encode({**kept, **own, **parameters})

    def ask_provider(
        self, request: Request, prefix: Conversation, question: Question, *, instructions: str
    ) -> bytes | None:
        """The body that asks for the provider's own note on forwarded messages; None if it cannot be asked."""
        form, sent = self.provider_note, zip(prefix.messages, prefix.origins, strict=True)
        if form is None or any(message.keeps_before and at is not None for message, at in sent):
            return None  # the client has notes of its own
        if (members := self.write_members(request, prefix, ())) is None:
            return None
        finished = form.finish(members, self.write_parameters(question, self.read_thinking(members)), instructions)
        return None if finished is None else msgspec.json.encode(finished)

    def decode_note(self, note: bytes, counting: Counting) -> tuple[Message, ...]:
        """The messages of a provider's note. Raises UndecodableError or one of DECODE_ERRORS."""
        raws = list(map(bytes, decode_items(b"[" + note + b"]")))
        units = raws if self.find_units is None else join_units(raws, self.find_units(raws, 0))
        found = counting.known.view(self.name, counting.number).decode(units, partial(self.decode_unit, counting))
        return tuple(message for messages in found for message in messages)

    def write_members(
        self, request: Request, prefix: Conversation, asked: tuple[Message, ...], *, is_apart: bool = False
    ) -> dict[str, msgspec.Raw] | None:
        """What `ask_behind` sends beside the parameters, with the messages `asked` at the end; None as there."""
        members = self.copy_members(request, is_apart=is_apart)
        if members is None or prefix.continues:
            return None
        elements = self.write_behind(request, prefix, asked, members, is_apart=is_apart)
        members[self.transcript] = msgspec.Raw(b"[" + b",".join(elements) + b"]")
        if (value := self.write_outside(prefix)) is not None:
            members[self.outside] = msgspec.Raw(value)
        return members

    def copy_members(self, request: Request, *, is_apart: bool = False) -> dict[str, msgspec.Raw] | None:
        """What `ask_behind` takes over from the body of a client's request, besides its transcript; None as there."""
        try:
            everything = read_outside(request.body, request.kept_body)
            if is_apart:
                return {name: value for name, value in everything.items() if name in self.of_session}
            if self.prescribes_form(everything):
                return None
            taken = {name: value for name, value in everything.items() if name in self.taken_over}
            return {name: value for name, value in taken.items() if not self.forces_call(name, value)}
        except DECODE_ERRORS:
            return None

    def forces_call(self, name: str, value: msgspec.Raw) -> bool:
        """Whether a member forces the model to call a tool; a question should be answered with a text instead."""
        return name in self.choices and forces_call(decode_member(value))

    def write_behind(
        self, request: Request, prefix: Conversation, asked: tuple[Message, ...], _: Any, /, *, is_apart: bool
    ) -> Iterable[bytes]:
        """The elements of a question behind a conversation. May change the members of its body."""
        inside = take_off_outside(prefix)
        marked = {} if is_apart else self._mark_messages(request, inside, request.read_client(), at_end=True)
        messages = [*(marked.get(at, message) for at, message in enumerate(inside.messages)), *asked]
        write, origins = self.make_writer(request, messages), (*inside.origins, *(None for _ in asked))
        return map(write, group_elements([*zip(messages, origins, strict=True)], self.shares))
