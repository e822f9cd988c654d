"""The session to evaluate: read from a file, and as the requests that its client has sent.

Law: no I/O. In a file with several lines, each line is a session. A session's requests are beginnings of its last one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256

import msgspec

from proxy.wire.codec import Request, UndecodableError
from proxy.wire.dialects import DEFAULT
from proxy.wire.json.decode import DECODE_ERRORS, mend

_ANSWER_SHAPE = frozenset({"response_format", "tool_choice", "function_call", "stream", "stream_options"})
"""Members that prescribe the form of an answer. They are dropped: the questions need plain answers."""


class NoSessionError(ValueError):
    """The file holds no session that can be evaluated. The message says what to do."""


class _Speaker(msgspec.Struct):
    role: str = ""


_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_speaker = msgspec.json.Decoder(_Speaker).decode


@dataclass(frozen=True, slots=True)
class Session:
    """A recorded session.

    sha256: of the bytes of its line.
    line: its line in the file, from 1.
    lines: number of lines in the file.
    """

    request: Request
    sha256: str
    line: int
    lines: int

    def stops(self) -> Iterator[int]:
        """Number of messages of each request: all before one of the model's answers; for the last request, all."""
        raws = self.request.raws
        yield from (stop for stop in range(1, len(raws)) if _decode_speaker(raws[stop]).role == "assistant")
        yield len(raws)

    def request_of(self, stop: int) -> Request:
        """The request with the first `stop` messages."""
        raws = self.request.raws[:stop]
        members = {**_decode_members(self.request.body), "messages": _join(raws)}
        return replace(self.request, raws=raws, body=msgspec.json.encode(members), beginning=None)


def read_session(data: bytes, *, line: int | None = None, model: str | None = None) -> Session:
    """The session in a file that holds one request body, or one in each line.

    line: which line to read, from 1; None for the longest.
    model: replaces the model that the session names.

    Raises NoSessionError.
    """
    lines = [data] if _is_request(data) else [each for each in data.splitlines() if each.strip()]
    if line is None:
        line = max(range(len(lines)), key=lambda index: len(lines[index]), default=0) + 1
    if not 0 < line <= len(lines):
        message = f"there is no line {line}: the file has {len(lines)}; choose another one with --line"
        raise NoSessionError(message)
    body = lines[line - 1]
    try:
        request = _read_request(body, model)
        for raw in request.raws:
            _decode_speaker(raw)
    except (UndecodableError, *DECODE_ERRORS) as error:
        message = f"line {line} is not a chat request; each line must be a JSON object with `messages`"
        raise NoSessionError(message) from error
    if not request.model:
        message = "the session names no model; choose one with --model"
        raise NoSessionError(message)
    return Session(request, sha256(body).hexdigest(), line, len(lines))


def _is_request(data: bytes) -> bool:
    try:
        DEFAULT.read(data)
    except UndecodableError:
        return False
    return True


def _read_request(body: bytes, model: str | None) -> Request:
    """The request in a line, without members that prescribe the form of an answer."""
    try:
        members = _decode_members(body)
    except DECODE_ERRORS:
        members = _decode_members(mend(body))
    kept = {name: value for name, value in members.items() if name not in _ANSWER_SHAPE and bytes(value) != b"null"}
    if model is not None:
        kept["model"] = msgspec.Raw(msgspec.json.encode(model))
    return DEFAULT.read(msgspec.json.encode(kept))


def _join(raws: tuple[bytes, ...]) -> msgspec.Raw:
    return msgspec.Raw(b"[" + b",".join(raws) + b"]")
