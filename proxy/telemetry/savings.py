"""Sums over the metrics, and what the proxy has saved since it started, in a few figures and one line of text.

Law: every figure is a sum over series of the metrics page, of all workers if they share them, or the mean of one of its
histograms. A loss is shown as a loss.
"""

from collections import defaultdict
from collections.abc import Iterable

import msgspec
from prometheus_client import Metric

from trimtab.proxy.telemetry.metrics import Metrics

MIN_SHOWN_USD = 0.005  # Smaller amounts would be shown as 0.00. Chosen: half a cent.
_PASSED = "passed"  # Not compacted, such as GET /v1/models. Source: docs/reference/metrics.md.
FIRST_ERROR = 400  # Source: RFC 9110 section 15: the statuses of errors begin here


_ByName = defaultdict[str, list[tuple[dict[str, str], float]]]


class Samples(msgspec.Struct, frozen=True):
    """Samples of the metrics by name: labels and value."""

    by_name: _ByName = msgspec.field(default_factory=lambda: defaultdict(list))

    @classmethod
    def of(cls, families: Iterable[Metric]) -> "Samples":
        samples = cls()
        for family in families:
            if family.name.startswith("trimtab_"):
                for sample in family.samples:
                    if "le" not in sample.labels:
                        samples.by_name[sample.name].append((sample.labels, sample.value))
        return samples

    def sum(self, name: str, **labels: str) -> float:
        """The sum over the series of a metric with these labels; 0 if there is none."""
        return sum(value for has, value in self.by_name.get(f"trimtab_{name}", ()) if labels.items() <= has.items())

    def count(self, name: str, **labels: str) -> int:
        return round(self.sum(name, **labels))

    def mean(self, name: str, **labels: str) -> float | None:
        number = self.sum(f"{name}_count", **labels)
        return self.sum(f"{name}_sum", **labels) / number if number else None

    def list_values(self, name: str, label: str) -> list[str]:
        return list(dict.fromkeys(has[label] for has, _ in self.by_name.get(f"trimtab_{name}", ()) if label in has))

    def count_failed(self, **labels: str) -> int:
        """The requests whose client got an error, whoever made it, or an answer that broke off."""
        failed = (
            value
            for has, value in self.by_name.get("trimtab_requests_total", ())
            if labels.items() <= has.items() and (int(has["status"]) >= FIRST_ERROR or has["outcome"] == "broken")
        )
        return round(sum(failed))


class Savings(msgspec.Struct, frozen=True):
    """Sums since the start. Tokens are those of prompts that count: see `Outcome.counted`.

    requests: those on paths that are compacted. failed: of which the client got an error, or half an answer.
    pruned, summarised, digested: requests forwarded with a cut of this kind. A request may have two kinds.
    recovered: prompts that the upstream refused as too long, and accepted at the second attempt.
    cost_usd, without_usd: None if no price in dollars is known. Summaries are included in cost_usd.
    """

    requests: int = 0
    failed: int = 0
    original_tokens: int = 0
    sent_tokens: int = 0
    pruned: int = 0
    summarised: int = 0
    digested: int = 0
    recovered: int = 0
    fail_opens: int = 0
    summary_tokens: int = 0
    cost_usd: float | None = None
    without_usd: float | None = None

    @classmethod
    def read(cls, *metrics: Metrics) -> "Savings":
        """The sums now, of one proxy or of several. With several workers it reads files, so not on the event loop."""
        samples = Samples.of(family for each in metrics for family in each.collect_all())
        count, without_usd = samples.count, samples.sum("cost_without_usd_total")
        return cls(
            requests=count("requests_total") - count("requests_total", outcome=_PASSED),
            failed=samples.count_failed() - samples.count_failed(outcome=_PASSED),
            original_tokens=count("prompt_tokens_total", stage="original"),
            sent_tokens=count("prompt_tokens_total", stage="sent"),
            pruned=count("cuts_total", kind="prune"),
            summarised=count("cuts_total", kind="summarise"),
            digested=count("cuts_total", kind="digest"),
            recovered=count("overflow_retries_total", result="recovered"),
            fail_opens=count("fail_open_total"),
            summary_tokens=count("summary_tokens_total"),
            cost_usd=samples.sum("cost_usd_total") if without_usd else None,
            without_usd=without_usd or None,
        )

    def describe(self) -> str:
        if self.failed and not self.original_tokens:  # no token of theirs was worth anything
            return self.describe_requests()
        return ", ".join([self.describe_requests(), self.describe_tokens(), *self.describe_money()])

    def describe_requests(self) -> str:
        failed = f", {self.failed:,} of them failed ({self.failed / self.requests:.0%})" if self.failed else ""
        return f"{count(self.requests, 'request')}{failed}"

    def describe_cuts(self) -> tuple[str, ...]:
        kinds = ((self.pruned, "pruned"), (self.summarised, "with a summary"), (self.digested, "with a digest"))
        told = [f"{number:,} {what}" for number, what in kinds if number]
        return (f"requests with a cut: {', '.join(told)}",) if told else ()

    def describe_tokens(self) -> str:
        if self.sent_tokens == self.original_tokens:
            return f"{self.original_tokens:,} prompt tokens, all sent"
        less = self.original_tokens - self.sent_tokens
        share = f"{abs(less) / max(self.original_tokens, 1):.0%} {'fewer' if less > 0 else 'more'}"
        return f"{self.original_tokens:,} → {self.sent_tokens:,} prompt tokens ({share})"

    def describe_money(self) -> tuple[str, ...]:
        if self.cost_usd is None or self.without_usd is None:
            return ()
        saved = self.without_usd - self.cost_usd
        if abs(saved) < MIN_SHOWN_USD:
            return ("no money saved yet",)
        return (f"${saved:,.2f} saved" if saved > 0 else f"${-saved:,.2f} lost",)


def count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
