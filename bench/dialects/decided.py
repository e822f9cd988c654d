"""What trimtab decides about a session in each dialect, and how that differs.

Law: trimtab runs in this process, at its defaults, with a counter that does not depend on the dialect.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.dialects.converted import DIALECTS, Spoken
from bench.material.workload import MODEL, Session
from bench.retention.needed.cases import PRICES, RULES
from bench.sessions.ledger import SessionLedger
from bench.sessions.marks import NO_MARKS
from bench.sessions.replaying.inside import load_settings
from bench.sessions.replaying.replay import Replayed
from bench.sessions.replaying.shell import Shell
from bench.sessions.replaying.summarisers import write_nothing_useful
from bench.sessions.report import Window
from trimtab.proxy.compaction import Compactor
from trimtab.rules.policy import Prices as RulePrices

CHARS_PER_TOKEN = 4
NOTHING = "nothing"
Decided = tuple[tuple[str, int, int], ...]
"""Rule, saved tokens, and number of messages of each decision about one request."""


@dataclass(frozen=True, slots=True)
class Replay:
    """A session in a dialect: its calls, the decisions about each request, and the problems of what was forwarded."""

    replayed: Replayed
    decided: Sequence[Decided]
    problems: Sequence[str]


def count_by_length(text: str) -> int:
    """The fixed counter."""
    return len(text) // CHARS_PER_TOKEN


def replay(dialect: str, session: Session, window: Window) -> Replay:
    """Send a session through trimtab. Whatever is forwarded with other decisions than before is checked."""
    spoken, ledger = Spoken(dialect, session), SessionLedger(RULES)
    settings = load_settings(window.tokens, window.reserve_tokens, ()).policy_for(MODEL)
    policy = settings.to_policy(RulePrices(PRICES.input, PRICES.cached_input, PRICES.output))
    shell = Shell(
        Compactor(count_by_length),
        settings,
        policy,
        ledger,
        write_nothing_useful,
        dialect=dialect,
        split=lambda body: (spoken.split(body), NO_MARKS),
    )
    decided: list[Decided] = []
    problems: list[str] = []
    for stop in session.stops:
        body = spoken.write(stop)
        compacted, go_on = shell.send(body)
        if compacted is None:
            problems.append("refused")
            continue
        decisions = tuple((one.rule, one.saved_tokens, one.messages) for one in compacted.decisions)
        if not decided or decided[-1] != decisions:
            problems += DIALECTS[dialect].check_request(body, compacted.body, last_may_shrink=True)
        decided.append(decisions)
        ledger.add_turn(spoken.split(compacted.body))
        go_on()
    return Replay(Replayed(session, tuple(ledger.calls)), decided, problems)


def replay_nothing(session: Session) -> Replayed:
    """The session without trimtab. It is priced as chat completions: only the form would differ."""
    spoken, ledger = Spoken("chat", session), SessionLedger(RULES)
    for stop in session.stops:
        ledger.add_turn(spoken.split(session.body(stop)))
    return Replayed(session, tuple(ledger.calls))


def count_differing(replays: Mapping[str, Replay]) -> dict[str, int]:
    """For each dialect, how many requests of a session were decided otherwise than in chat completions."""
    chat = replays["chat"].decided
    return {
        dialect: sum(one != other for one, other in zip(chat, found.decided, strict=True))
        for dialect, found in replays.items()
    }
