"""What a wire dialect must do, and the values that it exchanges with the rest of the proxy.

Law: nothing outside a dialect's folder knows the names of its fields. A codec keeps no state between requests: what it
remembers stands in the `Known` that it is given. Every method is safe to run in a thread.
"""

from dataclasses import dataclass, field
from typing import Literal, Protocol

from proxy.wire.beginnings import Beginning, Begun
from proxy.wire.known import Known
from proxy.wire.overflow.classify import Overflow
from proxy.wire.sse import FirstEvent
from proxy.wire.tap import Tap
from proxy.wire.usage import Usage
from rules.conversation import Conversation, CountTokens
from rules.tokens.families import GENERIC, Costs

PROMPT_TOO_LONG = "context_length_exceeded"
"""The code of the error that makes clients compact. Source: OpenAI's API; agents look for it."""

Parameter = Literal["temperature", "completion_limit"]
"""A parameter of a question that upstreams refuse: reasoning models know the completion's limit by another name."""


class UndecodableError(ValueError):
    """The body is not a request of this dialect. It is forwarded unchanged, and the upstream judges."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request split into the elements of its transcript, which are not decoded yet.

    `raws` is the JSON of each element, oldest first, with the client's own bytes. `fixed` is the JSON of what stands
    outside the transcript and costs prompt tokens; only the dialect knows what is what. `max_tokens` is the completion
    that the request asks for. `is_reasoning`: the request says that the model thinks within that completion.
    `asks_usage`: it wants a stream to end with its usage.
    `beginning` is what the request that goes on from this one may begin with; None if that would not be worth it.
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
    beginning: Beginning | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Counting:
    """How a codec counts, and what it has decoded and counted that way before.

    `number` sets this way of counting apart from others that share `known`.
    """

    count: CountTokens
    known: Known
    costs: Costs = GENERIC.costs
    number: int = 0


@dataclass(frozen=True, slots=True)
class Question:
    """How a summary is asked for: of which model, and with which parameters.

    `is_reasoning`: the model thinks within its completion. A `temperature` of None is not sent.
    """

    model: str
    max_tokens: int
    temperature: float | None = None
    is_reasoning: bool = False


@dataclass(frozen=True, slots=True)
class Completion:
    """What a model wrote in answer to a question. `usage` is what the upstream reports, as far as it does.

    `was_cut`: the completion's maximum ended it. `was_filtered`: the upstream's content filter did.
    """

    text: str
    usage: Usage
    calls_tool: bool = False
    was_cut: bool = False
    was_filtered: bool = False


@dataclass(frozen=True, slots=True)
class ErrorText:
    """An error that the proxy tells a client. `code` and `type` are words for programs, `param` names the culprit."""

    message: str
    code: str
    type: str = "invalid_request_error"
    param: str | None = None


class Codec(Protocol):
    """One wire dialect. To add one: a folder beside `chat/`, and one line in `dialects.py`."""

    @property
    def name(self) -> str:
        """The endpoint's name in metrics and log lines."""

    @property
    def paths(self) -> frozenset[str]:
        """The paths of the POST requests that the dialect claims."""

    @property
    def path(self) -> str:
        """The path at which an upstream is asked for a summary if no client's request says it."""

    def read(self, body: bytes, begun: Begun | None = None, *, max_chars: int | None = None) -> Request:
        """Split a body into its elements without decoding them, mended if need be. Raises UndecodableError.

        What it has `begun` with is not read again; the result is the same.
        Mending is slow: LargeWorkError if more than `max_chars` would have to be mended.
        """

    def peek_model(self, beginning: bytes) -> str:
        """The model that a body names, by its beginning; the empty string if that names none."""

    def uncounted_bytes(self, request: Request, counting: Counting) -> int:
        """About how many bytes of JSON `decode` would have to decode and count anew."""

    def decode(self, request: Request, counting: Counting) -> Conversation:
        """The request's transcript, counted, with the origin of each message. Raises UndecodableError.

        Every element belongs to a message: one that none names would be lost when the transcript is written.
        """

    def count_format(self, request: Request, counting: Counting) -> int:
        """Of the conversation's fixed tokens those that are not the tools'."""

    def counts_all(self, request: Request) -> bool:
        """Whether all that a server may read of a body, but for its transcript, is counted or costs no tokens."""

    def encode(self, request: Request, before: Conversation, after: Conversation) -> tuple[bytes, ...]:
        """The body with the transcript `after`, in pieces; the body itself if that is what `decode` returned.

        What no rule touched keeps its bytes. Raises UndecodableError if the body's elements cannot be found in it.
        """

    def tap(self, *, is_stream: bool, asks_usage: bool = False) -> Tap:
        """Reads a copy of an answer for its usage and its text; of the text little if the request `asks_usage`."""

    def hold_first_event(self, *, keeps_all: bool) -> FirstEvent:
        """Holds a stream back until it is clear whether it is an answer; see FirstEvent."""

    def read_refusal(self, status: int, body: bytes) -> Overflow | None:
        """What an answer, or an event of status 200, says of the context window; None if it is about something else."""

    def write_error(self, error: ErrorText, *, as_event: bool) -> bytes:
        """An error as the body of an answer, or as an event of a stream."""

    def write_event(self, status: int, body: bytes) -> bytes:
        """An upstream's answer that is no stream as an event of one; `status` is lost otherwise."""

    def ask(self, question: Question, prompt: str) -> bytes:
        """The body of a request that asks only `prompt`."""

    def ask_behind(self, request: Request, prefix: Conversation, question: Question, prompt: str) -> bytes | None:
        """The body of a request that asks `prompt` behind forwarded messages, with the client's own tools.

        None if the answer has a prescribed form, which no summary has, or if the body's members cannot be told apart.
        """

    def read_completion(self, answer: bytes) -> Completion:
        """The completion in the answer to a question. Raises UndecodableError."""

    def read_refused_parameter(self, answer: bytes) -> Parameter | None:
        """Which of a question's parameters an error names, if it names one."""
