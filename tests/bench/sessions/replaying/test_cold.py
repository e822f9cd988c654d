"""Cuts at a cold cache in this process."""

from bench.material.workload import make_sessions
from bench.sessions.caches.longest import LongestPrefix
from bench.sessions.ledger import SessionLedger
from bench.sessions.replaying.inside import Trimtab, run_inside
from bench.sessions.replaying.summarisers import write_words
from trimtab.rules.policy import Prices

LIFETIME_SECONDS = 300.0


def forward(cache_seconds: float, gap_seconds: float) -> list[bytes | None]:
    """What is forwarded of a made-up session with equal gaps."""
    session = make_sessions()[2]
    trimtab = Trimtab(16000, 2000, (), Prices(), write_words, cache_seconds)
    ledger = SessionLedger(LongestPrefix(lifetime_seconds=LIFETIME_SECONDS))
    moments = [turn * gap_seconds for turn in range(len(session.stops))]
    return [sent.body for sent in run_inside(trimtab, session, ledger, moments)]


def test_only_silences_longer_than_the_lifetime_change_what_is_forwarded() -> None:
    """With a lifetime of 0, none does."""
    plain = forward(0.0, 400.0)
    assert forward(LIFETIME_SECONDS, 200.0) == plain
    assert forward(LIFETIME_SECONDS, 400.0) != plain
