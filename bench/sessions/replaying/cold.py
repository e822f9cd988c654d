"""Knows a session's silences in this process, as proxy/exchange/cold.py does in the proxy.

Law: the plan at a cold cache is the program's own. The time is what the caller gives, and nothing is kept in a store,
since there is only one process. `bench.sessions.run --check` compares it with the proxy.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from trimtab.proxy.compaction import Planned
from trimtab.proxy.exchange.cold import ANCHOR_MESSAGES, find_previous
from trimtab.rules.conversation import count_leading
from trimtab.rules.window.state import ColdCut

PlanWith = Callable[[dict[bytes, ColdCut]], Planned]
HasText = Callable[[Planned, bool], bool]
"""Whether a plan has its text; it may be asked for if the second argument says so."""


@dataclass(slots=True)
class Silences:
    """The cold cuts of one session, and when each of its prefixes was answered. A lifetime of 0 means no such cuts."""

    lifetime_seconds: float = 0.0
    cuts: dict[bytes, ColdCut] = field(default_factory=dict)
    _answered: dict[bytes, float] = field(default_factory=dict)

    def note(self, planned: Planned, now_seconds: float) -> None:
        """Note that a request is answered now."""
        self._answered[planned.plan.here] = now_seconds

    def is_cold(self, planned: Planned, now_seconds: float) -> bool:
        """Whether the session was silent for longer than its prompt is cached, and is long enough for a cut."""
        plan = planned.plan
        messages = plan.conversation.messages
        if not self.lifetime_seconds or not plan.window.is_long or plan.is_client_compaction:
            return False
        if len(messages) < count_leading(messages) + ANCHOR_MESSAGES:
            return False
        answered = self._answered.get(plan.hashes[find_previous(messages)])
        return answered is not None and now_seconds - answered > self.lifetime_seconds

    def cut(self, planned: Planned, plan_with: PlanWith, has_text: HasText) -> Planned:
        """The plan with a cut that needs no summary that is yet to be written, or else one that pays for its own."""
        here, had = planned.plan.here, planned.plan.request
        for kind in (ColdCut.CUT, ColdCut.PRUNE, ColdCut.ASK):
            trial = plan_with({**self.cuts, here: kind})
            if trial.plan.window == planned.plan.window:
                continue
            wanted = trial.plan.request
            is_known = wanted is None or not wanted.asks_model or (had is not None and had.key == wanted.key)
            if is_known or has_text(trial, kind is ColdCut.ASK):
                self.cuts[here] = kind
                return trial
        return planned
