"""Adds up what requests tell, by model: the figures of the metrics, and what only a replay knows.

Law: what the metrics count is counted by their own code, so that a replay and /metrics cannot drift apart.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from proxy.cli.records.replaying.told import SUCCESS_STATUS, Told, ToldSummary
from proxy.state.catalogue.costs import to_dollars
from proxy.telemetry.metrics import Metrics
from rules.tokens.sections import Sections

STAGES = ("original", "sent")


@dataclass(slots=True)
class _More:
    """What the metrics do not count, of one model.

    moved_cuts: cuts that were made, each once; None if nothing was planned again.
    stand_ins: of these, the ones for which a digest stands in for a model's summary.
    over_window: prompts that were longer than the window, as the client sent them.
    over_limit: longer than the limit that they were planned for. booked, without: nanodollars.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    answered: int = 0
    refused: int = 0
    retried: int = 0
    moved_cuts: int | None = None
    stand_ins: int = 0
    over_window: int = 0
    over_limit: int = 0
    summaries: Counter[str] = field(default_factory=Counter)
    kept_sum: float = 0.0
    kept_number: int = 0
    booked: int | None = None
    without: int | None = None
    summary_booked: int | None = None


class Figures:
    """The sums of requests by model."""

    def __init__(self) -> None:
        self._metrics = Metrics()
        self._more: dict[str, _More] = {}

    def add(self, told: Told) -> None:
        """Add a request."""
        label, metrics, more = told.label, self._metrics, self.of(told.label)
        more.requests += 1
        more.outcomes[told.outcome] += 1
        more.answered += told.status == SUCCESS_STATUS
        more.refused += told.error == "context_length_exceeded"
        more.retried += bool(told.retry)
        for stage, sections in zip(STAGES, (told.original, told.sent), strict=True):
            if sections is not None and sections.tokens:
                metrics.prompt_tokens[label, stage] += sections.tokens
                metrics.record_sections(label, stage, sections)
        metrics.record_decisions(label, told.decisions)
        metrics.record_cache(label, told.cached_tokens, told.written_tokens, "")
        if told.completion_tokens is not None:
            metrics.completion_tokens[label, told.completion_source] += told.completion_tokens
        more.over_limit += bool(told.limit_tokens) and told.original_tokens > told.limit_tokens
        if told.prefix_kept is not None and told.sent is not None:
            more.kept_sum += told.prefix_kept
            more.kept_number += 1
        more.booked = _add(more.booked, told.cost)
        more.without = _add(more.without, told.without_cost)

    def add_summary(self, told: ToldSummary) -> None:
        """Add a call for a summary."""
        more = self.of(told.label)
        more.summaries[told.result] += 1
        for kind, tokens in (("prompt", told.prompt_tokens), ("completion", told.completion_tokens)):
            self._metrics.summary_tokens[told.label, kind] += tokens
        more.summary_booked = _add(more.summary_booked, told.cost)

    def of(self, label: str) -> _More:
        """What the metrics do not count, of a model."""
        return self._more.setdefault(label, _More())

    @property
    def labels(self) -> tuple[str, ...]:
        """The models, those with the longest prompts first."""
        original = self._read("prompt_tokens", "stage", "original")
        return tuple(sorted(self._more, key=lambda label: (-original.get(label, 0), label)))

    def describe(self, label: str) -> dict[str, Any]:
        """The figures of a model as JSON."""
        more = self.of(label)
        return {
            "name": label,
            "requests": more.requests,
            "answered": more.answered,
            "refused": more.refused,
            "retried": more.retried,
            "outcomes": dict(sorted(more.outcomes.items())),
            "original_tokens": self._read("prompt_tokens", "stage", "original").get(label, 0),
            "sent_tokens": self._read("prompt_tokens", "stage", "sent").get(label, 0),
            "saved_tokens": self._split("tokens_saved", "rule", label),
            "added_tokens": self._split("tokens_added", "rule", label),
            "cuts": self._split("cuts", "kind", label),
            "repairs": sum(self._split("repairs", "model", label).values()),
            "sections": {stage: self._read_sections(label, stage) for stage in STAGES},
            "completion_tokens": self._split("completion_tokens", "source", label),
            "cached_tokens": sum(self._split("cached_prompt_tokens", "model", label).values()),
            "written_tokens": sum(self._split("cache_write_tokens", "model", label).values()),
            "summaries": sum(more.summaries.values()),
            "summary_results": dict(sorted(more.summaries.items())),
            "summary_tokens": self._split("summary_tokens", "kind", label),
            "moved_cuts": more.moved_cuts,
            "stand_ins": more.stand_ins,
            "over_limit": more.over_limit,
            "over_window": more.over_window,
            "prefix_kept": round(more.kept_sum / more.kept_number, 4) if more.kept_number else None,
            "booked_usd": to_dollars(more.booked),
            "booked_without_usd": to_dollars(more.without),
            "booked_summaries_usd": to_dollars(more.summary_booked),
        }

    def _read_sections(self, label: str, stage: str) -> dict[str, int]:
        found = {
            sample.labels["section"]: int(sample.value)
            for sample in self._samples("section_tokens")
            if sample.labels["model"] == label and sample.labels["stage"] == stage
        }
        return {name: found.get(name, 0) for name in Sections._fields}

    def _read(self, row: str, name: str, value: str) -> dict[str, int]:
        """The values of a collector by model, for one value of another label."""
        found = (sample for sample in self._samples(row) if sample.labels[name] == value)
        return {sample.labels["model"]: int(sample.value) for sample in found}

    def _split(self, row: str, name: str, label: str) -> dict[str, int]:
        """The values of a collector for one model, by another label."""
        found = (sample for sample in self._samples(row) if sample.labels["model"] == label)
        return {sample.labels[name]: int(sample.value) for sample in found}

    def _samples(self, row: str) -> Any:
        family = getattr(self._metrics, row).read()
        return [sample for sample in family.samples if sample.name == f"{family.name}_total"]


def add_up(models: list[dict[str, Any]]) -> dict[str, Any]:
    """The sum of the figures of several models, in the same form, without a name."""
    total: dict[str, Any] = {}
    for model in models:
        for name, value in model.items():
            if name not in {"name", "prefix_kept"}:
                total[name] = _merge(total.get(name), value)
    return total


def _merge(left: Any, right: Any) -> Any:
    if isinstance(left, Mapping) or isinstance(right, Mapping):
        left, right = left or {}, right or {}
        return {name: _merge(left.get(name), right.get(name)) for name in {**left, **right}}
    return right if left is None else left if right is None else left + right


def _add(total: int | None, amount: int | None) -> int | None:
    return total if amount is None else (total or 0) + amount
