"""Computes what the calls of a session cost at an upstream that caches prompts. Pure.

A call costs

    input x fresh + cached_input x cached + cache_write x written + output x completion

tokens. *Cached* is what the upstream read from its cache, *written* what it newly wrote into it, *fresh* the rest of
the prompt. How it caches is one of the kinds in `caches/`. Calls for summaries count, too. Time is what the caller says
it is: without gaps all turns are at once, and nothing expires.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from bench.sessions.caches.cache import Cache, CacheKind
from bench.sessions.marks import NO_MARKS, Marks
from bench.sessions.prompts import Part, count_common_text, count_parts, is_paired


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a token, in one unit. `longer` are the prices of prompts with more than so many tokens, ascending."""

    input: float = 1.0
    cached_input: float = 0.1
    output: float = 4.0
    cache_write: float = 1.0
    longer: tuple[tuple[int, "Prices"], ...] = ()

    def at(self, prompt_tokens: int) -> "Prices":
        """The prices of a prompt of this length."""
        return next((prices for above, prices in reversed(self.longer) if prompt_tokens > above), self)


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it was sent. `turn` is the number of the client's request that it belongs to."""

    parts: Sequence[Part]
    marks: Marks
    turn: int
    is_summary: bool = False
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Call:
    """One request as the upstream saw it, in tokens.

    `lost_tokens` would have been cached if nothing had expired or been evicted. `kept_tokens` of a turn are the tokens
    at its front that were also at the front of the turn before; None for the first turn. `paired` and `has_user` are
    conditions of strict upstreams, see `prompts.is_paired`.
    """

    is_summary: bool
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int = 0
    kept_tokens: int | None = None
    paired: bool = True
    has_user: bool = True
    written_tokens: int = 0
    lost_tokens: int = 0


class SessionLedger:
    """The calls of one session at one upstream, in the order of arrival. `prompts` are those of the turns.

    `now_seconds` is the time of the next call. Without a `cache` that others use as well, the session has its own.
    """

    def __init__(self, kind: CacheKind, cache: Cache | None = None) -> None:
        self._cache = cache or kind.open()
        self._last_turn: Sequence[Part] | None = None
        self._turn = -1
        self.now_seconds = 0.0
        self.calls: list[Call] = []
        self.requests: list[Request] = []

    @property
    def prompts(self) -> list[Sequence[Part]]:
        """The prompts of the client's requests."""
        return [request.parts for request in self.requests if not request.is_summary]

    def add_turn(self, parts: Sequence[Part], marks: Marks = NO_MARKS) -> Call:
        """Enter a request of the client. Its completion is not entered: it is the same for all contestants."""
        kept = None if self._last_turn is None else count_common(self._last_turn, parts)
        self._last_turn = parts
        self._turn += 1
        return self._enter(Request(parts, marks, self._turn), kept)

    def end_turn(self, number: int) -> None:
        """Note that turn `number`, from 0 on, is over, also if its request was refused on the way."""
        self._turn = number

    def add_summary(self, parts: Sequence[Part], completion_tokens: int, marks: Marks = NO_MARKS) -> Call:
        """Enter a call for a summary. It belongs to the turn after which it was made."""
        request = Request(parts, marks, max(self._turn, 0), is_summary=True, completion_tokens=completion_tokens)
        return self._enter(request, None)

    def _enter(self, request: Request, kept_tokens: int | None) -> Call:
        reading = self._cache.read(request.parts, request.marks, self.now_seconds)
        call = Call(
            is_summary=request.is_summary,
            prompt_tokens=count_parts(request.parts),
            cached_tokens=reading.cached_tokens,
            completion_tokens=request.completion_tokens,
            kept_tokens=kept_tokens,
            paired=request.is_summary or is_paired(request.parts),
            has_user=request.is_summary or any(part.role == "user" for part in request.parts),
            written_tokens=reading.written_tokens,
            lost_tokens=reading.lost_tokens,
        )
        self.requests.append(request)
        self.calls.append(call)
        return call


def count_common(earlier: Sequence[Part], later: Sequence[Part]) -> int:
    """Tokens at the front of both requests."""
    same = sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], zip(earlier, later, strict=False)))
    tokens = count_parts(later[:same])
    if same < min(len(earlier), len(later)):
        tokens += count_common_text(earlier[same], later[same])
    return tokens


def price(calls: Iterable[Call], prices: Prices) -> float:
    """The cost of some calls."""
    return sum(price_call(call, prices) for call in calls)


def price_call(call: Call, prices: Prices) -> float:
    """The cost of one call, by the formula above."""
    prices = prices.at(call.prompt_tokens)
    fresh = call.prompt_tokens - call.cached_tokens - call.written_tokens
    read = fresh * prices.input + call.cached_tokens * prices.cached_input
    return read + call.written_tokens * prices.cache_write + call.completion_tokens * prices.output


def price_loss(calls: Iterable[Call], prices: Prices) -> float:
    """What expired and evicted entries cost: what was lost is written again, though it could have been read."""
    return sum(_price_loss(call, prices.at(call.prompt_tokens)) for call in calls)


def _price_loss(call: Call, prices: Prices) -> float:
    written = min(call.lost_tokens, call.written_tokens)
    paid = written * prices.cache_write + (call.lost_tokens - written) * prices.input
    return paid - call.lost_tokens * prices.cached_input


def turns(calls: Iterable[Call]) -> Iterator[Call]:
    """The client's own requests among the calls."""
    return (call for call in calls if not call.is_summary)
