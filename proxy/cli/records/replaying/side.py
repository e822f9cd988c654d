"""The sums of one way of compacting: figures, costs and sessions.

Law: costs are added up for requests that are sent, the same ones in each arm.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from proxy.cli.records.replaying.arms import ARMS, Arms, Paid, Spent
from proxy.cli.records.replaying.carry_out import Carried
from proxy.cli.records.replaying.figures import Figures, add_up
from proxy.cli.records.replaying.told import TOO_LONG, UPSTREAM_REFUSES, Told, ToldSummary
from proxy.state.catalogue.costs import Tokens

WORST_SESSIONS = 5  # chosen: as many as a reader looks at
_DIGITS = 9
"""Decimals of costs: a nanodollar, the smallest amount that the books know."""


@dataclass(slots=True)
class SessionSums:
    """One session. over_window: its requests that were longer than the window, as the client sent them.

    refused: its requests that were refused for their length, by trimtab or by the upstream. costs: by arm, and of
    those `summaries` that are known to be its own.
    """

    name: str
    label: str
    unit: str
    requests: int = 0
    longest_tokens: int = 0
    over_window: int = 0
    refused: int = 0
    costs: dict[str, float] = field(default_factory=lambda: dict.fromkeys(ARMS, 0.0))
    _cuts: set[tuple[int, int]] = field(default_factory=set)

    def note_cut(self, carried: Carried) -> bool:
        """Note the cut of a request; return whether it is a new one."""
        window = carried.planned.plan.window
        cut = (window.cut.at if window.cut is not None else 0, window.prune_stop)
        is_new = any(cut) and cut not in self._cuts
        self._cuts.add(cut)
        return is_new

    def describe(self) -> dict[str, Any]:
        """The session as JSON."""
        return {
            "name": self.name,
            "model": self.label,
            "requests": self.requests,
            "longest_tokens": self.longest_tokens,
            "over_window": self.over_window,
            "refused": self.refused,
            "unit": self.unit,
            "costs": {arm: round(cost, _DIGITS) for arm, cost in self.costs.items()},
        }

    @property
    def loss(self) -> float:
        """The share by which trimtab and its summaries cost more than doing nothing; negative if they save."""
        nothing = self.costs["nothing"]
        return (self.costs["trimtab"] + self.costs.get("summaries", 0.0)) / nothing - 1 if nothing else 0.0


@dataclass(slots=True)
class Side:
    """The sums of one way. name: `recorded`, `log`, or the file of a configuration."""

    name: str
    figures: Figures = field(default_factory=Figures)
    sessions: dict[str, SessionSums] = field(default_factory=dict)
    _arms: Arms = field(default_factory=Arms)
    _costs: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)
    _paid: dict[str, Paid] = field(default_factory=dict)

    def add(self, told: Told, carried: Carried | None, paid: Paid | None, *, session: str, at: float) -> Told:
        """Add a request. Returns what was added, with the share of its prompt that was sent before."""
        if carried is None or paid is None:
            self.figures.add(told)
            return told
        label, compacted = told.label, carried.compacted
        self._paid[label] = paid
        sums = self.sessions.setdefault(session, SessionSums(session, label, paid.unit))
        sums.requests += 1
        sums.longest_tokens = max(sums.longest_tokens, compacted.original_tokens)
        is_over = carried.planned.original.tokens > carried.planned.plan.hard_limit
        sums.over_window += is_over
        sums.refused += told.error == TOO_LONG or told.retry in UPSTREAM_REFUSES
        self.figures.of(label).over_window += is_over
        if told.sent is not None:
            more = self.figures.of(label)
            more.moved_cuts = (more.moved_cuts or 0) + (carried.way.mode == "enforce" and sums.note_cut(carried))
            spent = self._arms.send(session, carried, paid, at=at, completion_tokens=told.completion_tokens or 0)
            self._spend(label, paid.unit, sums, spent)
            if told.prefix_kept is None:
                told = _add_kept(told, spent["trimtab"].kept_share)
        self.figures.add(told)
        return told

    def add_summary(self, told: ToldSummary, session: str = "") -> None:
        """Add a call for a summary. session: empty if it is not known; then no session gets the cost."""
        self.figures.add_summary(told)
        paid = self._paid.get(told.label)
        if paid is not None and told.charged is not None:
            cost = paid.weigh(told.charged)
            self._book(told.label, paid.unit, "summaries", cost)
            if session in self.sessions:
                costs = self.sessions[session].costs
                costs["summaries"] = costs.get("summaries", 0.0) + cost

    def book(self, label: str, paid: Paid, tokens: Tokens) -> None:
        """Add what a request has cost, if only that arm is known."""
        self._book(label, paid.unit, "trimtab", paid.weigh(tokens))

    def describe(self) -> dict[str, Any]:
        """All sums as JSON."""
        models = [self._describe_model(label) for label in self.figures.labels]
        total = add_up(models)
        return {"name": self.name, "models": models, "total": total, "sessions": self._describe_sessions()}

    def sum_costs(self) -> dict[str, float]:
        """The costs by arm over all models with the unit of most of them, for a picture."""
        units = [unit for _, unit in self._costs]
        unit = max(units, key=units.count, default="")
        found = [costs for (_, each), costs in self._costs.items() if each == unit]
        return {arm: sum(costs.get(arm, 0.0) for costs in found) for arm in (*ARMS, "summaries")}

    def _describe_model(self, label: str) -> dict[str, Any]:
        told = self.figures.describe(label)
        of_model = [sums for sums in self.sessions.values() if sums.label == label]
        told["sessions"] = len(of_model)
        told["sessions_over_window"] = count_over(of_model)
        told["sessions_refused"] = sum(sums.refused > 0 for sums in of_model)
        told["costs"] = {
            unit: {arm: round(cost, _DIGITS) for arm, cost in costs.items()}
            for (model, unit), costs in self._costs.items()
            if model == label
        }
        return told

    def _describe_sessions(self) -> dict[str, Any]:
        sessions = self.sessions.values()
        longest = sorted(sessions, key=lambda sums: (-sums.longest_tokens, sums.name))[:WORST_SESSIONS]
        worst = sorted((sums for sums in sessions if sums.loss > 0), key=lambda sums: (-sums.loss, sums.name))
        return {
            "number": len(sessions),
            "over_window": count_over(sessions),
            "longest": [sums.describe() for sums in longest],
            "dearest": [sums.describe() for sums in worst[:WORST_SESSIONS]],
        }

    def _spend(self, label: str, unit: str, sums: SessionSums, spent: dict[str, Spent]) -> None:
        for arm, one in spent.items():
            sums.costs[arm] += one.cost
            self._book(label, unit, arm, one.cost)

    def _book(self, label: str, unit: str, arm: str, cost: float) -> None:
        costs = self._costs.setdefault((label, unit), {})
        costs[arm] = costs.get(arm, 0.0) + cost


def count_over(sessions: Iterable[SessionSums]) -> int:
    """The number of sessions with a request that was longer than the window."""
    return sum(sums.over_window > 0 for sums in sessions)


def _add_kept(told: Told, share: float | None) -> Told:
    return replace(told, prefix_kept=share)
