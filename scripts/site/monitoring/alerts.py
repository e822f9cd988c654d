"""The alert rules for Prometheus, each with series that make it fire, and series that do not.

Chosen, all thresholds: a first set that stays quiet while everything is well. Users adjust them.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Alert:
    """One rule.

    summary, action: what is wrong, and what to do; `{label}` stands for a label's value.
    fires: series in promtool's notation, one value a minute; after `at` the alert fires, with the labels `told`.
    quiet: series for which it does not.
    """

    name: str
    query: str
    severity: str
    summary: str
    action: str
    fires: dict[str, str]
    quiet: dict[str, str]
    told: dict[str, str] = field(default_factory=dict)
    lasts: str = "0m"
    at: str = "90m"


def _risen(metric: str, by: str, window: str, more_than: int, where: str = "") -> str:
    """More events in a window than this. A series that did not exist before its first event counts, too."""
    series = f"{metric}{where}"
    begun = f"(sum by ({by}) ({series}) unless sum by ({by}) ({series} offset {window}))"
    return f"sum by ({by}) (increase({series}[{window}])) > {more_than} or {begun} > {more_than}"


def _mean(metric: str, window: str = "1h") -> str:
    return f"sum by (model) (rate({metric}_sum[{window}])) / sum by (model) (rate({metric}_count[{window}]))"


LATE = "_x80 "
"""The first 80 minutes without a value."""

ALERTS = (
    Alert(
        "TrimtabDown",
        'up{job="trimtab"} == 0',
        "critical",
        "trimtab does not answer on {instance}",
        "Clients cannot reach their models through it. See the log of the process.",
        {'up{job="trimtab", instance="a"}': "1x80 0x20"},
        {'up{job="trimtab", instance="a"}': "1x100", 'up{job="other", instance="a"}': "0x100"},
        {"job": "trimtab", "instance": "a"},
        lasts="2m",
    ),
    Alert(
        "TrimtabFailOpen",
        _risen("trimtab_fail_open_total", "phase", "15m", 0),
        "warning",
        "a fault of trimtab in phase {phase}",
        "The request went on without that part. The log has the event fail_open with the type of the error.",
        {'trimtab_fail_open_total{phase="plan"}': LATE + "1x20"},
        {'trimtab_fail_open_total{phase="plan"}': "3x100"},
        {"phase": "plan"},
    ),
    Alert(
        "TrimtabPromptsRefused",
        _risen("trimtab_overflow_retries_total", "model", "15m", 3, '{result=~"refused|hopeless"}'),
        "warning",
        "clients get refusals because prompts for {model} are too long",
        "trimtab could not make them short enough. Check the model's context_window and its max_tokens.",
        {'trimtab_overflow_retries_total{model="m", result="refused"}': "0x80 1+1x20"},
        {
            'trimtab_overflow_retries_total{model="m", result="recovered"}': "0+1x100",
            'trimtab_overflow_retries_total{model="m", result="hopeless"}': "0x80 1x20",
        },
        {"model": "m"},
    ),
    Alert(
        "TrimtabPromptsCutShort",
        _risen("trimtab_silent_truncations_total", "model", "1h", 3),
        "warning",
        "the upstream drops a part of prompts for {model}",
        "Set its context_window to what the upstream really reads.",
        {'trimtab_silent_truncations_total{model="m"}': LATE + "5x20"},
        {'trimtab_silent_truncations_total{model="m"}': "5x100"},
        {"model": "m"},
    ),
    Alert(
        "TrimtabEstimatesOff",
        f"({_mean('trimtab_estimate_error_ratio')} > 1.2) or ({_mean('trimtab_estimate_error_ratio')} < 0.8)",
        "warning",
        "token counts for {model} are more than 20 % off",
        "Cuts come too early or too late. Check the key count for this model, and the upstream's usage.",
        {
            'trimtab_estimate_error_ratio_sum{model="m"}': "0+1.3x200",
            'trimtab_estimate_error_ratio_count{model="m"}': "0+1x200",
        },
        {
            'trimtab_estimate_error_ratio_sum{model="m"}': "0+1.1x200",
            'trimtab_estimate_error_ratio_count{model="m"}': "0+1x200",
        },
        {"model": "m"},
        lasts="1h",
        at="150m",
    ),
    Alert(
        "TrimtabSummariesFail",
        _risen("trimtab_summaries_total", "model", "1h", 5, '{result="failed"}'),
        "warning",
        "summaries for {model} fail",
        "Lists that are made without a model replace them. The log has the event summary with each reason.",
        {'trimtab_summaries_total{model="m", result="failed"}': "0x80 1+1x20"},
        {
            'trimtab_summaries_total{model="m", result="made"}': "0+1x100",
            'trimtab_summaries_total{model="m", result="failed"}': "0x80 2x20",
        },
        {"model": "m"},
    ),
    Alert(
        "TrimtabPrefixLost",
        f"{_mean('trimtab_prefix_kept_ratio')} < 0.5",
        "warning",
        "less than half of each prompt for {model} repeats the one before",
        "The upstream's prompt cache cannot work. See the page about cache misses in the documentation.",
        {
            'trimtab_prefix_kept_ratio_sum{model="m"}': "0+0.3x300",
            'trimtab_prefix_kept_ratio_count{model="m"}': "0+1x300",
        },
        {
            'trimtab_prefix_kept_ratio_sum{model="m"}': "0+0.9x300",
            'trimtab_prefix_kept_ratio_count{model="m"}': "0+1x300",
        },
        {"model": "m"},
        lasts="2h",
        at="200m",
    ),
    Alert(
        "TrimtabCostsMore",
        "sum(increase(trimtab_cost_usd_total[1d])) > 1.05 * sum(increase(trimtab_cost_without_usd_total[1d]))",
        "warning",
        "with trimtab, requests cost more than without it",
        "trimtab stats shows for which model. A larger low_water, or mode: observe, stops the loss.",
        {
            'trimtab_cost_usd_total{model="m", part="fresh"}': "0+2x2000",
            'trimtab_cost_without_usd_total{model="m"}': "0+1x2000",
        },
        {
            'trimtab_cost_usd_total{model="m", part="fresh"}': "0+1x2000",
            'trimtab_cost_without_usd_total{model="m"}': "0+1x2000",
        },
        lasts="1h",
        at="1600m",
    ),
    Alert(
        "TrimtabStoreFails",
        _risen("trimtab_store_errors_total", "store", "15m", 0),
        "warning",
        "the store {store} fails",
        "Summaries are kept in memory, and lost at a restart. Check the disk or the Redis server.",
        {'trimtab_store_errors_total{store="redis"}': LATE + "2x20"},
        {'trimtab_store_errors_total{store="redis"}': "2x100"},
        {"store": "redis"},
    ),
    Alert(
        "TrimtabReloadFailed",
        "trimtab_config_last_reload_successful == 0",
        "warning",
        "{instance} could not read its configuration again",
        "The previous one stays in force, until a restart fails. Run trimtab check on the file.",
        {'trimtab_config_last_reload_successful{instance="a"}': "1x80 0x20"},
        {'trimtab_config_last_reload_successful{instance="a"}': "0x60 1x40"},
        {"instance": "a"},
        lasts="1m",
    ),
    Alert(
        "TrimtabWorkersRestart",
        "sum by (instance) (increase(trimtab_worker_restarts_total[1h])) > 2",
        "warning",
        "workers on {instance} die and are started again",
        "Their open requests broke off. The log has the event worker_died with the status or signal.",
        {'trimtab_worker_restarts_total{instance="a", worker="1"}': "0x60 1+1x40"},
        {'trimtab_worker_restarts_total{instance="a", worker="1"}': "0x60 1x40"},
        {"instance": "a"},
    ),
    Alert(
        "TrimtabOverloaded",
        'sum(rate(trimtab_requests_total{status="503", outcome="refused"}[5m])) > 0',
        "warning",
        "requests are refused because there are too many at once",
        "See limits in the configuration, and the page about performance.",
        {'trimtab_requests_total{status="503", outcome="refused"}': "0x60 1+1x40"},
        {
            'trimtab_requests_total{status="503", outcome="refused"}': "4x100",
            'trimtab_requests_total{status="200", outcome="compacted"}': "0+1x100",
        },
        lasts="5m",
    ),
)
