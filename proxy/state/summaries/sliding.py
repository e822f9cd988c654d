"""Clients that slide a window of their own.

Law: where the beginning of a transcript changes with every request, no summary is ever found again, and each would be
paid for in vain. Such a client gets digests. One whose transcripts only grow is never taken for one.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from proxy.lru import BytesLRU
from rules.conversation import Message, Role
from rules.pipeline.plan import Plan
from rules.summary.request import SummaryRequest

SUMMARIES = 3
"""So many in a row, each used less often than that, tell a client that slides. Source: the design, section 11."""
LAST_MESSAGES = 2
"""A single one may say no more than `continue`."""
MAX_BYTES = 1024 * 1024
NOTED_BYTES = 400


@dataclass(slots=True)
class _Noted:
    """A summary asked for: its key, what its last messages said, and how often it was found."""

    key: str
    last_digests: frozenset[bytes]
    uses: int = 0


class SlidingWatch:
    """Remembers the last summaries that were asked for on each client's account."""

    def __init__(self) -> None:
        self._noted: BytesLRU[str, deque[_Noted]] = BytesLRU(MAX_BYTES, lambda *_: SUMMARIES * NOTED_BYTES)
        self._found: BytesLRU[str, tuple[str, int]] = BytesLRU(MAX_BYTES, lambda *_: NOTED_BYTES)  # in a row

    def note(self, client: str, request: SummaryRequest) -> None:
        """A summary is asked for."""
        noted = self._noted.get(client) or deque(maxlen=SUMMARIES)
        if all(one.key != request.key for one in noted):
            noted.append(_Noted(request.key, _last_digests(request.span)))
            self._noted[client] = noted

    def use(self, client: str, request: SummaryRequest) -> None:
        """A text of this client's was found; the same one again and again tells a transcript that grows."""
        for noted in self._noted.get(client) or ():
            noted.uses += noted.key == request.key
        key, found = self._found.get(client) or ("", 0)
        found = found + 1 if key == request.key else 1
        self._found[client] = (request.key, found)
        if found >= SUMMARIES and all(one.uses < SUMMARIES for one in self._noted.get(client) or ()):
            self._noted.pop(client)

    def slides(self, client: str, plan: Plan) -> bool:
        """Whether this transcript holds what the last summaries covered, behind another beginning each."""
        noted = self._noted.get(client) or ()
        if len(noted) < SUMMARIES or any(one.uses >= SUMMARIES for one in noted):
            return False
        hashes = {chain.hex() for chain in plan.hashes}
        digests = {message.digest for message in plan.conversation.messages}
        return all(one.key not in hashes and one.last_digests <= digests for one in noted)


def _last_digests(span: Sequence[Message]) -> frozenset[bytes]:
    """What the last messages said that are no results: clients that mask old results change those."""
    said = (message.digest for message in reversed(span) if message.role is not Role.TOOL)
    return frozenset(islice(said, LAST_MESSAGES))
