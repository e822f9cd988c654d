"""Asks for planted facts behind one, three and five cuts: with recall off, injected, and as a scripted model's tool.

    python -m bench.retention.needed --recalled

Law: a fact counts if its exact value is in what the model reads: in the request, or in what its call returns. The
scripted model asks for the topic when the value is missing. A question names the topic, never the value.
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import orjson

from bench.material.workload import MODEL, Session
from bench.retention.needed.cases import PRICES, RULES, Case
from bench.retention.needed.facts import Fact
from bench.retention.needed.planted import SEED, Planted, find_cuts, plant
from bench.sessions.ledger import SessionLedger
from bench.sessions.replaying.inside import load_own_compactor, load_settings
from bench.sessions.replaying.shell import Shell
from bench.sessions.replaying.summarisers import SUMMARISERS
from trimtab.proxy.recall import Lookup
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.rules.policy import Prices as RulePrices

CUTS = (1, 3, 5)
ARMS = ("off", "inject", "tool")
RESULT_TOKENS = 1500


@dataclass(slots=True)
class Found:
    """Facts asked and found, by arm and cuts; and the prompt tokens of the sessions, by arm."""

    asked: Counter[tuple[str, int]] = field(default_factory=Counter)
    found: Counter[tuple[str, int]] = field(default_factory=Counter)
    costs: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Found") -> None:
        """Add the counts of another."""
        self.asked += other.asked
        self.found += other.found
        self.costs += other.costs


def measure_recalled(session: Session, case: Case) -> Found:
    """Ask for the facts of a session in each arm; nothing if it has too few cuts."""
    counted, cuts = Found(), find_cuts(session, case)
    if len(cuts) < CUTS[-1]:
        return counted
    dice = random.Random(f"{SEED} {session.id}")  # noqa: S311 - no secret: the same facts in every run
    sown, planted = plant(session, cuts[0], dice)
    for arm in ("off", "inject"):
        _run(sown, planted, case, arm, counted)
    return counted


def _run(sown: Session, planted: list[Planted], case: Case, arm: str, counted: Found) -> None:
    settings = load_settings(case.window.tokens, case.window.reserve_tokens, (*case.settings, f"recall={arm}"))
    policy = settings.policy_for(MODEL)
    prices = RulePrices(PRICES.input, PRICES.cached_input, PRICES.output)
    ledger = SessionLedger(RULES)
    shell = Shell(
        load_own_compactor(), policy, policy.to_policy(prices), ledger, SUMMARISERS[case.summariser or "canned"]
    )
    left = list(CUTS)
    for stop in sown.stops:
        compacted, go_on = shell.send(sown.body(stop))
        if compacted is None:
            continue
        counted.costs[arm] += compacted.sent_tokens
        if left and len(shell.cuts) >= left[0]:
            cuts = left.pop(0)
            for one in planted:
                for name, has_it in _ask_one(shell, _ask(sown, stop, one.fact.topic), one.fact):
                    counted.asked[name, cuts] += 1
                    counted.found[name, cuts] += has_it
        go_on()


def _ask_one(shell: Shell, body: bytes, fact: Fact) -> Iterator[tuple[str, bool]]:
    """Whether the model reads a fact, by arm; only without `inject` the tool is tried, too."""
    planned = shell.compactor.plan(CHAT.read(body), shell.policy)
    wanted = planned.plan.request
    text = None if wanted is None else shell._texts.get(wanted.key)  # noqa: SLF001 - what the proxy's store has
    compacted = shell.compactor.apply(planned, text)
    has_it = fact.value.encode() in compacted.body
    yield ("inject" if shell.policy.recalls else "off"), has_it
    if not shell.policy.recalls:
        lookup = Lookup(planned.original, compacted.forwarded, shell.compactor.count)
        yield "tool", has_it or fact.value in lookup.find(fact.topic, 0, None, RESULT_TOKENS)


def _ask(sown: Session, stop: int, topic: str) -> bytes:
    body = orjson.loads(sown.body(stop))
    question = {"role": "user", "content": f"Before you go on: what was it that we noted about {topic}? Be exact."}
    return orjson.dumps({**body, "messages": [*body["messages"], question]})


def show_recalled(found: Found) -> Iterator[str]:
    """The table's rows."""
    for arm in ARMS:
        shares = [f"{found.found[arm, cuts] / max(found.asked[arm, cuts], 1):.1%}" for cuts in CUTS]
        yield f"| {arm} | {' | '.join(shares)} | {sum(found.asked[arm, cuts] for cuts in CUTS)} |"
