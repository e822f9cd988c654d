"""Adds up requests that were compacted in one variant: figures by model, sessions, and costs by three strategies.

The strategies are: with trimtab, unchanged, and with a sliding window.

Law: what the metrics count is counted by their own code, so that a replay and /metrics cannot drift apart. All tokens
are the model's own. Costs are added up for requests that are sent, the same ones and by the same rules in each
strategy: the upstream's cache holds what equals the beginning of the session's previous prompt, in whole blocks, for
its lifetime. It misses nothing else, and nobody pushes anybody out.
"""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import inf
from typing import Any

import msgspec
from msgspec import structs

from trimtab.proxy.account.outcome import Outcome
from trimtab.proxy.account.prompt_cache import MIN_CACHED_TOKENS, PreviousRequests, Sent, count_cached
from trimtab.proxy.account.recordings.format import Counted, RecordedCall, Recording
from trimtab.proxy.catalogue.prices import PriceList, Tokens, to_dollars
from trimtab.proxy.compaction.engine import Compaction
from trimtab.proxy.telemetry.metrics import Metrics
from trimtab.proxy.telemetry.savings import Samples
from trimtab.rules.conversation import Conversation, Role, count_leading, starts_step
from trimtab.rules.tokens.sections import Sections

TRIMTAB, NOTHING, SLIDING = STRATEGIES = ("trimtab", "nothing", "sliding")
USD, INPUT_TOKENS = "usd", "input_tokens"
"""Units of costs. A price that is not in dollars is told in the price of one ordinary prompt token."""
_PER_MILLION = 1e-6  # source: prices in dollars are those of a million tokens


class Pricing(msgspec.Struct, frozen=True):
    """How a model's tokens are paid for. lifetime_seconds: of its cache; None if only the server's memory limits it."""

    prices: PriceList
    lifetime_seconds: float | None = None

    @property
    def unit(self) -> str:
        return USD if self.prices.is_in_dollars else INPUT_TOKENS

    def weigh(self, tokens: Tokens) -> float:
        tier = self.prices.at(tokens.prompt)
        cost = tokens.fresh * tier.input + tokens.cached * tier.cached_input
        cost += tokens.written * tier.cache_write + tokens.completion * tier.output
        return cost * _PER_MILLION if self.prices.is_in_dollars else cost / (tier.input or 1.0)

    def imagine(self, prompt_tokens: int, kept_tokens: float, completion_tokens: int) -> Tokens:
        """The tokens of a prompt of which `kept_tokens` at its beginning were sent before."""
        tier, cached = self.prices.at(prompt_tokens), min(count_cached(kept_tokens), prompt_tokens)
        writes = tier.cache_write > tier.input and prompt_tokens >= MIN_CACHED_TOKENS
        return Tokens.of(prompt_tokens, cached, prompt_tokens - cached if writes else 0, completion_tokens)


class RequestCost(msgspec.Struct, frozen=True):
    """What a request costs. kept_share: of the prompt, what equals the previous one; None if not known."""

    tokens: Tokens
    cost: float
    kept_share: float | None


class PromptCaches:
    """The upstream's cache under each strategy. Memory is bounded: sessions that were forgotten begin again."""

    def __init__(self) -> None:
        self._now = 0.0
        self._previous = {strategy: PreviousRequests(lambda: self._now) for strategy in STRATEGIES}

    def send(
        self, session: str, compaction: Compaction, pricing: Pricing, *, at: float, completion_tokens: int
    ) -> dict[str, RequestCost]:
        """What a request costs by each strategy if it is sent at a time, in seconds."""
        self._now, original = max(at, self._now), compaction.planned.original
        request, plan, ratio = compaction.request, compaction.planned.plan, compaction.variant.policy.token_ratio
        prompts = {TRIMTAB: compaction.sent, NOTHING: original, SLIDING: slide_window(original, plan.limit)}
        spent = {}
        for strategy, prompt in prompts.items():
            previous, client = self._previous[strategy], f"{session} {request.model}"
            prefix = previous.observe(client, plan.hashes, Sent(original.messages, prompt, request.fixed)).prefix
            lifetime_seconds = inf if pricing.lifetime_seconds is None else pricing.lifetime_seconds
            is_cold = prefix is None or prefix.pause_seconds > lifetime_seconds
            kept_tokens = 0.0 if prefix is None or is_cold else prefix.kept_tokens * ratio
            tokens = pricing.imagine(round(prompt.tokens * ratio), kept_tokens, completion_tokens)
            kept_share = prefix.kept_share if prefix is not None and prefix.continues else None
            spent[strategy] = RequestCost(tokens, pricing.weigh(tokens), kept_share)
        return spent


def slide_window(conversation: Conversation, limit_tokens: int) -> Conversation:
    """The transcript without its oldest steps, so that it fits. Leading system messages, task and last step stay."""
    tokens = conversation.tokens
    if tokens <= limit_tokens or conversation.continues:
        return conversation
    messages = conversation.messages
    leading = count_leading(messages)
    task = next((at for at in range(leading, len(messages)) if messages[at].role is Role.USER), None)
    head = {*range(leading), task}
    starts = [at for at in range(leading, len(messages)) if starts_step(messages[at])]
    gone: set[int] = set()
    for start, stop in itertools.pairwise(starts):
        if tokens <= limit_tokens:
            break
        step = {at for at in range(start, stop) if at not in head}
        tokens -= sum(messages[at].tokens for at in step)
        gone |= step
    kept = [at for at in range(len(messages)) if at not in gone]
    return replace(
        conversation,
        messages=tuple(messages[at] for at in kept),
        origins=tuple(conversation.origins[at] for at in kept),
    )


SUCCESS_STATUS = 200  # source: the metrics count an answer as such by this status
TOO_LONG = "context_length_exceeded"  # the error of a request that trimtab refuses for its length
UPSTREAM_REFUSES = frozenset({"refused", "hopeless"})
"""What became of a second attempt, if the client got the upstream's refusal. Its savings are not counted."""
UNKNOWN = Outcome("", 0.0, "", "", "", 0, "", 0.0)  # a request of which nothing is known
STAGES = ("original", "sent")
SUMMARIES = "summaries"  # Beside the strategies, the part of the costs that calls for summaries have
WORST_SESSIONS = 5  # chosen: as many as a reader looks at
_DIGITS = 9  # decimals of costs: a nanodollar, the smallest amount that the books know


class RequestFigures(msgspec.Struct, frozen=True):
    """What one request adds to the sums. completion_source: who counted it: `upstream`, `estimated` or `unknown`."""

    event: Outcome
    counted: Counted
    completion_source: str = "upstream"

    @classmethod
    def of(cls, recording: Recording) -> "RequestFigures":
        return cls(recording.event, recording.counted, "estimated" if recording.event.is_estimated else "upstream")

    @property
    def original_tokens(self) -> int:
        return sum(self.event.original_sections) if self.counted.original else 0

    @property
    def sent_tokens(self) -> int:
        return sum(self.event.sent_sections) if self.counted.sent else 0


_COUNTS = (
    "requests", "answered", "refused", "retried", "stand_ins", "over_limit", "over_window", "kept_sum", "kept_number",
)  # fmt: skip
_UNKNOWN = ("moved_cuts", "booked", "without", "summary_booked")
NOTHING_NOTED: Mapping[str, Any] = {**dict.fromkeys(_COUNTS, 0), **dict.fromkeys(_UNKNOWN)}
"""What the metrics do not count, of one model; None is what is not known.

moved_cuts: cuts that were made, each once. stand_ins: of these, the ones for which a digest stands in for a model's
summary. over_window, over_limit: prompts that were longer, as the client sent them. booked and others: nanodollars.
"""


class Figures:
    def __init__(self) -> None:
        self._metrics = Metrics()
        self._noted: dict[str, Mapping[str, Any]] = {}

    def note(self, label: str, **told: Any) -> None:
        """Add what the metrics do not count, of a model."""
        self._noted[label] = _merge(self._noted.get(label, NOTHING_NOTED), told)

    def add(self, figures: RequestFigures) -> None:
        event, counted = figures.event, figures.counted
        label, metrics = event.label, self._metrics
        for stage, tokens in zip(STAGES, (event.original_sections, event.sent_sections), strict=True):
            if counted.sent and any(tokens):  # what failed or was refused saves nothing
                metrics.prompt_tokens[label, stage] += sum(tokens)
                metrics.record_sections(label, stage, Sections(*tokens))
        metrics.record_decisions(label, counted.decisions)
        metrics.record_cache(label, event.cached_tokens, event.written_tokens, "")
        if event.completion_tokens is not None:
            metrics.completion_tokens[label, figures.completion_source] += event.completion_tokens
        has_kept = event.prefix_kept is not None and counted.sent
        self.note(
            label,
            requests=1,
            outcomes={event.outcome: 1},
            answered=int(event.status == SUCCESS_STATUS),
            refused=int(event.error == TOO_LONG),
            retried=int(bool(event.retry)),
            over_limit=int(0 < event.limit_tokens < figures.original_tokens),
            kept_sum=event.prefix_kept if has_kept else 0,
            kept_number=int(has_kept),
            booked=event.cost,
            without=event.without_cost,
        )

    def add_summary(self, call: RecordedCall) -> None:
        for kind, tokens in (("prompt", call.prompt_tokens), ("completion", call.completion_tokens)):
            self._metrics.summary_tokens[call.label, kind] += tokens
        self.note(call.label, summaries={call.result: 1}, summary_booked=call.cost)

    def describe(self) -> list[dict[str, Any]]:
        samples = Samples.of(self._metrics.collect())
        models = [_describe(label, noted, samples) for label, noted in self._noted.items()]
        return sorted(models, key=lambda model: (-model["original_tokens"], model["name"]))


def _describe(label: str, noted: Mapping[str, Any], samples: Samples) -> dict[str, Any]:
    def split(row: str, by: str) -> dict[str, int]:
        series = samples.by_name.get(f"trimtab_{row}_total", ())
        return {has[by]: round(value) for has, value in series if has["model"] == label}

    sections = {
        stage: {
            name: samples.count("section_tokens_total", model=label, section=name, stage=stage)
            for name in Sections._fields
        }
        for stage in STAGES
    }
    results = noted.get("summaries", {})
    return {
        "name": label,
        **{name: noted[name] for name in ("requests", "answered", "refused", "retried")},
        "outcomes": dict(sorted(noted.get("outcomes", {}).items())),
        **{f"{stage}_tokens": samples.count("prompt_tokens_total", model=label, stage=stage) for stage in STAGES},
        "saved_tokens": split("tokens_saved", "rule"),
        "added_tokens": split("tokens_added", "rule"),
        "cuts": split("cuts", "kind"),
        "repairs": samples.count("repairs_total", model=label),
        "sections": sections,
        "completion_tokens": split("completion_tokens", "source"),
        "cached_tokens": samples.count("cached_prompt_tokens_total", model=label),
        "written_tokens": samples.count("cache_write_tokens_total", model=label),
        "summaries": sum(results.values()),
        "summary_results": dict(sorted(results.items())),
        "summary_tokens": split("summary_tokens", "kind"),
        **{name: noted[name] for name in ("moved_cuts", "stand_ins", "over_limit", "over_window")},
        "prefix_kept": round(noted["kept_sum"] / noted["kept_number"], 4) if noted["kept_number"] else None,
        "booked_usd": to_dollars(noted["booked"]),
        "booked_without_usd": to_dollars(noted["without"]),
        "booked_summaries_usd": to_dollars(noted["summary_booked"]),
    }


def add_up(models: list[dict[str, Any]]) -> dict[str, Any]:
    total: dict[str, Any] = {}
    for model in models:
        for name, value in model.items():
            if name not in {"name", "prefix_kept"}:
                total[name] = _merge(total.get(name), value)
    return total


def _merge(left: Any, right: Any) -> Any:
    """The sum of two figures, or of two tables of figures; None is what is not known."""
    if isinstance(left, Mapping) or isinstance(right, Mapping):
        left, right = left or {}, right or {}
        return {name: _merge(left.get(name), right.get(name)) for name in {**left, **right}}
    return right if left is None else left if right is None else left + right


class SessionSums(msgspec.Struct):
    """One session: its requests over the window, those refused for their length, and its costs by strategy."""

    name: str
    label: str
    unit: str
    requests: int = 0
    longest_tokens: int = 0
    over_window: int = 0
    refused: int = 0
    costs: dict[str, float] = msgspec.field(default_factory=lambda: dict.fromkeys(STRATEGIES, 0.0))
    cuts: set[tuple[int, int]] = msgspec.field(default_factory=set)

    def describe(self) -> dict[str, Any]:
        figures = {name: getattr(self, name) for name in ("requests", "longest_tokens", "over_window", "refused")}
        costs = {name: round(cost, _DIGITS) for name, cost in self.costs.items()}
        return {"name": self.name, "model": self.label, **figures, "unit": self.unit, "costs": costs}

    @property
    def loss(self) -> float:
        """The share by which trimtab and its summaries cost uncounted than doing nothing; negative if they save."""
        nothing = self.costs[NOTHING]
        return (self.costs[TRIMTAB] + self.costs.get(SUMMARIES, 0.0)) / nothing - 1 if nothing else 0.0


class VariantSums(msgspec.Struct):
    """The sums of one variant. name: `recorded`, `log`, or the file of a configuration."""

    name: str
    figures: Figures = msgspec.field(default_factory=Figures)
    sessions: dict[str, SessionSums] = {}
    _caches: PromptCaches = msgspec.field(default_factory=PromptCaches)
    _costs: dict[tuple[str, str], dict[str, float]] = {}
    _pricing: dict[str, Pricing] = {}

    def add(
        self,
        figures: RequestFigures,
        compaction: Compaction | None,
        pricing: Pricing | None,
        *,
        session: str,
        at: float,
    ) -> None:
        if compaction is None or pricing is None:
            self.figures.add(figures)
            return
        event, label = figures.event, figures.event.label
        self._pricing[label] = pricing
        sums = self.sessions.setdefault(session, SessionSums(session, label, pricing.unit))
        sums.requests += 1
        sums.longest_tokens = max(sums.longest_tokens, compaction.compacted.original_tokens)
        is_over = compaction.planned.original.tokens > compaction.planned.plan.hard_limit
        sums.over_window += is_over
        self.figures.note(label, over_window=int(is_over))
        sums.refused += event.error == TOO_LONG or event.retry in UPSTREAM_REFUSES
        if figures.counted.sent:
            window = compaction.planned.plan.window
            cut = (window.cut.at if window.cut is not None else 0, window.prune_stop)
            moved = compaction.is_enforced and any(cut) and cut not in sums.cuts
            sums.cuts |= {cut} if compaction.is_enforced else set()
            self.figures.note(label, moved_cuts=int(moved))
            completion_tokens = event.completion_tokens or 0
            spent = self._caches.send(session, compaction, pricing, at=at, completion_tokens=completion_tokens)
            for strategy, one in spent.items():
                sums.costs[strategy] += one.cost
                self._book(label, pricing.unit, strategy, one.cost)
            if event.prefix_kept is None:
                event = structs.replace(event, prefix_kept=spent[TRIMTAB].kept_share)
                figures = structs.replace(figures, event=event)
        self.figures.add(figures)

    def add_summary(self, call: RecordedCall, session: str = "") -> None:
        """Add a call for a summary. session: empty if it is not known; then no session gets the cost."""
        self.figures.add_summary(call)
        pricing = self._pricing.get(call.label)
        if pricing is not None and call.charged is not None:
            cost = pricing.weigh(call.charged)
            self._book(call.label, pricing.unit, SUMMARIES, cost)
            if session in self.sessions:
                costs = self.sessions[session].costs
                costs[SUMMARIES] = costs.get(SUMMARIES, 0.0) + cost

    def book(self, label: str, pricing: Pricing, tokens: Tokens) -> None:
        self._book(label, pricing.unit, TRIMTAB, pricing.weigh(tokens))

    def describe(self) -> dict[str, Any]:
        models = self.figures.describe()
        for model in models:
            label = model["name"]
            of_model = [sums for sums in self.sessions.values() if sums.label == label]
            model["sessions"] = len(of_model)
            model["sessions_over_window"] = _count_over(of_model)
            model["sessions_refused"] = sum(sums.refused > 0 for sums in of_model)
            model["costs"] = {
                unit: {name: round(cost, _DIGITS) for name, cost in costs.items()}
                for (name, unit), costs in self._costs.items()
                if name == label
            }
        sessions = self.sessions.values()
        longest = sorted(sessions, key=lambda sums: (-sums.longest_tokens, sums.name))[:WORST_SESSIONS]
        worst = sorted((sums for sums in sessions if sums.loss > 0), key=lambda sums: (-sums.loss, sums.name))
        told = {
            "number": len(sessions),
            "over_window": _count_over(sessions),
            "longest": [sums.describe() for sums in longest],
            "dearest": [sums.describe() for sums in worst[:WORST_SESSIONS]],
        }
        return {"name": self.name, "models": models, "total": add_up(models), "sessions": told}

    def sum_costs(self) -> dict[str, float]:
        units = [unit for _, unit in self._costs]
        unit = max(units, key=units.count, default="")
        found = [costs for (_, each), costs in self._costs.items() if each == unit]
        return {name: sum(costs.get(name, 0.0) for costs in found) for name in (*STRATEGIES, SUMMARIES)}

    def _book(self, label: str, unit: str, name: str, cost: float) -> None:
        costs = self._costs.setdefault((label, unit), {})
        costs[name] = costs.get(name, 0.0) + cost


def _count_over(sessions: Iterable[SessionSums]) -> int:
    return sum(sums.over_window > 0 for sums in sessions)
