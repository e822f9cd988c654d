"""Measures one session under one case: its cost, the needed identifiers that are kept, and the repeated calls.

Law: all requests whose forwarded messages differ from the client's are measured, each against the assistant's message
that followed in the recording.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.material.workload import Session
from bench.retention.needed.cases import RULES, Case, Sent, run_case
from bench.retention.needed.identifiers import Transcript, Worded
from bench.retention.needed.tally import Tally
from bench.sessions.baselines import MASK
from bench.sessions.ledger import Call, SessionLedger
from trimtab.rules.text.markers import mark_pruned

_PRUNED = mark_pruned(0).partition(" 0 ")[0]


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of a case for a session.

    `decoded`: the tally with the arguments of calls read by their values, and the tools' declarations as there.
    `calls` are those at the upstream. `answered_calls` are the tool calls of the recorded answers; `rereads` are those
    of them that repeat a call whose result was removed from the forwarded body. `changed` requests were measured.
    """

    session_id: str
    calls: tuple[Call, ...]
    tally: Tally
    decoded: Tally
    changed: int
    refused: int
    answered_calls: int
    rereads: int
    complete: bool = True


class _Repeats:
    """Which calls were made before, with the ids of their results."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], set[str | None]] = {}

    def note(self, message: Worded) -> None:
        """Add a message of the transcript."""
        for call_id, name, arguments in message.calls:
            self._made.setdefault((name, arguments), set()).add(call_id)

    def count(self, answer: Worded, forwarded: Sequence[Worded]) -> int:
        """How many of the answer's calls were made before, while none of their results is still forwarded."""
        again = [made for _, name, arguments in answer.calls if (made := self._made.get((name, arguments)))]
        if not again:
            return 0
        there = {
            call_id for message in forwarded if message.role == "tool" and _is_there(message) for call_id in message.ids
        }
        return sum(there.isdisjoint(made) for made in again)


def _is_there(result: Worded) -> bool:
    """Whether a result is more than the line that replaces a pruned or masked one."""
    return result.text != MASK and not result.text.startswith(_PRUNED)


def measure(session: Session, case: Case) -> Measured:
    """Run a case on a session."""
    ledger = SessionLedger(RULES)
    return measure_sent(session, run_case(case, session, ledger), ledger)


def measure_sent(session: Session, requests: Iterable[Sent], ledger: SessionLedger) -> Measured:
    """Measure what is forwarded of a session. The ledger is complete when the last request was taken."""
    transcript, repeats, total = Transcript(session.messages), _Repeats(), Tally()
    plain, decoded = Transcript(session.messages, session.tools, is_decoded=True), Tally()
    changed = refused = answered = rereads = 0
    for sent in requests:
        for message in transcript.extend(sent.stop):
            repeats.note(message)
        plain.extend(sent.stop)
        if sent.messages is None:
            refused += 1
            continue
        for raw in session.messages[sent.stop : sent.stop + 1]:
            answer = transcript.read(raw)
            answered += len(answer.calls)
            if not _is_same(sent.messages, session.messages[: sent.stop]):
                forwarded = list(map(transcript.read, sent.messages))
                changed += 1
                total.add(transcript.measure(answer, forwarded))
                decoded.add(plain.measure(plain.read(raw), map(plain.read, sent.messages)))
                rereads += repeats.count(answer, forwarded)
    return Measured(session.id, tuple(ledger.calls), total, decoded, changed, refused, answered, rereads)


def _is_same(forwarded: Sequence[bytes], original: Sequence[bytes]) -> bool:
    return len(forwarded) == len(original) and all(map(bytes.__eq__, forwarded, original))
