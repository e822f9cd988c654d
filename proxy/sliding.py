"""Clients that slide a window of their own.

Law: where the beginning of a transcript changes with every request, no summary is ever found again, and each would be
paid for in vain. Such a client gets digests. One whose transcripts only grow is never taken for one.
"""

from collections import deque
from dataclasses import dataclass

from proxy.lru import BytesLRU
from rules.pipeline import Plan
from rules.summarise import SummaryRequest

SUMMARIES = 3
"""So many in a row, each used less often than that, tell a client that slides. Source: the design, section 11."""
MAX_BYTES = 1024 * 1024
NOTED_BYTES = 400


@dataclass(slots=True)
class _Noted:
    """A summary that a request waited for: its key, the last message that it covers, and how often it was found."""

    key: str
    last_digest: bytes
    uses: int = 0


class SlidingWatch:
    """Remembers the last summaries that each client's requests had to wait for."""

    def __init__(self) -> None:
        self._noted: BytesLRU[str, deque[_Noted]] = BytesLRU(MAX_BYTES, lambda *_: SUMMARIES * NOTED_BYTES)

    def note(self, client: str, request: SummaryRequest) -> None:
        """A request of this client has waited for a summary."""
        noted = self._noted.get(client) or deque(maxlen=SUMMARIES)
        noted.append(_Noted(request.key, request.span[-1].digest if request.span else b""))
        self._noted[client] = noted

    def use(self, client: str, request: SummaryRequest) -> None:
        """A summary of this client's was found."""
        for noted in self._noted.get(client) or ():
            noted.uses += noted.key == request.key

    def slides(self, client: str, plan: Plan) -> bool:
        """Whether this transcript holds what the last summaries covered, behind another beginning each."""
        noted = self._noted.get(client) or ()
        if len(noted) < SUMMARIES:
            return False
        hashes = {chain.hex() for chain in plan.hashes}
        digests = {message.digest for message in plan.conversation.messages}
        return all(one.uses < SUMMARIES and one.key not in hashes and one.last_digest in digests for one in noted)
