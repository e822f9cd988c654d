"""Reads the figures of requests from a log of `trimtab serve`, in the format `json`.

Law: a log holds no text, so nothing is planned again: the figures are those that were logged.

A model's name becomes a label of the metrics only after an upstream has answered for it. Each worker decides that for
itself, so the lines of each worker are followed separately.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgspec

from proxy.account.statistics.counterfactual import count_cached
from proxy.cli.records.replaying.told import SUCCESS_STATUS, UPSTREAM_REFUSES, Told, ToldSummary
from proxy.state.catalogue.costs import Tokens
from proxy.telemetry.metrics import Metrics
from rules.conversation import Decision
from rules.tokens.sections import Sections

NO_RULES = frozenset({"refused", "lesson_test", "cold_cache", "cache_refused"})
"""Entries of a ledger that no rule made: they say what happened between two plans."""


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
    """A line of the log: those members that a replay needs."""

    event: str
    timestamp: str = ""
    worker: int = 0
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


_decode = msgspec.json.Decoder(Line).decode


@dataclass(slots=True)
class LogReader:
    """Reads lines in their order. `sent_to`: the upstream and the model of the last request of each label."""

    sent_to: dict[str, tuple[str, str]] = field(default_factory=dict)
    _names: dict[int, Metrics] = field(default_factory=dict)

    def read(self, text: bytes) -> Told | ToldSummary | None:
        """What a line tells; None for an event that tells no figures. Raises ValueError if it is no line of a log."""
        line = _read_line(text)
        if line.event == "listening":
            self._names.clear()
        elif line.event == "worker_died":
            self._names.pop(line.worker, None)
        elif line.event == "summary":
            tokens = line.prompt_tokens, line.completion_tokens or 0
            charged = Tokens.of(tokens[0], line.cached_tokens, line.written_tokens, tokens[1])
            return ToldSummary(line.model, line.result, *tokens, charged=charged)
        elif line.event == "request":
            return self._tell(line)
        return None

    def _tell(self, line: Line) -> Told:
        is_refused = line.retry in UPSTREAM_REFUSES
        label = self._label(line, is_refused=is_refused)
        self.sent_to[label] = line.upstream, line.model
        counts = line.sent_tokens > 0 and not is_refused and line.mode == "enforce" and line.outcome != "observe"
        read = line.cached_tokens, line.written_tokens, line.fresh_tokens
        return Told(
            label=label,
            endpoint=line.endpoint,
            status=line.status or 0,
            outcome=line.outcome,
            original=_read_sections(line, "original"),
            sent=_read_sections(line, "sent") if line.sent_tokens else None,
            limit_tokens=line.limit_tokens,
            decisions=tuple(map(_read_decision, find_sent(line.decisions))) if counts else (),
            prompt_tokens=sum(number or 0 for number in read) if line.fresh_tokens is not None else None,
            cached_tokens=line.cached_tokens,
            written_tokens=line.written_tokens,
            completion_tokens=line.completion_tokens,
            completion_source="upstream" if line.fresh_tokens is not None else "unknown",
            prefix_kept=line.prefix_kept,
            retry=line.retry,
            error=line.error,
        )

    def _label(self, line: Line, *, is_refused: bool) -> str:
        names = self._names.get(line.worker)
        if names is None:
            names = self._names[line.worker] = Metrics()
        is_answered = line.status == SUCCESS_STATUS and line.original_tokens is not None and not is_refused
        if is_answered and line.match is None and "***" not in line.model:
            names.vouch_for(line.model)
        return names.label_model(line.model, line.match)


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


def estimate_tokens(told: Told) -> Tokens | None:
    """The tokens that an upstream charged for; None if nothing was answered.

    If it did not report them, they are estimated from the share that equals the previous request of the session.
    """
    if told.status != SUCCESS_STATUS or told.sent is None:
        return None
    if told.prompt_tokens is not None:
        return Tokens.of(told.prompt_tokens, told.cached_tokens, told.written_tokens, told.completion_tokens)
    cached = count_cached((told.prefix_kept or 0.0) * told.sent_tokens)
    return Tokens.of(told.sent_tokens, cached, None, told.completion_tokens)


def is_log(first_line: bytes) -> bool:
    """Whether a file that begins with this line is a log."""
    try:
        line = _read_line(first_line)
    except ValueError:
        return False
    return bool(line.event and line.timestamp)


def _read_line(text: bytes) -> Line:
    try:
        return _decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        message = "not a line of a log in the format json"
        raise ValueError(message) from error


def _read_sections(line: Line, stage: str) -> Sections | None:
    if line.original_tokens is None:
        return None
    named: Mapping[str, _Section] = line.sections
    return Sections(*(getattr(named.get(name, _Section()), stage) for name in Sections._fields))


def _read_decision(entry: _Entry) -> Decision:
    return Decision(entry.rule, "", entry.before_tokens, entry.after_tokens, 0, entry.first_changed)
