"""The result of a case: a row of figures, and the goals of issue 16 beside it.

Law: a ratio compares a case with doing nothing in the same sessions. A figure is about the sessions larger than the
window, unless its name contains `smaller` or `all`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from bench.material.workload import Session
from bench.retention.needed.cases import PRICES, TRIMTAB, Case
from bench.retention.needed.measure import Measured
from bench.retention.needed.tally import CLASSES, sum_tallies
from bench.sessions.ledger import turns
from bench.sessions.replaying.replay import Replayed
from bench.sessions.report import Run, summarise


@dataclass(frozen=True, slots=True)
class Row:
    """A case and its figures. Shares are None if they would divide by zero.

    `prefix_kept` is a share of forwarded tokens; `retained_tokens` is the mean prompt. `kept_decoded` is
    of Measured.decoded. `rereads` are calls of the
    recording that repeat one whose result was removed, out of `answered_calls`. `refused` and `failed_summaries` are of
    all sessions. `by_class` has (kept, recalled, needed) each.
    """

    label: str
    contestant: str
    summariser: str
    settings: tuple[str, ...]
    size: int | None
    window_tokens: int
    reserve_tokens: int
    larger_sessions: int
    cost: float | None
    worst: float | None
    worst_session: str
    smaller_cost: float | None
    smaller_worst: float | None
    smaller_worst_session: str
    prefix_kept: float | None
    kept: float | None
    kept_decoded: float | None
    recalled: float | None
    all_kept: float | None
    all_recalled: float | None
    needed: int
    removed: int
    retained_tokens: float | None
    rereads: int
    answered_calls: int
    all_rereads: int
    summaries: int
    refused: int
    by_class: Mapping[str, tuple[float | None, float | None, int]]


def make_row(case: Case, done: Sequence[Measured], nothing: Sequence[Measured], sessions: Sequence[Session]) -> Row:
    """The row of a case on these sessions; `nothing` is doing nothing on the same sessions, in the same order."""
    window = case.window
    paid = summarise(Run(case.label, _replay(done, sessions), 0.0), _replay(nothing, sessions), window, PRICES, PRICES)
    whole = [(one, bare) for one, bare in zip(done, nothing, strict=True) if one.complete]
    larger = [one for one, bare in whole if is_larger(bare, window.limit_tokens)]
    tally, everything = sum_tallies(one.tally for one in larger), sum_tallies(one.tally for one, _ in whole)
    return Row(
        label=case.label,
        contestant=case.contestant,
        summariser=case.summariser,
        settings=case.settings,
        size=case.size,
        window_tokens=window.tokens,
        reserve_tokens=window.reserve_tokens,
        larger_sessions=paid.larger_sessions,
        cost=paid.cost,
        worst=paid.worst,
        worst_session=paid.worst_session,
        smaller_cost=paid.smaller_cost,
        smaller_worst=paid.smaller_worst,
        smaller_worst_session=paid.smaller_worst_session,
        prefix_kept=paid.kept,
        kept=tally.share_kept(),
        kept_decoded=sum_tallies(one.decoded for one in larger).share_kept(),
        recalled=tally.share_recalled(),
        all_kept=everything.share_kept(),
        all_recalled=everything.share_recalled(),
        needed=tally.needed.total(),
        removed=tally.removed.total(),
        retained_tokens=mean_tokens(larger),
        rereads=sum(one.rereads for one in larger),
        answered_calls=sum(one.answered_calls for one in larger),
        all_rereads=sum(one.rereads for one in done),
        summaries=paid.summaries,
        refused=sum(one.refused for one in done),
        by_class={kind: (tally.share_kept(kind), tally.share_recalled(kind), tally.needed[kind]) for kind in CLASSES},
    )


def is_larger(nothing: Measured, limit_tokens: int) -> bool:
    """Whether a session that is sent unchanged grows beyond a limit."""
    return max(call.prompt_tokens for call in nothing.calls) > limit_tokens


def mean_tokens(done: Iterable[Measured]) -> float | None:
    """The mean prompt of the client's own requests."""
    tokens = [call.prompt_tokens for one in done for call in turns(one.calls)]
    return fmean(tokens) if tokens else None


def _replay(done: Sequence[Measured], sessions: Sequence[Session]) -> tuple[Replayed, ...]:
    pairs = zip(sessions, done, strict=True)
    return tuple(Replayed(session, one.calls, one.refused, complete=one.complete) for session, one in pairs)


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal of issue 16: a maximum or a minimum of a row's figure, for each window in `bounds`."""

    economy: str
    figure: str
    bounds: Mapping[int, float]
    is_ceiling: bool

    def judge(self, row: Row) -> str | None:
        """The goal and what was reached; None if it is not about this row."""
        bound = self.bounds.get(row.window_tokens)
        if bound is None or self.economy != find_economy(row.settings):
            return None
        value: float | None = getattr(row, self.figure)
        if value is None:
            return f"{self.figure}: no session"
        is_met = value <= bound if self.is_ceiling else value >= bound
        sign = "<=" if self.is_ceiling else ">="
        return f"{self.figure} {value:.3f} {sign} {bound:g}: {'met' if is_met else 'MISSED'}"


def find_economy(settings: Iterable[str]) -> str:
    """The economy that settings ask for, or the default."""
    named = [value for key, _, value in (setting.partition("=") for setting in settings) if key.endswith("economy")]
    return named[-1] if named else "balanced"


def _at(small: float | None, *others: float) -> dict[int, float]:
    """Bounds at 16k (if there is one), and at 32k, 64k and 128k."""
    large = zip((32_000, 64_000, 128_000), others, strict=True)
    return dict(large) if small is None else {16_000: small, **dict(large)}


GOALS = (
    Goal("balanced", "cost", _at(None, 0.335, 0.36, 0.41), is_ceiling=True),
    Goal("balanced", "kept", _at(0.95, 0.965, 0.98, 0.985), is_ceiling=False),
    Goal("balanced", "recalled", _at(0.72, 0.75, 0.72, 0.70), is_ceiling=False),
    Goal("balanced", "prefix_kept", _at(None, 0.93, 0.93, 0.93), is_ceiling=False),
    Goal("balanced", "worst", _at(1.0, 1.0, 1.0, 1.0), is_ceiling=True),
    Goal("balanced", "smaller_cost", _at(0.92, 0.92, 0.92, 0.92), is_ceiling=True),
    Goal("balanced", "smaller_worst", _at(1.05, 1.05, 1.05, 1.05), is_ceiling=True),
    Goal("frugal", "cost", _at(None, 0.28, 0.28, 0.28), is_ceiling=True),
    Goal("frugal", "kept", _at(None, 0.955, 0.965, 0.97), is_ceiling=False),
    Goal("frugal", "smaller_worst", _at(1.10, 1.10, 1.10, 1.10), is_ceiling=True),
)
"""With the canned summariser. Source: issue 16, "It is done when". It names no window for the last three bounds of
balanced and for the last of frugal, so they are judged at each window."""


def judge(row: Row) -> Iterator[str]:
    """The goals for a row, each with "met" or "MISSED"."""
    if row.contestant == TRIMTAB and row.summariser == "canned":
        for goal in GOALS:
            told = goal.judge(row)
            if told is not None:
                yield told
