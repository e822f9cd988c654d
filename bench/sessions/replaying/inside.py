"""A session through trimtab in this process: faster than through the proxy, with the same forwarded bytes.

Law: no time passes but that of the ledger. `bench.sessions.run --check` compares it with the proxy.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from bench.material.workload import MODEL, Session
from bench.sessions.ledger import SessionLedger
from bench.sessions.marks import split_marked
from bench.sessions.replaying.shell import Shell
from bench.sessions.replaying.summarisers import Summarise
from trimtab.proxy.compaction import Compactor, load_compactor
from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.schema import Config
from trimtab.rules.policy import Prices
from trimtab.rules.window.state import Cut

DEFAULT_PREFIX = "defaults."


@dataclass(frozen=True, slots=True)
class Trimtab:
    """How trimtab is set up: its window, its policy's settings (KEY=VALUE), its prices, and what writes summaries.

    cache_seconds: after which silence it takes the upstream's cache to be cold; 0 for never.
    """

    window_tokens: int
    reserve_tokens: int
    settings: tuple[str, ...]
    prices: Prices
    summarise: Summarise | None
    cache_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Forwarded:
    """What is forwarded of one request; None if it is refused. `cuts` are those so far."""

    stop: int
    body: bytes | None
    cuts: tuple[Cut, ...] = ()


def run_inside(
    trimtab: Trimtab, session: Session, ledger: SessionLedger, moments: Sequence[float] = ()
) -> Iterator[Forwarded]:
    """The session's requests as trimtab forwards them. `moments` are their times, if there are gaps between them.

    The ledger's `now_seconds` is the only clock: what asks for the time in trimtab must get it from there.
    """
    config = load_settings(trimtab.window_tokens, trimtab.reserve_tokens, trimtab.settings)
    settings = config.policy_for(MODEL)
    shell = Shell(load_own_compactor(), settings, settings.to_policy(trimtab.prices), ledger, trimtab.summarise)
    shell.silences.lifetime_seconds = trimtab.cache_seconds
    for turn, stop in enumerate(session.stops):
        if moments:
            ledger.now_seconds = moments[turn]
        compacted, go_on = shell.send(session.body(stop))
        if compacted is None:
            ledger.end_turn(turn)
            yield Forwarded(stop, None)
            continue
        ledger.add_turn(*split_marked(compacted.body))
        yield Forwarded(stop, compacted.body, shell.cuts)
        go_on()


@cache
def load_settings(window_tokens: int, reserve_tokens: int, settings: tuple[str, ...]) -> Config:
    """Trimtab's configuration for a window. Raises ConfigError."""
    own = (f"context_window={window_tokens}", f"completion_reserve={reserve_tokens}", *settings)
    keys = (key if key.startswith(DEFAULT_PREFIX) else DEFAULT_PREFIX + key for key in own)
    return load_config(settings=tuple(keys), environment={}, is_online=False)


@cache
def load_own_compactor() -> Compactor:
    """The compactor of this process: a text that it has counted is not counted again."""
    return load_compactor(MODEL)
