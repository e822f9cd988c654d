"""What was saved, in a few figures."""

import pytest

from trimtab.proxy.telemetry.metrics import Metrics
from trimtab.proxy.telemetry.savings import Savings
from trimtab.rules.conversation import Decision


def fill_metrics() -> Metrics:
    metrics = Metrics()
    for model, original, sent in (("a", 1000, 400), ("b", 500, 500)):
        metrics.requests[model, "chat", "200", "compacted"] += 2
        metrics.prompt_tokens[model, "original"] += original
        metrics.prompt_tokens[model, "sent"] += sent
    metrics.requests["a", "other", "200", "passed"] += 7
    metrics.record_decisions("a", [Decision("prune", "old", 10, 5, 1, 1), Decision("truncate", "long", 10, 5, 1, 1)])
    metrics.overflow_retries["a", "recovered"] += 1
    metrics.overflow_retries["a", "refused"] += 1
    metrics.fail_open["plan"] += 1
    metrics.summary_tokens["a", "prompt"] += 90
    metrics.summary_tokens["a", "completion"] += 9
    metrics.cost_usd["a", "fresh"] += 0.25
    metrics.cost_usd["a", "summary"] += 0.5
    metrics.cost_without_usd["a"] += 2
    return metrics


def test_every_figure_is_a_sum_over_the_metrics() -> None:
    assert Savings.read(fill_metrics()) == Savings(4, 0, 1500, 900, 1, 0, 0, 1, 1, 99, 0.75, 2.0)


def test_two_proxies_together_are_the_sum_of_both() -> None:
    other = Metrics()
    other.requests["a", "chat", "200", "compacted"] += 1
    other.cuts["a", "prune"] += 2
    assert Savings.read(fill_metrics(), other) == Savings(5, 0, 1500, 900, 3, 0, 0, 1, 1, 99, 0.75, 2.0)


@pytest.mark.parametrize(
    ("savings", "told"),
    [
        (Savings(1, 0, 1234, 1234), "1 request, 1,234 prompt tokens, all sent"),
        (Savings.read(Metrics()), "0 requests, 0 prompt tokens, all sent"),
        (
            Savings(41, 0, 1_234_000, 401_222, cost_usd=0.41, without_usd=1.64),
            "41 requests, 1,234,000 → 401,222 prompt tokens (67% fewer), $1.23 saved",
        ),
        (
            Savings(2, 0, 1000, 1100, cost_usd=0.9, without_usd=0.5),
            "2 requests, 1,000 → 1,100 prompt tokens (10% more), $0.40 lost",
        ),
        (
            Savings(2, 0, 1000, 999, cost_usd=0.5, without_usd=0.501),
            "2 requests, 1,000 → 999 prompt tokens (0% fewer), no money saved yet",
        ),
        (Savings(3, 3), "3 requests, 3 of them failed (100%)"),
        (Savings(3, 1, 1000, 500), "3 requests, 1 of them failed (33%), 1,000 → 500 prompt tokens (50% fewer)"),
    ],
)
def test_a_loss_is_told_like_a_gain(savings: Savings, told: str) -> None:
    assert savings.describe() == told


def test_errors_and_answers_that_broke_off_have_failed() -> None:
    metrics = Metrics()
    outcomes = [("200", "compacted"), ("200", "broken"), ("502", "compacted"), ("0", "aborted"), ("500", "passed")]
    for status, outcome in outcomes:
        metrics.requests["m", "chat", status, outcome] += 1
    savings = Savings.read(metrics)
    assert (savings.failed, savings.requests) == (2, 4)


def test_cuts_are_told_by_kind() -> None:
    """A request may be pruned and have a summary, so a sum would count it twice."""
    told = ("requests with a cut: 3 pruned, 2 with a summary, 1 with a digest",)
    assert Savings(pruned=3, summarised=2, digested=1).describe_cuts() == told
    assert (Savings().describe_cuts(), Savings(pruned=3).describe_cuts()) == ((), ("requests with a cut: 3 pruned",))
