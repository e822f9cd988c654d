"""What the table of metrics lacks: the values of labels, and queries in PromQL."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Query:
    """A question and the PromQL that answers it."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Label:
    """The values of a label of one metric; of every metric that has the label if `metric` is None."""

    name: str
    metric: str | None
    values: str


LABELS = (
    Label(
        "model",
        None,
        "The glob in `models` that matches the request's model. If none matches: the model's name, after an upstream"
        " has answered for it with success; before that `other`. At most 50 names become labels.",
    ),
    Label(
        "endpoint",
        None,
        "The API: `chat`, `responses`, `messages`; `embeddings`, `models` and `completions`, which trimtab does not"
        " compact; `compact`, the [endpoint](compact-api.md) of trimtab's own, with `/v1/compress` and `/v1/retrieve`;"
        " `other` for any other path.",
    ),
    Label("status", None, "The HTTP status that the client received."),
    Label(
        "outcome",
        None,
        "`unchanged`; `compacted`; `cache_help` (only something for the [provider's prompt"
        " cache](../explanation/prompt-cache.md) was added); `recall` (only what"
        " [fetches back](../guides/recall.md) was added); `observe` or `off` (the mode); `passed` (a path that"
        " trimtab does not compact);"
        " `undecodable` (the body is no request of the API; forwarded unchanged); `too_large` (the same for a body that"
        " is too large); `refused` (by trimtab); `limited` (by trimtab, because the client has reached its own limit);"
        " `busy` (forwarded unchanged because no thread was free in time);"
        " `failed_open` (forwarded unchanged after a fault of trimtab); `broken` (the answer broke off); `aborted`"
        " (the client closed its connection, or trimtab was stopped).",
    ),
    Label(
        "section",
        None,
        "`system`, `summary`, `memory`, `recent`, `current`: see [the ledger](../explanation/ledger.md#sections).",
    ),
    Label("client", None, "The client's name in `client_keys`. Clients without a name have no series here."),
    Label(
        "stage",
        None,
        "`original`: the prompt as the client sent it; `sent`: as forwarded; `completion`: what the model wrote"
        " (only in `trimtab_client_tokens_total`).",
    ),
    Label(
        "rule",
        None,
        "The rule that changed the request: `drop_tools`, `truncate_system`, `tidy`, `truncate`, `shorten`,"
        " `truncate_users`, `memory`, `dedupe`, `images`, `prune`, `arguments`, `summarise`, `digest`, `pin`,"
        " `pairing`, `exceeded`. With 0 tokens, what was added for the provider's prompt cache: `cache_key`,"
        " `cache_breakpoint`, `cache_control`.",
    ),
    Label("source", None, "`upstream`: as the upstream reported it; `estimated`: counted from the answer."),
    Label(
        "cause",
        "trimtab_cache_misses_total",
        "`cut` (trimtab changed the beginning of the prompt); `prefix` (the client changed it); `expired` (the pause"
        " was longer than the cache's lifetime); `cold` (a session's first request); `unknown`. See [the prompt"
        " cache](../explanation/cache-misses.md).",
    ),
    Label(
        "cause",
        "trimtab_policy_changes_total",
        "`calibration`: the token ratio changed; `window`: the context window changed.",
    ),
    Label(
        "result",
        "trimtab_overflow_retries_total",
        "`recovered`; `refused` (the second attempt was refused, too); `failed` (it met another error); `aborted`"
        " (the client closed its connection); `hopeless` (trimtab could not make the request shorter).",
    ),
    Label(
        "result",
        "trimtab_summaries_total",
        "`hit` (found in the store); `prefetched` (written in the background); `made` (written while the request"
        " waited); `joined` (the request waited for a call that another one had begun); `rejected` (an answer was not a"
        " summary; another try may have followed); `failed` (no try gave a summary); `digest` (the cut got a digest"
        " instead). A summary may take several calls: see `trimtab_summary_seconds`.",
    ),
    Label(
        "result",
        "trimtab_summary_seconds",
        "Each call counts once. A transcript that does not fit into one question is read in parts: a `written` call for"
        " each, at most 8, and one summary. `written`; `rejected` (the answer was not a summary);"
        " `empty` (no text, or a tool call); `refused` (a status"
        " other than 200); `busy` (429, 503, 529); `failed` (no readable answer); `timed_out`; `cancelled` (the process"
        " ended).",
    ),
    Label(
        "reason",
        "trimtab_sessions_without_summaries_total",
        "The result of the newest call that failed (see `trimtab_summary_seconds`); `sliding` (the client drops its"
        " oldest messages); `not_ready` (no summary was ready in time, or the reason is no longer known).",
    ),
    Label(
        "result",
        "trimtab_recordings_total",
        "`written`; `dropped` (too many waited, or it is larger than `record.max_bytes`); `failed` (the folder cannot"
        " be written, or there was a fault).",
    ),
    Label(
        "phase",
        "trimtab_fail_open_total",
        "`read`, `plan`, `summary`, `apply`: the original was forwarded. `cache`: nothing was added for the provider's"
        " prompt cache. `recover`: the client received the upstream's refusal."
        " `count`, `write_ahead`, `observe`, `bill`: the fault came after the request was sent."
        " `tell`: the dashboard lacks the request or its text. `record`: the recordings lack it.",
    ),
    Label("phase", "trimtab_overhead_seconds", "`plan`, `summary`, `apply`."),
    Label("kind", "trimtab_summary_tokens_total", "`prompt` or `completion` tokens of the call."),
    Label(
        "kind",
        "trimtab_cuts_total",
        "`prune`: tool results before the cut were pruned; `summarise`: a model's summary replaces the"
        " messages; `digest`: a digest replaces them.",
    ),
    Label(
        "part",
        "trimtab_cost_usd_total",
        "`fresh`, `cached`, `written`: prompt tokens that the upstream read as new, from its cache, or wrote into it;"
        " `completion`; `summary`: all calls for summaries, also those that failed after an answer.",
    ),
    Label("store", None, "`sqlite`, `redis`."),
)

QUERIES = (
    Query("Requests per second, by outcome", "sum by (outcome) (rate(trimtab_requests_total[5m]))"),
    Query(
        "Forwarded prompt tokens per day, by client",
        'sum by (client) (increase(trimtab_client_tokens_total{stage="sent"}[1d]))',
    ),
    Query(
        "The share of prompt tokens that trimtab removed, without requests that it refused (their tokens are in "
        "`original`, not in `sent`)",
        '1 - sum(rate(trimtab_prompt_tokens_total{stage="sent"}[1h])) / (\n'
        '  sum(rate(trimtab_prompt_tokens_total{stage="sent"}[1h]))\n'
        "  + (sum(rate(trimtab_tokens_saved_total[1h])) or vector(0))\n"
        "  - (sum(rate(trimtab_tokens_added_total[1h])) or vector(0))\n"
        ")",
    ),
    Query("Prompt tokens saved per day, by rule", "sum by (rule) (increase(trimtab_tokens_saved_total[1d]))"),
    Query(
        "The time that planning adds to a request, 95th percentile",
        'histogram_quantile(0.95, sum by (le) (rate(trimtab_overhead_seconds_bucket{phase="plan"}[5m])))',
    ),
    Query(
        "The time to the first token by model, 95th percentile",
        "histogram_quantile(0.95, sum by (le, model) (rate(trimtab_time_to_first_token_seconds_bucket[5m])))",
    ),
    Query(
        "The median share of a prompt that the upstream's prompt cache can reuse, by model",
        "histogram_quantile(0.5, sum by (le, model) (rate(trimtab_prefix_kept_ratio_bucket[1h])))",
    ),
    Query(
        "Prompt tokens per day that the upstream did read from its prompt cache, by model",
        "sum by (model) (increase(trimtab_cached_prompt_tokens_total[1d]))",
    ),
    Query(
        "Requests in the last hour that missed the upstream's prompt cache, by cause",
        "sum by (model, cause) (increase(trimtab_cache_misses_total[1h]))",
    ),
    Query(
        "Dollars saved in the last day, net of summaries and broken caches; a loss is negative",
        "sum(increase(trimtab_cost_without_usd_total[1d])) - sum(increase(trimtab_cost_usd_total[1d]))",
    ),
    Query(
        "Faults inside trimtab in the last hour, by phase; this should be 0",
        "sum by (phase) (increase(trimtab_fail_open_total[1h]))",
    ),
    Query(
        "Requests in the last hour that the upstream refused as too long, by result",
        "sum by (result) (increase(trimtab_overflow_retries_total[1h]))",
    ),
    Query(
        "Summaries in the last hour, by how they were obtained",
        "sum by (result) (increase(trimtab_summaries_total[1h]))",
    ),
    Query(
        "Failures of the store in the last hour; this should be 0",
        "sum by (store) (increase(trimtab_store_errors_total[1h]))",
    ),
)
