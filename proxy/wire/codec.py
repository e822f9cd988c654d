"""The interface of a wire dialect, and the values that it exchanges with the rest of the proxy.

Law: nothing outside a dialect's folder knows the names of its fields. A codec has no state of its own: it remembers
only in the `Known` that it is given. Every method may run in a thread.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from trimtab.proxy.wire.answers.sse import FirstEvent
from trimtab.proxy.wire.answers.tap import Tap
from trimtab.proxy.wire.answers.usage import Usage
from trimtab.proxy.wire.content.cache_help import NO_HELP, CacheHelp, Client, Helped, has_markers
from trimtab.proxy.wire.content.tool_lists import ListMemo, make_list_memo
from trimtab.proxy.wire.overflow.classify import Overflow
from trimtab.proxy.wire.transcript.beginnings import Beginning, Begun, find_marked
from trimtab.proxy.wire.transcript.body import UndecodableError as UndecodableError  # noqa: PLC0414 - part of the interface
from trimtab.proxy.wire.transcript.body import read_outside
from trimtab.proxy.wire.transcript.decoding import Known
from trimtab.rules.conversation import Conversation, CountTokens, Decision
from trimtab.rules.tokens.families import GENERIC, Costs

PROMPT_TOO_LONG = "context_length_exceeded"
"""Error code that makes clients compact by themselves. Source: OpenAI's API; agents look for it."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request that is split into the elements of its transcript, which are not decoded yet.

    raws: JSON of each element, oldest first, in the client's own bytes.
    max_tokens: completion tokens that the request asks for; None if it sets no limit.
    fixed: JSON of the members outside the transcript that cost prompt tokens. Only the dialect knows their order.
    is_reasoning: the request says that the model's reasoning counts against `max_tokens`.
    asks_usage: the request wants its stream to end with the usage.
    cache: what its provider takes for its prompt cache.
    takes_binding: its upstream has not refused that it is told of a changed transcript.
    breaks_past: answers of the model were given behind other messages than are sent now.
    cleaned: what was taken out of the client's body, in our tokens.
    beginning: kept for the request that continues this one; None if the body is too short for that to pay.
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
    cleaned: tuple[Decision, ...] = ()
    beginning: Beginning | None = field(default=None, compare=False)

    def read_client(self) -> Client:
        """What a client of OpenAI's APIs says about the prompt cache. Raises one of DECODE_ERRORS."""
        marked = find_marked(self.raws, self.beginning, has_markers) if self.cache.adds - {"cache_key"} else ()
        return Client(read_outside(self.body, self.beginning), {at: self.raws[at] for at in marked})

    def reduce_to(self, left: "Request", decisions: tuple[Decision, ...]) -> "Request":
        """What is `left` of this request, with everything that is known of it beside its body."""
        cleaned = (*self.cleaned, *decisions)
        return replace(left, model=self.model, cache=self.cache, takes_binding=self.takes_binding, cleaned=cleaned)


@dataclass(frozen=True, slots=True)
class Unsent:
    """What clients put into a request although the model must not or need not read it.

    local_items: types of items that belong to the client alone.
    tools: globs of the names of tools whose declarations are not sent unless the transcript calls them.
    nonces: whether texts are removed that only make each request different from the one before.
    """

    local_items: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    nonces: bool = False


@dataclass(frozen=True, slots=True)
class Adapted:
    """A changed body, in pieces, with what its provider must be told about the change.

    headers: to send in addition; their values are lists, to which the client's own values belong, too.
    """

    pieces: tuple[bytes, ...]
    headers: tuple[tuple[str, str], ...] = ()
    decisions: tuple[Decision, ...] = ()


def leave_body(_: Request, __: Conversation, ___: Conversation, pieces: tuple[bytes, ...]) -> Adapted:
    """`Codec.adapt` of a dialect whose providers need not be told that a transcript was changed."""
    return Adapted(pieces)


@dataclass(frozen=True, slots=True)
class Counting:
    """How a codec counts tokens, and what it has decoded and counted that way before.

    number: identifies this way of counting among others that share `known`.
    tool_lists: lists of tools from which declarations were taken out before.
    """

    count: CountTokens
    known: Known
    costs: Costs = GENERIC.costs
    number: int = 0
    tool_lists: ListMemo = field(default_factory=make_list_memo)


@dataclass(frozen=True, slots=True)
class Question:
    """The model and the parameters with which a summary is requested.

    temperature: None if it is not sent.
    is_reasoning: the model's reasoning counts against its completion limit.
    refused: the forms of parameters that the upstream refuses; see parameters.py.
    """

    model: str
    max_tokens: int
    temperature: float | None = None
    is_reasoning: bool = False
    refused: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Completion:
    """The completion that a model wrote for a question.

    usage: as the upstream reports it; its fields are None if they are not reported.
    calls_tool: the model called a tool.
    was_cut: the completion ended at its limit.
    was_filtered: the upstream's content filter ended the completion.
    """

    text: str
    usage: Usage
    calls_tool: bool = False
    was_cut: bool = False
    was_filtered: bool = False


@dataclass(frozen=True, slots=True)
class ErrorText:
    """An error that the proxy sends to a client. `code` and `type` are for programs; `param` is the field at fault.

    tokens, limit_tokens: of a prompt that is too long, and the most that it may have; None if they are not known.
    more: further members of the error object.
    """

    message: str
    code: str
    type: str = "invalid_request_error"
    param: str | None = None
    tokens: int | None = None
    limit_tokens: int | None = None
    more: Mapping[str, object] = field(default_factory=dict)


class Codec(Protocol):
    """One wire dialect. To add one: a folder beside `chat/`, and one line in `dialects.py`."""

    @property
    def name(self) -> str:
        """The name of the endpoint in metrics and log lines."""

    @property
    def ending(self) -> str:
        """The last segments of the paths whose POST requests the dialect claims, as `/chat/completions`."""

    @property
    def transcript(self) -> str:
        """The name of the body's member with the elements of the transcript."""

    @property
    def is_count(self) -> bool:
        """Whether the upstream only counts the tokens of a request and generates nothing."""

    @property
    def path(self) -> str:
        """The path for summary requests that do not follow a client's request."""

    def read(self, body: bytes, begun: Begun | None = None, *, max_chars: int | None = None) -> Request:
        """Split a body into its elements without decoding them. Raises UndecodableError.

        The part that the body has in common with `begun` is not read again; the result is the same. Invalid JSON is
        repaired if possible. That is slow: raises LargeWorkError if a body of more than `max_chars` needs it.
        """

    def clean(self, request: Request, unsent: Unsent) -> tuple[bytes, tuple[Decision, ...]]:
        """The body without what must not be sent, and a decision for each kind; the body itself if it holds none.

        All other bytes stay.
        """

    def drop_tools(
        self, request: Request, transcript: Conversation, globs: tuple[str, ...], counting: Counting
    ) -> tuple[bytes, int]:
        """The body without the declarations of tools whose names match one of `globs`, and their number.

        All other bytes stay; see content/tool_lists.py. `transcript` is the result of `decode`.
        """

    def peek_model(self, beginning: bytes) -> str:
        """The model that the beginning of a body names; the empty string if it names none."""

    def uncounted_bytes(self, request: Request, counting: Counting) -> int:
        """How many bytes of JSON `decode` would have to decode and count for the first time, roughly."""

    def decode(self, request: Request, counting: Counting) -> Conversation:
        """The request's transcript with its token counts and the origin of each message. Raises UndecodableError.

        Every element must be the origin of a message; any other element would be lost when the transcript is written.
        """

    def count_format(self, request: Request, counting: Counting) -> int:
        """The fixed tokens of the conversation, without those of the tools."""

    def counts_all(self, request: Request) -> bool:
        """Whether each member of the body outside the transcript is counted, or is known to cost no tokens."""

    def encode(self, request: Request, before: Conversation, after: Conversation) -> tuple[bytes, ...]:
        """The body with the transcript `after`, in pieces; the body itself if `after` is `before`.

        `before` is the result of `decode`. What no rule touched keeps its bytes. Raises UndecodableError if the
        elements cannot be found in the body.
        """

    def adapt(self, request: Request, before: Conversation, after: Conversation, pieces: tuple[bytes, ...]) -> Adapted:
        """The body that `encode` wrote, in the form that its provider accepts after a change of what was sent before.

        Answers of the model in it may have been given behind other messages than are sent now.
        """

    def help_cache(self, request: Request, after: Conversation, pieces: tuple[bytes, ...]) -> Helped:
        """The body that `encode` and `adapt` wrote for the transcript `after`, with `request.cache`.

        What the client sets itself stays, and nothing is added beside it. Raises one of DECODE_ERRORS.
        """

    def tap(self, *, is_stream: bool, asks_usage: bool = False) -> Tap:
        """A reader for the usage and the text of a response. It samples the text if the request `asks_usage`."""

    def hold_first_event(self, *, keeps_all: bool) -> FirstEvent:
        """A buffer that holds a stream back until it is clear whether it is a completion; see FirstEvent."""

    def read_refusal(self, status: int, body: bytes) -> Overflow | None:
        """What a response says about exceeding the context window; None if it is about something else.

        `body` may also be one event of a stream with status 200.
        """

    def write_error(self, error: ErrorText, *, as_event: bool) -> bytes:
        """An error as the body of a response, or as an event of a stream."""

    def write_event(self, status: int, body: bytes) -> bytes:
        """A non-stream response of the upstream as one event of a stream; an error event includes `status`."""

    def ask(self, question: Question, prompt: str) -> bytes:
        """The body of a request that contains only `prompt`."""

    def ask_behind(
        self, request: Request, prefix: Conversation, question: Question, prompt: str, *, is_apart: bool = False
    ) -> bytes | None:
        """The body of a request with `prompt` after forwarded messages, and with the client's own tools.

        `is_apart`: `prefix` has only the system messages. The body then has no tools, and of the client's other members
        only those by which the upstream knows its session. None if the request prescribes the form of the response,
        which a summary would not have, or if the members of its body cannot be read.
        """

    def read_completion(self, answer: bytes) -> Completion:
        """The completion in the response to a question, streamed or not. Raises UndecodableError."""

    def list_parameters(self, question: Question) -> tuple[str, ...]:
        """The forms of parameters that an upstream may refuse in a question, the most doubtful first."""

    def find_refused(self, question: Question, answer: bytes) -> str | None:
        """The form of a parameter of a question that an error names as refused; None if it names none."""
