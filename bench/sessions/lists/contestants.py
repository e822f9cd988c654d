"""Runs the contestants and keeps what they sent.

Law: a contestant that knows no prices runs once for each window. trimtab runs for each list, with its prices.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import orjson
import uvloop

from bench.material.workload import MODEL, Session
from bench.peers.environments import find_program
from bench.sessions.baselines import IN_PROCESS
from bench.sessions.caches.cache import CacheKind
from bench.sessions.ledger import Request, SessionLedger
from bench.sessions.libraries import LIBRARIES, ask_library, enter_calls
from bench.sessions.lists.prices import PriceList, to_ratios, to_settings
from bench.sessions.prompts import read_fixed, read_part
from bench.sessions.replaying.clocked import takes_clock
from bench.sessions.replaying.inside import Trimtab, run_inside
from bench.sessions.replaying.proxies import OWN_STORE, make_headroom, make_trimtab
from bench.sessions.replaying.replay import ReplayOptions, replay_through
from bench.sessions.replaying.summarisers import write_words
from bench.sessions.report import Window
from trimtab.rules.policy import Prices as RulePrices

Moments = Mapping[str, Sequence[float]]
"""The times of each session's requests, by its id."""


class Sent(NamedTuple):
    """What was sent of a session. `is_complete` is false if a library took too long."""

    session: Session
    requests: Sequence[Request]
    refused: int = 0
    is_complete: bool = True


@dataclass(frozen=True, slots=True)
class Setting:
    """What all contestants of a run have in common. The first of the kinds is what upstreams report while they run.

    is_cold: trimtab is told how long the upstream's cache lives, so that it makes cuts at a cold cache.
    """

    kinds: tuple[CacheKind, ...]
    moments: Moments
    note_tokens: int
    peers: Path
    settings: tuple[str, ...] = ()
    is_cold: bool = True

    def find_cache_seconds(self, prices: PriceList) -> float:
        """The lifetime of the cache as trimtab is told; 0 for no cuts at a cold cache."""
        return prices.model.lifetime_seconds if self.is_cold else 0.0

    @property
    def kind(self) -> CacheKind:
        """The kind of cache while contestants run."""
        return self.kinds[0]


def send_in_process(name: str, session: Session, window: Window, kind: CacheKind) -> Sent:
    """Run a contestant that needs no package."""
    ledger = SessionLedger(kind)
    fixed = read_fixed(MODEL, session.tools)
    for messages in IN_PROCESS[name](session, window.limit_tokens):
        ledger.add_turn((fixed, *map(read_part, messages)))
    return Sent(session, ledger.requests)


def send_inside(session: Session, window: Window, prices: PriceList, setting: Setting) -> Sent:
    """Run trimtab in this process."""
    own = to_ratios(prices.prices)
    ledger, refused = SessionLedger(setting.kind), 0
    trimtab = Trimtab(
        window.tokens,
        window.reserve_tokens,
        setting.settings,
        RulePrices(own.input, own.cached_input, own.output, own.cache_write),
        write_words,
        setting.find_cache_seconds(prices),
    )
    for forwarded in run_inside(trimtab, session, ledger, setting.moments[session.id]):
        refused += forwarded.body is None
    return Sent(session, ledger.requests, refused)


def send_through(sessions: Sequence[Session], window: Window, prices: PriceList, setting: Setting) -> list[Sent]:
    """Run trimtab as users start it. Without a clock of its own it does not know of the gaps."""
    own = (f"context_window={window.tokens}", f"completion_reserve={window.reserve_tokens}", *setting.settings)
    policy = tuple(f"defaults.{key}" for key in own)
    shell = (f"store={OWN_STORE}", f"upstream.cache_seconds={setting.find_cache_seconds(prices):g}")
    start = make_trimtab((*policy, *to_settings(prices.prices), *shell), is_clocked=True)
    if not takes_clock():
        print("trimtab takes no clock yet: the proxy does not know of gaps", file=sys.stderr)
    options = ReplayOptions(setting.kind, setting.note_tokens, keep_prompts=True, moments=setting.moments)
    done = uvloop.run(replay_through(start, sessions, options))
    return [Sent(one.session, one.requests, one.refused) for one in done]


def send_peer(name: str, sessions: Sequence[Session], window: Window, setting: Setting) -> list[Sent]:
    """Run a peer: a library, or Headroom's proxy. Raises MissingPeerError."""
    if name in LIBRARIES:
        return list(_send_library(name, sessions, window, setting))
    start = make_headroom(find_program(setting.peers, "headroom"), name.removeprefix("headroom-"))
    options = ReplayOptions(setting.kind, setting.note_tokens, keep_prompts=True, moments=setting.moments)
    done = uvloop.run(replay_through(start, sessions, options))
    return [Sent(one.session, one.requests, one.refused, one.complete) for one in done]


def _send_library(name: str, sessions: Sequence[Session], window: Window, setting: Setting) -> Iterator[Sent]:
    options = ReplayOptions(setting.kind, setting.note_tokens)
    for session, line in ask_library(name, setting.peers, sessions, window.limit_tokens, options):
        answer, ledger = orjson.loads(line), SessionLedger(setting.kind)
        enter_calls(session, answer, ledger)
        yield Sent(session, ledger.requests, is_complete=answer["complete"])
