"""The values of a recording: one request as it arrived, as it was sent, and what its plan depended on.

Law: values and their JSON. Recordings contain the text of messages, and no credential. Numbers of tokens are the
model's own unless a field says otherwise.
"""

import base64
import gzip
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from trimtab.proxy.account.books import MOST
from trimtab.proxy.account.outcome import Outcome, keep
from trimtab.proxy.catalogue.prices import Bill, PriceList, Tokens
from trimtab.proxy.models.records import Facts
from trimtab.rules.conversation import Decision
from trimtab.rules.policy import Policy
from trimtab.rules.tokens.sections import Sections

VERSION = 1  # The version of the format. A reader refuses any other.
ENDING = ".json.gz"  # The ending of a recording's file
CALL_ENDING = f".call{ENDING}"  # The ending of the file of a call for a summary
SUMMARY_ENDPOINT = "summary"  # The endpoint in the event of a call for a summary
GZIP_LEVEL = 1  # Chosen: a body of a megabyte takes some 10 ms; level 6 takes four times as long for a fifth less
END_OF_TIME = 253_402_300_800  # Seconds since 1970 at the end of the year 9999, the last that dates have
MAX_OPENED_BYTES = 1024 * 1024 * 1024
"""More, unpacked, is refused. Chosen: above two of the largest bodies decoded by default; bounds a foreign file."""


class BadRecordingError(Exception):
    """A file that is no recording, or a broken one. The message says why, and contains no text of the file."""


@dataclass(frozen=True, slots=True)
class Binary:
    """Bytes that are not UTF-8. Raises ValueError if they cannot be read back."""

    base64: str = field(repr=False)

    def __post_init__(self) -> None:
        base64.b64decode(self.base64)


Body = str | Binary


def write_body(body: bytes) -> Body:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return Binary(base64.b64encode(body).decode("ascii"))


def read_body(body: Body) -> bytes:
    return body.encode() if isinstance(body, str) else base64.b64decode(body.base64)


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """The request of the client.

    dialect: the name of its codec; empty if no codec claims it. is_count: the upstream only counts its tokens.
    headers: only those that trimtab or a replay may need, and never a credential.
    body: None if it was not decoded, passed through, or is too large. It has `***` for each credential in it.
    is_redacted: there was a credential in this body or in the one that was sent, so a replay may differ.
    """

    dialect: str
    path: str
    model: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Body | None = field(default=None, repr=False)
    is_count: bool = False
    is_redacted: bool = False


@dataclass(frozen=True, slots=True)
class RecordedSending:
    """What was sent to the upstream last. body: None for the client's own bytes. headers: beside the client's."""

    body: Body | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)


class Circumstances(msgspec.Struct, frozen=True):
    """What the last plan of the request depended on, beside the body.

    config: the settings of the model or profile that applied, by the names of their keys; only those that are set.
    policy: the rules' settings that the plan was made with. In it are the window and the token ratio.
    believed_tokens: the context window before lessons of refusals.
    upstream_url: the upstream's address, without credentials.
    count: the configured way of counting. vocabulary: the one that counted.
    local_items, strips_nonces, drop_tools: what was taken out of the client's body before it was planned.
    cleaned: the decisions about that, in trimtab's own tokens.
    cold: what was cut at a cold cache, by the hash of the prefix in hexadecimal digits: prune, cut or ask.
    put_off: cuts were taken back because their summary was not there yet. Plan.put_off is called until as many cuts are
        left as `cuts` says.
    cache_adds: what the upstream takes for its prompt cache, by the names of the decisions.
    found: what recall had found beside the client's own calls, each with the message behind which it stands.
    """

    config: Mapping[str, Any]
    policy: Policy
    believed_tokens: int
    facts: Facts
    prices: PriceList
    upstream_url: str = ""
    count: str = "auto"
    vocabulary: str = ""
    request_max_tokens: int | None = None
    local_items: tuple[str, ...] = ()
    strips_nonces: bool = False
    drop_tools: tuple[str, ...] = ()
    cleaned: tuple[Decision, ...] = ()
    cold: Mapping[str, str] = msgspec.field(default_factory=dict)
    put_off: bool = False
    cuts: int = 0
    is_test: bool = False
    attempt: int = 1
    cache_adds: tuple[str, ...] = ()
    found: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class RecordedSummary:
    """The text that stands for the cut part in what was sent.

    id: of the stored summary; empty if the text is a digest that was not stored. by_model: a model wrote it.
    text: without what code carries over the cut, which is made again for each request.
    note: what the provider's own compaction wrote, in its dialect's JSON; empty if it did not.
    """

    id: str
    kind: str
    by_model: bool
    text: str = field(repr=False)
    note: str = field(repr=False, default="")


class RecordedCall(msgspec.Struct, frozen=True):
    """A call for a summary that ended: what it has cost, as the metrics count it.

    label: of the model in the metrics. form: inline or transcript. result: as in the log.
    charged: None if the upstream charged nothing. cost: in nanodollars; None if no price in dollars is known.
    """

    label: str
    form: str
    result: str
    seconds: float
    prompt_tokens: int
    completion_tokens: int
    charged: Tokens | None = None
    cost: int | None = None
    client: str = ""


class Counted(msgspec.Struct, frozen=True):
    """What was counted of this request.

    original: whether its prompt was counted. sent: whether `trimtab_prompt_tokens_total` got the original_tokens and
        sent_tokens of the event, under the event's label: the prompt was sent, and not refused. decisions: those whose
        savings were counted, of the plan that was sent.
    """

    original: bool = False
    sent: bool = False
    decisions: tuple[Decision, ...] = ()


class Recording(msgspec.Struct, frozen=True):
    """One request, or one call for a summary.

    sent: None if nothing was sent. circumstances: None if the request was not planned.
    story: what was done, in sentences without text of the conversation.
    bill: None if the cost is not known. call: of a recording of a call for a summary; None for a request.
    """

    event: Outcome
    request: RecordedRequest | None = None
    sent: RecordedSending | None = None
    circumstances: Circumstances | None = None
    summary: RecordedSummary | None = None
    story: tuple[str, ...] = ()
    counted: Counted = Counted()
    bill: Bill | None = None
    call: RecordedCall | None = None
    version: int = VERSION

    @property
    def id(self) -> str:
        return self.event.request_id

    @property
    def is_redacted(self) -> bool:
        return self.request is not None and self.request.is_redacted

    @property
    def received_body(self) -> bytes | None:
        body = None if self.request is None else self.request.body
        return None if body is None else read_body(body)

    @property
    def sent_body(self) -> bytes | None:
        if self.sent is None:
            return None
        return self.received_body if self.sent.body is None else read_body(self.sent.body)


class _Version(msgspec.Struct, frozen=True):
    version: int


def encode(recording: Recording) -> bytes:
    values = {**msgspec.to_builtins(recording, str_keys=True), "event": keep(recording.event)}
    return gzip.compress(msgspec.json.encode(values), GZIP_LEVEL, mtime=0)


def decode(data: bytes) -> Recording:
    """Read the content of a file. Raises BadRecordingError."""
    unpacked = _unpack(data)
    try:
        version = msgspec.json.decode(unpacked, type=_Version).version
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadRecordingError("it is not a recording of trimtab") from error
    if version != VERSION:
        raise BadRecordingError(f"it has version {version} of the format; this trimtab reads version {VERSION}")
    try:
        recording = msgspec.json.decode(unpacked, type=Recording)
        is_possible = _is_possible(recording)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadRecordingError("a value in it has the wrong form") from error
    if not is_possible:
        raise BadRecordingError("a value in it is out of bounds")
    return recording


def _is_possible(recording: Recording) -> bool:
    event = recording.event
    sections = len(event.original_sections), len(event.sent_sections)
    if not 0 <= event.at < END_OF_TIME or sections not in {(0, 0), (len(Sections._fields),) * 2}:
        return False
    figures = event, recording.circumstances, recording.counted, recording.bill, recording.call
    return _is_bounded(msgspec.to_builtins(figures, str_keys=True))


def _is_bounded(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_bounded, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_bounded, value))
    return not isinstance(value, int | float) or -MOST < value < MOST


def _unpack(data: bytes) -> bytes:
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)  # 16: with the header of gzip
    try:
        unpacked = unpacker.decompress(data, MAX_OPENED_BYTES)
    except zlib.error as error:
        raise BadRecordingError("it is not compressed by gzip, or broken") from error
    if not unpacker.eof:
        is_large = len(unpacked) >= MAX_OPENED_BYTES
        raise BadRecordingError(f"it is larger than {MAX_OPENED_BYTES} bytes" if is_large else "it ends too early")
    return unpacked
