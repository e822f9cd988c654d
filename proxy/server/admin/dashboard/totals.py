"""Totals of all requests, read from the metrics.

Law: every number is a sum over series of the metrics page, or the mean of one of its histograms.
"""

from collections.abc import Mapping
from typing import Any

from trimtab.proxy.telemetry.savings import Samples

Json = dict[str, Any]
_NOT_BY_MODEL = ("fail_opens", "in_flight")
SUMMARIES: Mapping[str, tuple[str, ...]] = {
    "summaries": ("made", "prefetched"),
    "summaries_reused": ("hit", "joined"),
    "digests": ("digest",),
}
"""The results that each number of summaries adds up. Source: docs/reference/metrics.md."""
CUTS = {"cuts_pruned": "prune", "cuts_summarised": "summarise", "cuts_digested": "digest"}
"""The kind of each number of cuts. A request may have cuts of two kinds, so no sum of them counts requests."""


def read_totals(samples: Samples) -> Json:
    whole = _read(samples)
    return whole | {
        "fail_opens": samples.count("fail_open_total"),
        "in_flight": samples.count("requests_in_flight"),
    }


def read_models(samples: Samples) -> list[Json]:
    """The totals of each model, most requests first. Faults and requests in flight have no model: they are None."""
    names = samples.list_values("requests_total", "model")
    models = [{"name": name} | _read(samples, model=name) | dict.fromkeys(_NOT_BY_MODEL) for name in names]
    return sorted(models, key=lambda one: -one["requests"])


def read_clients(samples: Samples) -> list[Json]:
    """The totals of each client that has a name, most requests first."""
    clients = []
    for name in samples.list_values("client_requests_total", "client"):
        stages = {
            f"{stage}_tokens": samples.count("client_tokens_total", client=name, stage=stage)
            for stage in ("original", "sent", "completion")
        }
        clients.append({"name": name, "requests": samples.count("client_requests_total", client=name)} | stages)
    return sorted(clients, key=lambda one: -one["requests"])


def _read(samples: Samples, **of: str) -> Json:
    count = samples.count
    calls = count("summary_seconds_count", **of)
    cached_tokens, reported = count("cached_prompt_tokens_total", **of), count("cache_reported_tokens_total", **of)
    return {
        "requests": count("requests_total", **of),
        "failed": samples.count_failed(**of),
        "answered": count("answered_requests_total", **of),
        "original_tokens": count("prompt_tokens_total", stage="original", **of),
        "sent_tokens": count("prompt_tokens_total", stage="sent", **of),
        "saved_tokens": count("tokens_saved_total", **of),
        "added_tokens": count("tokens_added_total", **of),
        "completion_tokens": count("completion_tokens_total", **of),
        "cached_tokens": cached_tokens,
        "written_tokens": count("cache_write_tokens_total", **of),
        "summary_prompt_tokens": count("summary_tokens_total", kind="prompt", **of),
        "summary_completion_tokens": count("summary_tokens_total", kind="completion", **of),
        "summary_calls": calls,
        "summaries_failed": calls - count("summary_seconds_count", result="written", **of),
        **_read_money(samples, **of),
        "prefix_kept": samples.mean("prefix_kept_ratio", **of),
        "cached_share": cached_tokens / reported if reported else None,
        "estimate_error": samples.mean("estimate_error_ratio", **of),
        **_sort_summaries(samples, **of),
        "sessions_without_summaries": count("sessions_without_summaries_total", **of),
        **{name: count("cuts_total", kind=kind, **of) for name, kind in CUTS.items()},
        "recoveries": count("overflow_retries_total", result="recovered", **of),
        "overflow_refusals": count("overflow_retries_total", **of),
    }


def _sort_summaries(samples: Samples, **of: str) -> Json:
    """Summaries by what became of them. Only those that were written count as summaries."""
    return {
        name: sum(samples.count("summaries_total", result=result, **of) for result in results)
        for name, results in SUMMARIES.items()
    }


def _read_money(samples: Samples, **of: str) -> Json:
    """Money in dollars; None if no price is known."""
    summary, cost = samples.sum("cost_usd_total", part="summary", **of), samples.sum("cost_usd_total", **of)
    without = samples.sum("cost_without_usd_total", **of)
    if not cost and not without:
        return dict.fromkeys(("cost_usd", "without_usd", "summary_usd", "net_usd"))
    return {"cost_usd": cost, "without_usd": without, "summary_usd": summary, "net_usd": without - cost}
