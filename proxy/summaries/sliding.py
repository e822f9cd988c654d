"""Detects clients that slide a window of their own.

Law: if the beginning of a transcript changes with every request, no summary is ever found again, and paying for it is
useless. Such a client gets digests. A client whose transcripts only grow is never mistaken for one.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from trimtab.proxy.lru import BytesLRU
from trimtab.rules.conversation import Message, Role
from trimtab.rules.pipeline.plan import Plan
from trimtab.rules.summary.request import SummaryRequest

SUMMARIES = 3
"""This many summaries in a row, each used fewer times than this, identify a sliding client. Chosen: one or two
happen by chance, and each costs a call."""
LAST_MESSAGES = 2
"""Messages that identify a covered part. Chosen: a single one may be just `continue`."""
MAX_BYTES = 1024 * 1024  # chosen: some thousand clients
NOTED_BYTES = 400  # memory of one entry, an estimate for CPython


@dataclass(slots=True)
class _Noted:
    """A summary that was asked for: its key, digests of its last messages, and how often it was found."""

    key: str
    last_digests: frozenset[bytes]
    uses: int = 0


class SlidingWatch:
    def __init__(self) -> None:
        self._noted: BytesLRU[str, deque[_Noted]] = BytesLRU(MAX_BYTES, lambda *_: SUMMARIES * NOTED_BYTES)
        self._found: BytesLRU[str, tuple[str, int]] = BytesLRU(MAX_BYTES, lambda *_: NOTED_BYTES)  # key, times in a row

    def note(self, client: str, request: SummaryRequest) -> None:
        noted = self._noted.get(client) or deque(maxlen=SUMMARIES)
        if all(one.key != request.key for one in noted):
            noted.append(_Noted(request.key, _last_digests(request.span)))
            self._noted[client] = noted

    def use(self, client: str, request: SummaryRequest) -> None:
        """Note that a stored summary was found. If it is found several times in a row, the transcript grows."""
        for noted in self._noted.get(client) or ():
            noted.uses += noted.key == request.key
        key, found = self._found.get(client) or ("", 0)
        found = found + 1 if key == request.key else 1
        self._found[client] = (request.key, found)
        if found >= SUMMARIES and all(one.uses < SUMMARIES for one in self._noted.get(client) or ()):
            self._noted.pop(client)

    def slides(self, client: str, plan: Plan) -> bool:
        """Whether this transcript contains what the last summaries covered, but each with a different beginning."""
        noted = self._noted.get(client) or ()
        if len(noted) < SUMMARIES or any(one.uses >= SUMMARIES for one in noted):
            return False
        hashes = {chain.hex() for chain in plan.hashes}
        digests = {message.digest for message in plan.conversation.messages}
        return all(one.key not in hashes and one.last_digests <= digests for one in noted)


def _last_digests(span: Sequence[Message]) -> frozenset[bytes]:
    """Digests of the last messages. Tool results are left out, because clients that mask old results change them."""
    said = (message.digest for message in reversed(span) if message.role is not Role.TOOL)
    return frozenset(islice(said, LAST_MESSAGES))
