"""The estimate by bytes alone, held against exact counts, and how often it spares a recorded request the wait for one.

Law: every request of the recorded sessions is looked at; where the glance says that nothing would be done, the whole
plan is made too, and must say the same.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import mean

import tiktoken
from corpora import batch, count_bytes
from workload import MODEL, Session

from proxy.compaction.caches import Caches
from proxy.compaction.compactor import Compactor
from proxy.compaction.offload import INLINE_BYTES
from proxy.compaction.tokenizers.estimate import MARGIN, SPARE_TOKENS, Estimator
from proxy.compaction.tokenizers.exact import count_pieces, make_counter
from proxy.config.schema import PolicyConfig
from proxy.wire.chat.outline import FRAME_TOKENS
from proxy.wire.chat.request import ChatCache, ChatCodec, ChatRequest, read_request
from rules.policy import Policy, Prices
from rules.tokens.families import O200K, find_family

BATCH_CHARS = 400_000
WINDOW_TOKENS = 128_000


@dataclass(slots=True)
class Exit:
    """One bound's quick exits: how many requests were asked about, how many taken, and how many of those wrongly."""

    asked: int = 0
    taken: int = 0
    taken_large: int = 0
    asked_large: int = 0
    wrong: int = 0

    def add(self, *, is_large: bool, is_taken: bool, is_left: bool) -> None:
        """A request was asked about; `is_left`: the whole plan leaves it as it came."""
        self.asked += 1
        self.asked_large += is_large
        self.taken += is_taken
        self.taken_large += is_taken and is_large
        self.wrong += is_taken and not is_left


@dataclass(slots=True)
class Estimates:
    """All that was found out over the recorded requests; errors are shares of the exact count.

    `below` requests cost more than their bound; `left` are those that the whole plan leaves as they came.
    """

    exits: dict[str, Exit]
    errors: list[float] = field(default_factory=list)
    below: int = 0
    left: int = 0


def measure_speed(texts: Sequence[str], encoding: tiktoken.Encoding, rounds: int) -> list[tuple[float, float]]:
    """Seconds of processor time of the estimator and of tiktoken, by turns on the same batches, for each round."""
    estimate = Estimator(O200K).estimate_tokens
    batches = ["\n".join(part) for part in batch(texts, BATCH_CHARS)]
    encoded = [text.encode("utf-8", "surrogatepass") for text in batches]
    results = []
    for _ in range(rounds):
        ours = theirs = 0.0
        for text, data in zip(batches, encoded, strict=True):
            ours += _time(partial(estimate, data))
            theirs += _time(partial(encoding.encode_ordinary, text))
        results.append((ours, theirs))
    return results


def _time(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def measure_texts(texts: Sequence[str], encoding: tiktoken.Encoding) -> list[float]:
    """The estimate's error in each text of some, as a share of tiktoken's count."""
    estimate = Estimator(O200K).estimate_tokens
    counts = ((len(encoding.encode_ordinary(text)), text) for text in texts)
    return [estimate(text.encode("utf-8", "surrogatepass")) / tokens - 1 for tokens, text in counts if tokens]


def measure_requests(sessions: Sequence[Session], encoding: tiktoken.Encoding) -> Estimates:
    """Glance at all requests, by bytes alone and with the estimate, and make the whole plan of each."""
    count = make_counter(count_pieces(encoding))
    costs = find_family(MODEL).costs
    estimator = Estimator(O200K)
    codec = ChatCodec(count, costs, cache=ChatCache())
    bounds = {"bytes": len, "estimate": estimator.bound_tokens}
    compactors = {
        name: Compactor(count, costs, bound=bound, caches=Caches(), number=number)
        for number, (name, bound) in enumerate(bounds.items())
    }
    policy = PolicyConfig(context_window=WINDOW_TOKENS).to_policy(Prices())
    found = Estimates({name: Exit() for name in bounds})
    for request in _read_requests(sessions):
        tokens = codec.decode(request).tokens
        estimate = estimator.estimate_tokens(request.body)
        found.errors.append(estimate / tokens - 1)
        found.below += MARGIN * estimate + SPARE_TOKENS + FRAME_TOKENS < tokens
        is_left = _is_left(compactors["bytes"], request, policy)
        found.left += is_left
        for name, each in found.exits.items():
            is_taken = compactors[name].is_far_below(request, policy)
            each.add(is_large=len(request.body) > INLINE_BYTES, is_taken=is_taken, is_left=is_left)
    return found


def _read_requests(sessions: Sequence[Session]) -> Iterator[ChatRequest]:
    for session in sessions:
        for stop in session.stops:
            yield read_request(session.body(stop))


def _is_left(compactor: Compactor, request: ChatRequest, policy: Policy) -> bool:
    """Whether the whole plan does nothing about a request, and prepares nothing either."""
    planned = compactor.plan(request, policy)
    if planned.plan.request is not None or planned.plan.prefetch is not None:
        return False
    compacted = compactor.apply(planned, None)
    return compacted.body is request.body and not compacted.decisions


def describe_errors(name: str, errors: Sequence[float]) -> list[str]:
    """A row: how many, and the error's mean, p95 and worst under."""
    sizes = sorted(map(abs, errors))
    return [
        name,
        f"{len(sizes)}",
        f"{mean(sizes):.1%}",
        f"{sizes[int(0.95 * (len(sizes) - 1))]:.1%}",
        f"{min(*errors, 0.0):.1%}",
        f"{max(*errors, 0.0):+.1%}",
    ]


def describe_exit(name: str, found: Exit) -> list[str]:
    """A row: shares of all requests and of those that are large enough to be asked about; the wrong ones."""
    large = f"{found.taken_large / found.asked_large:.1%}" if found.asked_large else "-"
    return [name, f"{found.asked}", f"{found.taken / found.asked:.1%}", large, f"{found.wrong}"]


def describe_speed(texts: Sequence[str], rounds: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """MB/s of the estimator, MB/s of tiktoken, and how many times faster the estimator is."""
    size_mb = count_bytes(texts) / 1e6
    ordered = sorted(theirs / ours for ours, theirs in rounds)
    ours, theirs = (sorted(values)[len(rounds) // 2] for values in zip(*rounds, strict=True))
    return size_mb / ours, size_mb / theirs, ordered[len(ordered) // 2]
