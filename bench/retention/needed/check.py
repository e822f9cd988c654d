"""Checks that the replay in this process does what the proxy does: the same sessions through both, body by body.

Law: both have the same configuration, and the same prompt gets the same note. Two messages are equal if their bytes
are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import uvloop

from bench.material.workload import Session
from bench.retention.needed.cases import PRICES, RULES, TRIMTAB, Case, run_case
from bench.sessions.ledger import SessionLedger, price
from bench.sessions.lists.prices import to_settings
from bench.sessions.prompts import Part
from bench.sessions.replaying.proxies import OWN_STORE, make_trimtab
from bench.sessions.replaying.replay import Replayed, ReplayOptions, Start, replay_through
from bench.sessions.report import Window

SUMMARISER = "words"
"""The same note as that of the upstream of bench/sessions."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """A session through both: how many of its requests have the same bytes, and what both cost."""

    session_id: str
    requests: int
    same_bodies: int
    cost_here: float
    cost_proxy: float
    first_difference: int | None


def check(sessions: Sequence[Session], window: Window, settings: tuple[str, ...]) -> Iterator[Agreement]:
    """Send each session through both, and compare."""
    case = Case(TRIMTAB, window, SUMMARISER, settings)
    for done in uvloop.run(replay_through(_start(case), sessions, ReplayOptions(RULES, keep_prompts=True))):
        yield compare(done, case)


def _start(case: Case) -> Start:
    own = (f"context_window={case.window.tokens}", f"completion_reserve={case.window.reserve_tokens}", *case.settings)
    return make_trimtab((*(f"defaults.{setting}" for setting in own), *to_settings(PRICES), f"store={OWN_STORE}"))


def compare(done: Replayed, case: Case) -> Agreement:
    """Compare a session that went through the proxy with the case in this process."""
    ledger = SessionLedger(RULES)
    for _ in run_case(case, done.session, ledger):
        pass
    pairs = list(zip_longest(ledger.prompts, done.prompts, fillvalue=()))
    same = [_is_same(here, there) for here, there in pairs]
    return Agreement(
        session_id=done.session.id,
        requests=len(pairs),
        same_bodies=sum(same),
        cost_here=price(ledger.calls, PRICES),
        cost_proxy=price(done.calls, PRICES),
        first_difference=same.index(False) if False in same else None,
    )


def _is_same(here: Sequence[Part], there: Sequence[Part]) -> bool:
    """Parts with the same bytes are the same object."""
    return len(here) == len(there) and all(left is right for left, right in zip(here, there, strict=True))


def show_check(sessions: Sequence[Session], windows: Sequence[Window], settings: tuple[str, ...]) -> bool:
    """Print how far both agree; return whether they agree in all."""
    is_whole = True
    for window in windows:
        found = list(check(sessions, window, settings))
        requests, same = sum(one.requests for one in found), sum(one.same_bodies for one in found)
        here, there = sum(one.cost_here for one in found), sum(one.cost_proxy for one in found)
        print(
            f"window {window.tokens}: {same} of {requests} bodies are the same in {len(found)} sessions;"
            f" cost {here:,.0f} here, {there:,.0f} through the proxy ({here / there - 1:+.2%})",
            flush=True,
        )
        for one in found:
            if one.first_difference is not None:
                print(
                    f"  {one.session_id}: {one.same_bodies} of {one.requests}, from request {one.first_difference};"
                    f" cost {one.cost_here:,.0f} and {one.cost_proxy:,.0f}"
                )
        is_whole &= same == requests
    return is_whole
