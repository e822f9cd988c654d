"""The cases that are measured: a contestant at a window, and what it forwards of a session, request by request.

Law: a case is a value, so any process can run it. Its calls for summaries are entered into the ledger between its
requests, in the order in which an upstream would get them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from bench.material.workload import MODEL, Session
from bench.sessions.baselines import KEPT_RESULTS, find_head, mask_old_results, send_everything, slide_window
from bench.sessions.caches.longest import LongestPrefix
from bench.sessions.ledger import Prices, SessionLedger
from bench.sessions.prompts import read_fixed, read_part
from bench.sessions.replaying.inside import Trimtab, run_inside
from bench.sessions.replaying.summarisers import SUMMARISERS
from bench.sessions.report import Window
from trimtab.rules.policy import Prices as RulePrices

PRICES = Prices(input=1.0, cached_input=0.1, output=4.0)
"""Source: the goals of issue 16. trimtab is configured with the same prices."""
RULES = LongestPrefix()
TRIMTAB = "trimtab"


@dataclass(frozen=True, slots=True)
class Case:
    """A contestant at a window.

    `summariser` is one of SUMMARISERS, for trimtab. `settings` are written KEY=VALUE, keys of a policy. `size` replaces
    the default size of a remedy: tokens of a prompt, or results that are not masked.
    """

    contestant: str
    window: Window
    summariser: str = ""
    settings: tuple[str, ...] = ()
    size: int | None = None

    @property
    def label(self) -> str:
        """Its name among the cases of one window."""
        marks = [
            mark
            for mark in (self.summariser, *self.settings, "" if self.size is None else f"equal: {self.size}")
            if mark
        ]
        return f"{self.contestant} ({', '.join(marks)})" if marks else self.contestant


@dataclass(frozen=True, slots=True)
class Sent:
    """What is forwarded of one request, as JSON; None if it is refused. `cuts` are the cuts of trimtab so far."""

    stop: int
    messages: Sequence[bytes] | None
    cuts: tuple[int, ...] = ()


class _Body(msgspec.Struct):
    messages: list[msgspec.Raw]


_read_messages = msgspec.json.Decoder(_Body).decode


def run_case(case: Case, session: Session, ledger: SessionLedger) -> Iterator[Sent]:
    """The session's requests as the contestant forwards them, in order. Enters its calls into the ledger."""
    if case.contestant == TRIMTAB:
        yield from _run_trimtab(case, session, ledger)
        return
    fixed = read_fixed(MODEL, session.tools)
    requests = REMEDIES[case.contestant](session, case)
    for stop, messages in zip(session.stops, requests, strict=True):
        ledger.add_turn((fixed, *map(read_part, messages)))
        yield Sent(stop, messages)


def _run_trimtab(case: Case, session: Session, ledger: SessionLedger) -> Iterator[Sent]:
    prices = RulePrices(PRICES.input, PRICES.cached_input, PRICES.output)
    window = case.window
    trimtab = Trimtab(window.tokens, window.reserve_tokens, case.settings, prices, SUMMARISERS[case.summariser])
    for sent in run_inside(trimtab, session, ledger):
        if sent.body is None:
            yield Sent(sent.stop, None)
            continue
        messages: Sequence[bytes] = session.messages[: sent.stop]
        if sent.body != session.body(sent.stop):
            messages = [bytes(raw) for raw in _read_messages(sent.body).messages]
        yield Sent(sent.stop, messages, tuple(cut.at for cut in sent.cuts))


Remedy = Callable[[Session, Case], Iterator[Sequence[bytes]]]


def _slide(session: Session, case: Case) -> Iterator[Sequence[bytes]]:
    return slide_window(session, case.window.limit_tokens if case.size is None else case.size)


def _mask(session: Session, case: Case) -> Iterator[Sequence[bytes]]:
    kept_results = KEPT_RESULTS if case.size is None else case.size
    return mask_old_results(session, case.window.limit_tokens, kept_results=kept_results)


def keep_head_and_tail(session: Session, limit_tokens: int) -> Iterator[Sequence[bytes]]:
    """Leading system messages and task; half of the remaining room for the first steps, half for the last.

    The last step is always sent.
    """
    parts = [read_part(raw) for raw in session.messages]
    head = find_head(session)
    fixed = read_fixed(MODEL, session.tools).tokens + sum(parts[index].tokens for index in head)
    starts = [index for index, part in enumerate(parts) if part.role != "tool" or not index]
    steps = list(zip(starts, (*starts[1:], len(parts)), strict=True))
    sizes = [sum(parts[index].tokens for index in range(*step) if index not in head) for step in steps]
    half = max(limit_tokens - fixed, 0) // 2
    for stop in session.stops:
        last = sum(start < stop for start in starts)
        if fixed + sum(sizes[:last]) <= limit_tokens:
            yield session.messages[:stop]
            continue
        first = _fill(sizes[:last], half)
        tail = max(_fill(sizes[:last][::-1], 2 * half - sum(sizes[:first])), 1)
        begin, end = steps[first][0], steps[max(last - tail, first)][0]
        yield [raw for index, raw in enumerate(session.messages[:stop]) if index in head or not begin <= index < end]


def _fill(sizes: Sequence[int], limit_tokens: int) -> int:
    """How many items from the beginning fit."""
    taken = 0
    for number, size in enumerate(sizes):
        taken += size
        if taken > limit_tokens:
            return number
    return len(sizes)


def _keep_ends(session: Session, case: Case) -> Iterator[Sequence[bytes]]:
    return keep_head_and_tail(session, case.window.limit_tokens if case.size is None else case.size)


REMEDIES: dict[str, Remedy] = {
    "nothing": lambda session, case: send_everything(session, case.window.limit_tokens),
    "window": _slide,
    "mask": _mask,
    "head-tail": _keep_ends,
}
