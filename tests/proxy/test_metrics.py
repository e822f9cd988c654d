"""Every collector."""

from prometheus_client.parser import text_string_to_metric_families

from proxy.metrics import MAX_MODEL_LABELS, OTHER, Metrics
from rules.conversation import Decision

NAMES = {
    "trimtab_requests": ("model", "endpoint", "status", "outcome"),
    "trimtab_prompt_tokens": ("model", "stage"),
    "trimtab_tokens_saved": ("model", "rule"),
    "trimtab_tokens_added": ("model", "rule"),
    "trimtab_completion_tokens": ("model", "source"),
    "trimtab_requests_in_flight": (),
    "trimtab_context_used_ratio": ("model",),
    "trimtab_estimate_error_ratio": ("model",),
    "trimtab_fail_open": ("phase",),
    "trimtab_summaries": ("model", "result"),
    "trimtab_summary_tokens": ("model", "kind"),
    "trimtab_summary_seconds": ("model", "result"),
    "trimtab_cuts": ("model", "kind"),
    "trimtab_overhead_seconds": ("phase",),
    "trimtab_time_to_first_token_seconds": ("model",),
    "trimtab_upstream_seconds": ("model",),
    "trimtab_output_tokens_per_second": ("model",),
}


def _samples(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    """The values of one counter that are not zero, by their labels."""
    families = {family.name: family for family in text_string_to_metric_families(metrics.render().decode())}
    return {
        tuple(sample.labels[label] for label in NAMES[name]): sample.value
        for sample in families[name].samples
        if sample.name.endswith("_total") and sample.value
    }


def test_names_and_labels_are_as_promised() -> None:
    """Dashboards and alerts are written against them."""
    registered = {family.name for family in Metrics().registry.collect()}
    collectors = [value for value in vars(Metrics()).values() if hasattr(value, "_labelnames")]

    assert NAMES.keys() <= registered
    labels = {collector._name: collector._labelnames for collector in collectors}
    assert {name: labels[name] for name in NAMES} == NAMES


def test_two_proxies_do_not_share_their_figures() -> None:
    """Each has a registry of its own."""
    first, second = Metrics(), Metrics()
    first.fail_open.labels("plan").inc()

    assert (_samples(first, "trimtab_fail_open"), _samples(second, "trimtab_fail_open")) == ({("plan",): 1.0}, {})


def test_a_model_is_named_only_when_vouched_for() -> None:
    """The glob that it matches goes first; a name that no upstream has answered for is `other`."""
    metrics = Metrics()
    metrics.vouch_for("known")
    metrics.vouch_for("")

    labels = [
        metrics.label_model(*case) for case in (("known", None), ("unknown", None), ("", None), ("qwen3", "qwen*"))
    ]
    assert labels == ["known", OTHER, OTHER, "qwen*"]


def test_no_client_can_blow_up_the_labels() -> None:
    """After fifty names all others are `other`, and the fifty keep theirs."""
    metrics = Metrics()
    names = [f"model-{number}" for number in range(200)]
    for name in names:
        metrics.vouch_for(name)

    assert [metrics.label_model(name, None) for name in names] == [
        *names[:MAX_MODEL_LABELS],
        *[OTHER] * (len(names) - MAX_MODEL_LABELS),
    ]


def test_decisions_are_counted_by_rule() -> None:
    """Saved and added tokens apart, both as they are; only cuts count as cuts."""
    metrics = Metrics()
    metrics.record_decisions(
        "m",
        [
            Decision("truncate", "", 100, 40, 2, 3),
            Decision("pairing", "", 100, 108, 1, 3),
            Decision("prune", "", 100, 90, 1, 3),
            Decision("digest", "", 90, 30, 9, 1),
            Decision("summarise", "", 80, 30, 9, 1),
        ],
    )

    saved = {("m", "truncate"): 60, ("m", "prune"): 10, ("m", "digest"): 60, ("m", "summarise"): 50}
    assert _samples(metrics, "trimtab_tokens_saved") == saved
    assert _samples(metrics, "trimtab_tokens_added") == {("m", "pairing"): 8}
    assert _samples(metrics, "trimtab_cuts") == {("m", "prune"): 1, ("m", "digest"): 1, ("m", "summarise"): 1}
