"""Computes what the calls of a session cost at an upstream that caches prompts. Pure.

The prices are ratios. A call costs

    cache_write x input x (prompt - cached) + cached_input x cached + output x completion

tokens. *Cached* is what the upstream has read before in this session: the longest common prefix with any earlier
request of the session, including its summary calls, in whole blocks (128 tokens) and only from a minimum on (1024), as
OpenAI does it. Whole parts (model and tools, then each message) are compared by their exact bytes; in the first part
that differs, the common text counts, too. Nothing is ever evicted: the turns of a session follow each other within the
minutes that a cache lasts.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from bench.sessions.prompts import Part, count_common_text, count_parts, is_paired


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a token, as ratios. `cache_write` multiplies `input`."""

    input: float = 1.0
    cached_input: float = 0.1
    output: float = 4.0
    cache_write: float = 1.0


@dataclass(frozen=True, slots=True)
class CacheRules:
    """How an upstream caches: in blocks of `block_tokens`, and nothing shorter than `minimum_tokens`."""

    block_tokens: int = 128
    minimum_tokens: int = 1024


@dataclass(frozen=True, slots=True)
class Call:
    """One request as the upstream saw it, in tokens.

    `kept_tokens` of a turn are the tokens at its front that were also at the front of the turn before; None for the
    first turn. `paired` and `has_user` are conditions of strict upstreams, see `prompts.is_paired`.
    """

    is_summary: bool
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int = 0
    kept_tokens: int | None = None
    paired: bool = True
    has_user: bool = True


@dataclass(slots=True)
class _Node:
    """A prefix that was read, with the parts that followed it."""

    children: dict[Part, "_Node"] = field(default_factory=dict)


class SessionLedger:
    """The calls of one session at one upstream, in the order of arrival. `prompts` are those of the turns."""

    def __init__(self, rules: CacheRules) -> None:
        self._rules = rules
        self._root = _Node()
        self._last_turn: Sequence[Part] | None = None
        self.calls: list[Call] = []
        self.prompts: list[Sequence[Part]] = []

    def add_turn(self, parts: Sequence[Part]) -> Call:
        """Enter a request of the client. Its completion is not entered: it is the same for all contestants."""
        kept = None if self._last_turn is None else count_common(self._last_turn, parts)
        self._last_turn = parts
        self.prompts.append(parts)
        call = Call(
            is_summary=False,
            prompt_tokens=count_parts(parts),
            cached_tokens=self._read(parts),
            kept_tokens=kept,
            paired=is_paired(parts),
            has_user=any(part.role == "user" for part in parts),
        )
        self.calls.append(call)
        return call

    def add_summary(self, parts: Sequence[Part], completion_tokens: int) -> Call:
        """Enter a call for a summary."""
        call = Call(
            is_summary=True,
            prompt_tokens=count_parts(parts),
            cached_tokens=self._read(parts),
            completion_tokens=completion_tokens,
        )
        self.calls.append(call)
        return call

    def _read(self, parts: Sequence[Part]) -> int:
        """The cached tokens of a prompt. From now on the prompt itself is cached."""
        node, tokens, depth = self._root, 0, 0
        while depth < len(parts) and parts[depth] in node.children:
            node = node.children[parts[depth]]
            tokens += parts[depth].tokens
            depth += 1
        if depth < len(parts):
            tokens += max((count_common_text(known, parts[depth]) for known in node.children), default=0)
        for part in parts[depth:]:
            node = node.children.setdefault(part, _Node())
        whole = tokens - tokens % self._rules.block_tokens
        return whole if tokens >= self._rules.minimum_tokens else 0


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
    written = (call.prompt_tokens - call.cached_tokens) * prices.input * prices.cache_write
    return written + call.cached_tokens * prices.cached_input + call.completion_tokens * prices.output


def turns(calls: Iterable[Call]) -> Iterator[Call]:
    """The client's own requests among the calls."""
    return (call for call in calls if not call.is_summary)
