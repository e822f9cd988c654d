"""What the proxy has saved since it started, in a few figures and one line of text.

Law: every figure is a sum over the metrics, of all workers if they share them. A loss is shown as a loss.
"""

from dataclasses import dataclass

from proxy.telemetry.metrics import Metrics

MIN_SHOWN_USD = 0.005
"""Smaller amounts would be shown as 0.00. Chosen: half a cent."""
_PASSED = "passed"
"""The outcome of requests that are not compacted, such as GET /v1/models. Source: docs/reference/metrics.md."""


@dataclass(frozen=True, slots=True)
class Savings:
    """Sums since the start. Tokens are those of prompts.

    requests: those on paths that are compacted.
    cuts: requests that were forwarded with a cut.
    recovered: prompts that the upstream refused as too long, and accepted at the second attempt.
    cost_usd, without_usd: None if no price in dollars is known. Summaries are included in cost_usd.
    """

    requests: int = 0
    original_tokens: int = 0
    sent_tokens: int = 0
    cuts: int = 0
    recovered: int = 0
    fail_opens: int = 0
    summary_tokens: int = 0
    cost_usd: float | None = None
    without_usd: float | None = None

    @classmethod
    def read(cls, metrics: Metrics) -> "Savings":
        """The sums now. With several workers it reads files, so not on the event loop."""
        sums = _Sums(metrics)
        without_usd = sums.add("trimtab_cost_without_usd_total")
        return cls(
            requests=int(sums.add("trimtab_requests_total") - sums.add("trimtab_requests_total", outcome=_PASSED)),
            original_tokens=int(sums.add("trimtab_prompt_tokens_total", stage="original")),
            sent_tokens=int(sums.add("trimtab_prompt_tokens_total", stage="sent")),
            cuts=int(sums.add("trimtab_cuts_total")),
            recovered=int(sums.add("trimtab_overflow_retries_total", result="recovered")),
            fail_opens=int(sums.add("trimtab_fail_open_total")),
            summary_tokens=int(sums.add("trimtab_summary_tokens_total")),
            cost_usd=sums.add("trimtab_cost_usd_total") if without_usd else None,
            without_usd=without_usd or None,
        )

    def __add__(self, other: "Savings") -> "Savings":
        """The sums of two proxies together."""
        return Savings(
            self.requests + other.requests,
            self.original_tokens + other.original_tokens,
            self.sent_tokens + other.sent_tokens,
            self.cuts + other.cuts,
            self.recovered + other.recovered,
            self.fail_opens + other.fail_opens,
            self.summary_tokens + other.summary_tokens,
            _add(self.cost_usd, other.cost_usd),
            _add(self.without_usd, other.without_usd),
        )

    def describe(self) -> str:
        """The figures in one line."""
        return ", ".join([count(self.requests, "request"), self.describe_tokens(), *self.describe_money()])

    def describe_tokens(self) -> str:
        """Prompt tokens as the clients sent them and as forwarded, and the difference."""
        if self.sent_tokens == self.original_tokens:
            return f"{self.original_tokens:,} prompt tokens, all sent"
        less = self.original_tokens - self.sent_tokens
        share = f"{abs(less) / max(self.original_tokens, 1):.0%} {'fewer' if less > 0 else 'more'}"
        return f"{self.original_tokens:,} → {self.sent_tokens:,} prompt tokens ({share})"

    def describe_money(self) -> tuple[str, ...]:
        """What was saved in dollars, summaries subtracted; empty if no price is known."""
        if self.cost_usd is None or self.without_usd is None:
            return ()
        saved = self.without_usd - self.cost_usd
        if abs(saved) < MIN_SHOWN_USD:
            return ("no money saved yet",)
        return (f"${saved:,.2f} saved" if saved > 0 else f"${-saved:,.2f} lost",)


def count(number: int, what: str) -> str:
    """A number with its noun, in the plural if it is not 1."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


class _Sums:
    """The samples of the metrics at one moment."""

    def __init__(self, metrics: Metrics) -> None:
        families = metrics.collect()
        self._samples = [sample for family in families for sample in family.samples]

    def add(self, name: str, **labels: str) -> float:
        """The sum of all series of this name with these labels."""
        return sum(
            sample.value for sample in self._samples if sample.name == name and labels.items() <= sample.labels.items()
        )


def _add(one: float | None, other: float | None) -> float | None:
    return None if one is None and other is None else (one or 0.0) + (other or 0.0)
