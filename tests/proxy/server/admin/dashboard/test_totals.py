"""Totals are sums over the metrics."""

from trimtab.proxy.server.admin.dashboard.totals import read_clients, read_models, read_totals
from trimtab.proxy.telemetry.metrics import Metrics
from trimtab.proxy.telemetry.savings import Samples


def make_samples() -> Samples:
    metrics = Metrics()
    for model, status, outcome in (("a", "200", "compacted"), ("a", "200", "broken"), ("b", "400", "refused")):
        metrics.requests[model, "chat", status, outcome] += 1
    metrics.answered["a", "compacted"] += 1
    for result in ("recovered", "refused", "hopeless"):
        metrics.overflow_retries["a", result] += 1
    results = ("made", "prefetched", "hit", "hit", "hit", "joined", "rejected", "failed", "failed", "digest")
    for result in results:
        metrics.summaries["a", result] += 1
    for result in ("written", "written", "rejected", "timed_out", "rejected", "refused"):
        metrics.summary_seconds.observe(("a", result), 1.0)
    for kind in ("prune", "prune", "summarise"):
        metrics.cuts["a", kind] += 1
    metrics.prefix_kept.observe("a", 0.5)
    metrics.prefix_kept.observe("b", 1.0)
    metrics.cost_usd["a", "fresh"] += 2
    metrics.cost_usd["a", "summary"] += 1
    metrics.cost_without_usd["a"] += 7
    metrics.fail_open["plan"] += 3
    metrics.show_in_flight(2)
    metrics.client_tokens["alice", "sent"] += 5
    metrics.client_requests["alice", "compacted"] += 1
    return Samples.of(metrics.collect_all())


def test_totals_add_up_all_models():
    totals = read_totals(make_samples())
    assert (totals["requests"], totals["answered"], totals["failed"], totals["fail_opens"]) == (3, 1, 2, 3)
    assert totals["in_flight"] == 2
    assert (totals["overflow_refusals"], totals["recoveries"]) == (3, 1)
    assert totals["prefix_kept"] == 0.75
    assert (totals["cost_usd"], totals["summary_usd"], totals["net_usd"]) == (3, 1, 4)
    assert totals["cached_share"] is totals["estimate_error"] is None


def test_only_what_was_written_counts_as_a_summary():
    """What was found in the store, refused, or replaced by a digest has its own number."""
    totals = read_totals(make_samples())
    assert [totals[name] for name in ("summaries", "summaries_reused", "digests")] == [2, 4, 1]


def test_of_the_calls_for_summaries_those_failed_that_wrote_none():
    """A cut for which no try gave a summary is no call more. So never more calls have failed than there were."""
    totals = read_totals(make_samples())
    assert (totals["summary_calls"], totals["summaries_failed"]) == (6, 4)


def test_cuts_are_told_by_kind_because_a_request_may_have_two():
    totals = read_totals(make_samples())
    assert [totals[name] for name in ("cuts_pruned", "cuts_summarised", "cuts_digested")] == [2, 1, 0]
    assert "cuts" not in totals


def test_each_model_has_its_own_and_what_has_no_model_is_null():
    first, second = read_models(make_samples())
    assert (first["name"], first["requests"], first["net_usd"], first["prefix_kept"]) == ("a", 2, 4, 0.5)
    assert (second["name"], second["requests"], second["net_usd"]) == ("b", 1, None)
    assert first["fail_opens"] is first["in_flight"] is None


def test_clients_are_told_by_name():
    (client,) = read_clients(make_samples())
    assert client == {"name": "alice", "requests": 1, "original_tokens": 0, "sent_tokens": 5, "completion_tokens": 0}
