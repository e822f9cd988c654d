"""The sessions that have digests although a model's summary was wanted.

Law: bounded. A session is told of once, until a summary of a model stands in it again.
"""

from collections import Counter, OrderedDict

from proxy.state.summaries.calls import SummaryCalls

MAX_SESSIONS = 10_000
"""Sessions that are remembered; the ones not seen for longest are forgotten. Chosen: some 2 MB."""
SLIDING, NOT_READY = "sliding", "not_ready"
"""Reasons beside the results of calls: the client drops its oldest messages; no summary was ready in time, or why is no
longer known."""


class Fallen:
    """Which sessions have fallen to digests, and why, in a word."""

    def __init__(self, calls: SummaryCalls) -> None:
        self._calls = calls
        self._reasons: OrderedDict[str, str] = OrderedDict()

    def note(self, session: str, model: str, reason: str) -> str:
        """Note a digest in a session; returns why the session has it. `model`: the metrics' label."""
        known = self._reasons.get(session)
        if known is None:
            known = self._reasons[session] = reason or NOT_READY
            self._calls.note_fallen(session, model, known)
            if len(self._reasons) > MAX_SESSIONS:
                self._reasons.popitem(last=False)
        self._reasons.move_to_end(session)
        return known

    def recover(self, session: str) -> None:
        """Note that a model's summary stands in a session."""
        self._reasons.pop(session, None)

    def count(self) -> Counter[str]:
        """How many sessions have digests now, by the reason."""
        return Counter(self._reasons.values())
