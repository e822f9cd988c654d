"""A dialect as a value: a test says a session in the form of chat completions, and the dialect writes and reads it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from trimtab.proxy.wire.codec import Codec
from trimtab.proxy.wire.dialects import CODECS

Wire = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Refusal:
    """How a server refuses a prompt for its length.

    write: the body, for the tokens of the prompt and of the context window.
    is_stream: the body is the beginning of an event stream.
    told: the window can be read from it.
    """

    server: str
    write: Callable[[int, int], bytes]
    status: int = 400
    is_stream: bool = False
    told: bool = True


@dataclass(frozen=True, slots=True, repr=False)
class Dialect:
    """How clients and servers of a dialect write what a test says.

    name: of the endpoint in log lines and metrics.
    path: of the requests.
    transcript: the member of a body with the transcript.
    completion_limit: the member of a body with the most tokens of the completion.
    convert: the body for a session in the form of chat.
    read: the messages of a body in the form of chat, with their texts, images, calls and results.
    write_answer: a whole response with a text; with the tokens of prompt and completion if they are given.
    write_event: one event of a stream, with a piece of text.
    write_events: all events of a stream, with a piece of text each for the given ones.
    read_text: the text of a response; of a stream if it is one.
    own_type: the type of an error of trimtab's own, by its code.
    refusals: of the servers that speak the dialect.
    check_request: the problems of a forwarded body, given the client's.
    own_codec: of a dialect that the proxy does not speak.
    """

    name: str
    path: str
    transcript: str
    completion_limit: str
    convert: Callable[[Wire], Wire]
    read: Callable[[Wire], list[Wire]]
    write_answer: Callable[..., bytes]
    write_event: Callable[[str], bytes]
    write_events: Callable[..., list[bytes]]
    read_text: Callable[..., str]
    own_type: Callable[[str], str]
    refusals: tuple[Refusal, ...]
    check_request: Callable[..., list[str]]
    own_codec: Codec | None = None

    def __repr__(self) -> str:
        return self.name

    @property
    def codec(self) -> Codec:
        """The proxy's codec for the dialect."""
        return self.own_codec or next(codec for codec in CODECS if codec.name == self.name)

    def write(self, messages: Sequence[Wire], tools: Sequence[Wire] = (), **members: Any) -> Wire:
        """A body for messages and tools in the form of chat. `max_tokens` gets the dialect's name."""
        body = {"model": "m", **self.convert({"messages": messages, **({"tools": tools} if tools else {})})}
        if "max_tokens" in members:
            members[self.completion_limit] = members.pop("max_tokens")
        return body | members

    def read_results(self, body: Wire) -> list[str]:
        """The texts of the tool results of a body, one for each."""
        return ["\n\n".join(list_texts(message)) for message in self.read(body) if message["role"] == "tool"]


def list_texts(message: Wire) -> list[str]:
    """The texts of a message in the form of chat."""
    content = message.get("content") or ""
    parts = [{"text": content}] if isinstance(content, str) else content
    return [part["text"] for part in parts if "text" in part]


def join_parts(parts: Iterable[Wire]) -> str | list[Wire] | None:
    """The content of a message in the form of chat: a string if it is one text, None if it is empty."""
    listed = list(parts)
    if len(listed) == 1 and listed[0]["type"] == "text":
        return str(listed[0]["text"])
    return listed or None


def write_sse(data: Wire, *, named: bool = True) -> bytes:
    """An event of a stream. `named`: with its type as its name."""
    name = b"event: %b\n" % data["type"].encode() if named else b""
    return name + b"data: " + orjson.dumps(data) + b"\n\n"


def read_sse(stream: bytes) -> list[Wire]:
    """The data of the events of a stream."""
    lines = [line.removeprefix(b"data: ") for line in stream.split(b"\n") if line.startswith(b"data: {")]
    return [orjson.loads(line) for line in lines]
