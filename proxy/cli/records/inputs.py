"""Reads the inputs of a replay that are no recordings: the lines of a log, and request bodies.

Law: no I/O. A log of `trimtab serve`, in the format `json`, holds no text, so nothing is planned again: the figures are
those that were logged. A body that continues an earlier one belongs to its session.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import structs

from trimtab.proxy.account.prompt_cache import MAX_NEW_MESSAGES, count_cached
from trimtab.proxy.account.recordings.format import Counted, RecordedCall
from trimtab.proxy.catalogue.prices import Tokens
from trimtab.proxy.cli.records.sums import SUCCESS_STATUS, UNKNOWN, UPSTREAM_REFUSES, RequestFigures
from trimtab.proxy.lru import BytesLRU
from trimtab.proxy.telemetry.metrics import OTHER
from trimtab.proxy.wire.codec import UndecodableError
from trimtab.proxy.wire.dialects import guess_dialect, name_codec
from trimtab.proxy.wire.json import DECODE_ERRORS, decode_members
from trimtab.rules.conversation import Decision
from trimtab.rules.tokens.sections import Sections

NO_RULES = frozenset({"refused", "lesson_test", "cold_cache", "cache_refused"})
"""Entries of a ledger that no rule made: they say what happened between two plans."""
MAX_HASHES_BYTES = 16 * 1024 * 1024  # chosen: the newest requests of some hundred thousand sessions
HASH_BYTES = 160  # what is kept of a request. An estimate for CPython.
_BY_MODEL = frozenset({"reasoning", "function_call", "custom_tool_call", "local_shell_call", "web_search_call"})
"""Types of items of the Responses API that a model writes, beside the messages of an assistant."""


class _Section(msgspec.Struct):
    original: int = 0
    sent: int = 0


class _Entry(msgspec.Struct):
    rule: str
    attempt: int
    limit_tokens: int
    before_tokens: int
    after_tokens: int
    saved_tokens: int
    first_changed: int = 0


class Line(msgspec.Struct):
    event: str
    timestamp: str = ""
    endpoint: str = ""
    status: int | None = None
    outcome: str = ""
    upstream: str = ""
    model: str = ""
    match: str | None = None
    mode: str = "enforce"
    retry: str = ""
    error: str = ""
    original_tokens: int | None = None
    sent_tokens: int = 0
    limit_tokens: int = 0
    sections: dict[str, _Section] = msgspec.field(default_factory=dict)
    decisions: list[_Entry] = msgspec.field(default_factory=list)
    prefix_kept: float | None = None
    cached_tokens: int | None = None
    written_tokens: int | None = None
    fresh_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens: int = 0
    result: str = ""


_SAME = (
    "endpoint", "outcome", "limit_tokens", "cached_tokens", "written_tokens", "completion_tokens", "prefix_kept",
    "retry", "error",
)  # fmt: skip
"""The figures of an outcome that a line of the log names in the same way."""


class _Element(msgspec.Struct):
    role: str = ""
    type: str = ""


_decode = msgspec.json.Decoder(Line).decode
_decode_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_element = msgspec.json.Decoder(_Element).decode


class LogReader(msgspec.Struct):
    """Reads lines in their order. `sent_to`: the upstream and the model of the last request of each label."""

    sent_to: dict[str, tuple[str, str]] = {}

    def read(self, text: bytes) -> RequestFigures | RecordedCall | None:
        line = _read_line(text)
        if line.event == "summary":
            tokens = line.prompt_tokens, line.completion_tokens or 0
            charged = Tokens.of(tokens[0], line.cached_tokens, line.written_tokens, tokens[1])
            label = next((label for label, (_, model) in self.sent_to.items() if model == line.model), line.model)
            return RecordedCall(label, "", line.result, 0.0, *tokens, charged)
        return self._read_request(line) if line.event == "request" else None

    def _read_request(self, line: Line) -> RequestFigures:
        is_refused = line.retry in UPSTREAM_REFUSES
        label = line.match or (line.model if line.model and "***" not in line.model else OTHER)
        self.sent_to[label] = line.upstream, line.model
        counts = line.sent_tokens > 0 and not is_refused and line.mode == "enforce" and line.outcome != "observe"
        counted = Counted(
            line.original_tokens is not None,
            line.original_tokens is not None and line.sent_tokens > 0,
            tuple(
                Decision(entry.rule, "", entry.before_tokens, entry.after_tokens, 0, entry.first_changed)
                for entry in (find_sent(line.decisions) if counts else ())
            ),
        )
        is_reported = line.fresh_tokens is not None
        read = line.cached_tokens, line.written_tokens, line.fresh_tokens
        event = structs.replace(
            UNKNOWN,
            **{name: getattr(line, name) for name in _SAME},
            label=label,
            status=line.status or 0,
            original_sections=_read_sections(line, "original"),
            sent_sections=_read_sections(line, "sent"),
            prompt_tokens=sum(number or 0 for number in read) if is_reported else None,
        )
        return RequestFigures(event, counted, "upstream" if is_reported else "unknown")


def find_sent(entries: Sequence[Any]) -> Sequence[Any]:
    """The decisions of the plan that was sent: the last ones in the ledger that follow from each other."""
    rules = [entry for entry in entries if entry.rule not in NO_RULES]
    if not rules:
        return ()
    start = 0
    for index, (before, after) in enumerate(pairwise(rules), start=1):
        is_next = before.after_tokens == after.before_tokens
        if before.attempt != after.attempt or before.limit_tokens != after.limit_tokens or not is_next:
            start = index
    return rules[start:]


def estimate_tokens(figures: RequestFigures) -> Tokens | None:
    """The tokens that an upstream charged for, estimated if it did not report them; None if nothing was answered."""
    event, sent_tokens = figures.event, figures.sent_tokens
    if event.status != SUCCESS_STATUS or not figures.counted.sent:
        return None
    if event.prompt_tokens is not None:
        return Tokens.of(event.prompt_tokens, event.cached_tokens, event.written_tokens, event.completion_tokens)
    cached = count_cached((event.prefix_kept or 0.0) * sent_tokens)
    return Tokens.of(sent_tokens, cached, None, event.completion_tokens)


def is_log(first_line: bytes) -> bool:
    try:
        line = _read_line(first_line)
    except ValueError:
        return False
    return bool(line.event and line.timestamp)


def _read_line(text: bytes) -> Line:
    try:
        return _decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError("not a line of a log in the format json") from error


def _read_sections(line: Line, stage: str) -> tuple[int, ...]:
    return tuple(getattr(line.sections.get(name, _Section()), stage) for name in Sections._fields)


class Sessions(msgspec.Struct):
    """Names the session of each request, after the place at which it began."""

    _known: BytesLRU[tuple[str, bytes], str] = msgspec.field(
        default_factory=lambda: BytesLRU(MAX_HASHES_BYTES, lambda *_: HASH_BYTES)
    )

    def name(self, model: str, hashes: Sequence[bytes], place: str) -> str:
        """The session of a request. hashes: of its transcript's prefixes. place: its name, if it begins one."""
        shortest = max(len(hashes) - 1 - MAX_NEW_MESSAGES, 0)
        found = self._known.pop_first((model, known) for known in hashes[:shortest:-1])
        name = place if found is None else found
        self._known[model, hashes[-1]] = name
        return name


def split_turns(body: bytes, dialect: str | None = None) -> Iterator[bytes]:
    """The requests that a client sent on the way to this body, itself last. Raises UndecodableError."""
    codec = name_codec(dialect or guess_dialect(body))
    try:
        members = decode_members(body)
        elements = _decode_elements(members.get(codec.transcript, msgspec.Raw(b"[]")))
        is_answer = [one.role == "assistant" or one.type in _BY_MODEL for one in map(_decode_element, elements)]
    except DECODE_ERRORS as error:
        raise UndecodableError from error
    for stop in range(1, len(elements)):
        if is_answer[stop] and not is_answer[stop - 1]:
            beginning = msgspec.Raw(b"[" + b",".join(map(bytes, elements[:stop])) + b"]")
            yield msgspec.json.encode({**members, codec.transcript: beginning})
    yield body
