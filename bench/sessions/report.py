"""What is said of a contestant at a window.

Law: pure. A ratio is a cost divided by the cost of doing nothing in the same sessions.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ledger import Prices, price, turns
from prompts import count_parts, read_part
from replay import Replayed
from workload import Session


@dataclass(frozen=True, slots=True)
class Window:
    """A context window and what of it is kept for the completion, in tokens."""

    tokens: int
    reserve_tokens: int

    @property
    def limit_tokens(self) -> int:
        """What a prompt may have."""
        return self.tokens - self.reserve_tokens


@dataclass(frozen=True, slots=True)
class Run:
    """What a contestant did with the sessions, and how long it took."""

    contestant: str
    replayed: tuple[Replayed, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Row:
    """A contestant at a window.

    Ratios to doing nothing; of the sessions larger than the window, where it does not say `smaller`. `kept` is the
    share of forwarded tokens (each session's first request aside) at the front of a request that stood at the front of
    the one before; `sent` the share of doing nothing's prompt tokens. `over_limit` are turns larger than window -
    reserve, `over_window` those larger than the window itself, which an upstream would refuse (None: not counted then).
    Counts are of all sessions.
    """

    contestant: str
    window_tokens: int
    reserve_tokens: int
    sessions: int
    larger_sessions: int
    cost: float | None
    cost_with_completions: float | None
    cost_with_cache_writes: float | None
    worst: float | None
    worst_session: str
    smaller_cost: float | None
    smaller_worst: float | None
    smaller_worst_session: str
    kept: float | None
    sent: float | None
    summaries: int
    failed_summaries: int
    over_limit: int
    invalid: int
    refused: int
    requests: int
    seconds: float
    over_window: int | None = None


@dataclass(frozen=True, slots=True)
class _Pair:
    """A session with and without the contestant."""

    done: Replayed
    nothing: Replayed

    def ratio(self, prices: Prices) -> float:
        return price(self.done.calls, prices) / price(self.nothing.calls, prices)


def summarise(run: Run, nothing: Sequence[Replayed], window: Window, prices: Prices, writing: Prices) -> Row:
    """The row of a contestant; sessions that it did not complete count nowhere. `writing` prices cache writes, too."""
    by_id = {one.session.id: one for one in nothing}
    pairs = [_Pair(done, by_id[done.session.id]) for done in run.replayed if done.complete]
    larger = [pair for pair in pairs if _last_tokens(pair.nothing) > window.limit_tokens]
    smaller = [pair for pair in pairs if _last_tokens(pair.nothing) <= window.limit_tokens]
    worst, worst_session = _find_worst(larger, prices)
    smaller_worst, smaller_worst_session = _find_worst(smaller, prices)
    all_turns = [call for pair in pairs for call in turns(pair.done.calls)]
    return Row(
        contestant=run.contestant,
        window_tokens=window.tokens,
        reserve_tokens=window.reserve_tokens,
        sessions=len(pairs),
        larger_sessions=len(larger),
        cost=_total(larger, prices),
        cost_with_completions=_total(larger, prices, with_completions=True),
        cost_with_cache_writes=_total(larger, writing),
        worst=worst,
        worst_session=worst_session,
        smaller_cost=_total(smaller, prices),
        smaller_worst=smaller_worst,
        smaller_worst_session=smaller_worst_session,
        kept=_share_kept(larger),
        sent=_share_sent(larger),
        summaries=sum(call.is_summary for pair in pairs for call in pair.done.calls),
        failed_summaries=sum(pair.done.failed_summaries for pair in pairs),
        over_limit=sum(call.prompt_tokens > window.limit_tokens for call in all_turns),
        invalid=sum(map(_count_invalid, pairs)),
        refused=sum(pair.done.refused for pair in pairs),
        requests=sum(len(pair.done.session.stops) for pair in pairs),
        seconds=run.seconds,
        over_window=sum(call.prompt_tokens > window.tokens for call in all_turns),
    )


def _count_invalid(pair: _Pair) -> int:
    """Turns whose calls and results do not pair, and turns without a user message where the client's had one."""
    unpaired = sum(not call.paired for call in turns(pair.done.calls))
    userless, own = (sum(not call.has_user for call in turns(one.calls)) for one in (pair.done, pair.nothing))
    return unpaired + max(userless - own, 0)


def _last_tokens(nothing: Replayed) -> int:
    return max(call.prompt_tokens for call in nothing.calls)


def _total(pairs: Sequence[_Pair], prices: Prices, *, with_completions: bool = False) -> float | None:
    """The ratio of the sums; None where there is no session."""
    completions = sum(_count_completions(pair.done.session) for pair in pairs) * prices.output * with_completions
    cost = sum(price(pair.done.calls, prices) for pair in pairs) + completions
    nothing = sum(price(pair.nothing.calls, prices) for pair in pairs) + completions
    return cost / nothing if pairs else None


def _count_completions(session: Session) -> int:
    """What the model wrote in a session, in tokens."""
    return sum(count_parts(map(read_part, answer)) for answer in session.answers())


def _find_worst(pairs: Iterable[_Pair], prices: Prices) -> tuple[float | None, str]:
    ratios = [(pair.ratio(prices), pair.done.session.id) for pair in pairs]
    return max(ratios, default=(None, ""))


def _share_kept(pairs: Iterable[_Pair]) -> float | None:
    later = [call for pair in pairs for call in turns(pair.done.calls) if call.kept_tokens is not None]
    tokens = sum(call.prompt_tokens for call in later)
    return sum(call.kept_tokens or 0 for call in later) / tokens if tokens else None


def _share_sent(pairs: Sequence[_Pair]) -> float | None:
    sent, nothing = (
        sum(call.prompt_tokens for pair in pairs for call in turns((pair.done if done else pair.nothing).calls))
        for done in (True, False)
    )
    return sent / nothing if nothing else None
