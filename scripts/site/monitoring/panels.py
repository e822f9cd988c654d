"""The panels of the Grafana dashboard, by row: what is asked of the metrics.

`$model` is the dashboard's choice of models, `$__rate_interval` Grafana's own window.
"""

from dataclasses import dataclass

WINDOW = "$__rate_interval"
MODEL = 'model=~"$model"'


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. `queries`: PromQL by legend. `unit`: one of Grafana's. `kind`: `timeseries` or `stat`."""

    title: str
    unit: str
    queries: dict[str, str]
    kind: str = "timeseries"
    stacked: bool = False


def _rate(metric: str, by: str, where: str = MODEL) -> str:
    return f"sum by ({by}) (rate({metric}{{{where}}}[{WINDOW}]))"


def _mean(metric: str) -> str:
    return f"{_rate(f'{metric}_sum', 'model')} / {_rate(f'{metric}_count', 'model')}"


def _quantile(share: float, metric: str, by: str = "model", where: str = MODEL) -> str:
    return f"histogram_quantile({share}, {_rate(f'{metric}_bucket', f'{by}, le', where)})"


def _both(metric: str) -> dict[str, str]:
    """Median and 95th percentile."""
    return {"{{model}} median": _quantile(0.5, metric), "{{model}} 95 %": _quantile(0.95, metric)}


def _sum(metric: str, where: str = MODEL) -> str:
    return f"sum(increase({metric}{{{where}}}[$__range]))"


SAVED_USD = f"{_sum('trimtab_cost_without_usd_total')} - {_sum('trimtab_cost_usd_total')}"
SENT, ORIGINAL = (
    _rate("trimtab_prompt_tokens_total", "model", f'{MODEL}, stage="{one}"') for one in ("sent", "original")
)

ROWS: dict[str, tuple[Panel, ...]] = {
    "Overview": (
        Panel("Saved after all costs", "currencyUSD", {"net": SAVED_USD}, "stat"),
        Panel(
            "Share of prompt tokens removed",
            "percentunit",
            {"removed": f"1 - sum({SENT}) / sum({ORIGINAL})"},
            "stat",
        ),
        Panel("In flight", "short", {"requests": "sum(trimtab_requests_in_flight)"}, "stat"),
        Panel("Version", "short", {"{{version}}": "count by (version) (trimtab_build_info)"}, "stat"),
        Panel(
            "Requests per second", "reqps", {"{{outcome}}": _rate("trimtab_requests_total", "outcome")}, stacked=True
        ),
        Panel(
            "Answered requests, and answers other than 200, per second",
            "reqps",
            {
                "answered": f"sum({_rate('trimtab_answered_requests_total', 'model')})",
                "{{status}} {{outcome}}": _rate("trimtab_requests_total", "status, outcome", f'{MODEL}, status!="200"'),
            },
        ),
    ),
    "Tokens": (
        Panel(
            "Prompt tokens per second: original and sent",
            "short",
            {"{{model}} original": ORIGINAL, "{{model}} sent": SENT},
        ),
        Panel(
            "Sent tokens per second, by section",
            "short",
            {"{{section}}": _rate("trimtab_section_tokens_total", "section", f'{MODEL}, stage="sent"')},
            stacked=True,
        ),
        Panel(
            "Tokens saved per second, by rule",
            "short",
            {"{{rule}}": _rate("trimtab_tokens_saved_total", "rule")},
            stacked=True,
        ),
        Panel("Tokens added per second, by rule", "short", {"{{rule}}": _rate("trimtab_tokens_added_total", "rule")}),
        Panel(
            "Completion tokens per second",
            "short",
            {"{{model}} {{source}}": _rate("trimtab_completion_tokens_total", "model, source")},
        ),
        Panel("Context used", "percentunit", _both("trimtab_context_used_ratio")),
    ),
    "Money": (
        Panel(
            "Dollars per second: paid, and without trimtab",
            "currencyUSD",
            {
                "paid": _rate("trimtab_cost_usd_total", "").replace("sum by () ", "sum"),
                "without trimtab": _rate("trimtab_cost_without_usd_total", "").replace("sum by () ", "sum"),
            },
        ),
        Panel(
            "Dollars per second, by part of the bill",
            "currencyUSD",
            {"{{part}}": _rate("trimtab_cost_usd_total", "part")},
            stacked=True,
        ),
    ),
    "Prompt cache": (
        Panel(
            "Prefix kept, beside the share that the upstream has cached",
            "percentunit",
            {
                "{{model}} kept": _mean("trimtab_prefix_kept_ratio"),
                "{{model}} cached": f"{_rate('trimtab_cached_prompt_tokens_total', 'model')}"
                f" / {_rate('trimtab_cache_reported_tokens_total', 'model')}",
            },
        ),
        Panel(
            "Tokens per second read from and written into the cache",
            "short",
            {
                "{{model}} read": _rate("trimtab_cached_prompt_tokens_total", "model"),
                "{{model}} written": _rate("trimtab_cache_write_tokens_total", "model"),
            },
        ),
        Panel("Misses per second, by cause", "reqps", {"{{cause}}": _rate("trimtab_cache_misses_total", "cause")}),
    ),
    "Cuts and summaries": (
        Panel("Requests with a cut per second", "reqps", {"{{kind}}": _rate("trimtab_cuts_total", "kind")}),
        Panel(
            "Summaries, and sessions that get digests instead, per second",
            "ops",
            {
                "{{result}}": _rate("trimtab_summaries_total", "result"),
                "session without: {{reason}}": _rate("trimtab_sessions_without_summaries_total", "reason"),
            },
        ),
        Panel("Tokens of summaries per second", "short", {"{{kind}}": _rate("trimtab_summary_tokens_total", "kind")}),
        Panel(
            "Duration of calls for summaries, 95th percentile",
            "s",
            {"{{result}}": _quantile(0.95, "trimtab_summary_seconds", "result")},
        ),
    ),
    "Correctness": (
        Panel(
            "Estimate error: the upstream's count divided by trimtab's", "none", _both("trimtab_estimate_error_ratio")
        ),
        Panel(
            "Recoveries from refused prompts per second",
            "ops",
            {"{{model}} {{result}}": _rate("trimtab_overflow_retries_total", "model, result")},
        ),
        Panel("Fail-opens per second", "ops", {"{{phase}}": _rate("trimtab_fail_open_total", "phase", "")}),
        Panel("Store errors per second", "ops", {"{{store}}": _rate("trimtab_store_errors_total", "store", "")}),
        Panel("Recordings per second", "ops", {"{{result}}": _rate("trimtab_recordings_total", "result", "")}),
        Panel(
            "Prompts truncated silently, per second",
            "ops",
            {"{{model}}": _rate("trimtab_silent_truncations_total", "model")},
        ),
        Panel(
            "Learned windows and ratios, repairs, per second",
            "ops",
            {
                "{{model}} {{cause}}": _rate("trimtab_policy_changes_total", "model, cause"),
                "{{model}} repair": _rate("trimtab_repairs_total", "model"),
            },
        ),
    ),
    "Latency": (
        Panel(
            "Time that trimtab adds, 95th percentile",
            "s",
            {"{{phase}}": _quantile(0.95, "trimtab_overhead_seconds", "phase", "")},
        ),
        Panel("Time to the first token", "s", _both("trimtab_time_to_first_token_seconds")),
        Panel("Time at the upstream", "s", _both("trimtab_upstream_seconds")),
        Panel(
            "Output tokens per second, median",
            "short",
            {"{{model}}": _quantile(0.5, "trimtab_output_tokens_per_second")},
        ),
    ),
    "Clients": (
        Panel(
            "Requests per second, by client",
            "reqps",
            {"{{client}} {{outcome}}": _rate("trimtab_client_requests_total", "client, outcome", "")},
        ),
        Panel(
            "Tokens per second, by client",
            "short",
            {"{{client}} {{stage}}": _rate("trimtab_client_tokens_total", "client, stage", "")},
        ),
    ),
    "Process": (
        Panel(
            "Last reload succeeded",
            "bool_yes_no",
            {"{{instance}}": "min by (instance) (trimtab_config_last_reload_successful)"},
            "stat",
        ),
        Panel(
            "Last successful reload",
            "dateTimeFromNow",
            {"{{instance}}": "max by (instance) (trimtab_config_last_reload_success_timestamp_seconds) * 1000"},
            "stat",
        ),
        Panel(
            "Workers: up, and restarts in the last hour",
            "short",
            {
                "{{instance}} up": "sum by (instance) (trimtab_worker_up)",
                "{{instance}} restarts": "sum by (instance) (increase(trimtab_worker_restarts_total[1h]))",
            },
        ),
        Panel(
            "Memory",
            "bytes",
            {"{{instance}} {{worker}}": "process_resident_memory_bytes and on (instance) trimtab_build_info"},
        ),
    ),
}

NOT_SHOWN: dict[str, str] = {}
"""Metrics that no panel shows, each with the reason."""
