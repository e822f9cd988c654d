"""What one process knows of one model, and when that may be written to the store.

Law: no I/O and no clock. Nothing is written of a model until its upstream has answered a request for it with success:
anybody can invent a name and have it refused. Other processes learn only from written records. hypotheses.py says for
which clients something learned counts.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from proxy.state.models.calibration import Calibration
from proxy.state.models.facts import Facts, recall
from proxy.state.models.hypotheses import is_test_due
from proxy.state.models.lessons import Lesson, find_changes
from proxy.state.models.records import Record

Change = tuple[str, float | None, float | None]
"""The cause (a label of the metric), the value before, and the value now."""


@dataclass(slots=True)
class Model:
    """One model, as known to one client or to all.

    known: the family's defaults at first, then the last record, changed by lessons since.
    is_vouched: the upstream has answered a request for this model with success, so its name is not invented.
    is_taught: a lesson changed `known`, and no record has it yet.
    generation: number of records that the store has, as far as this process knows.
    discovered: the window that the upstream reported, as last taken into `known`.
    cut_requests: requests that were cut because of something learned, since the last test.
    most_answered: the longest answered prompt, in the model's tokens.
    """

    known: Record
    is_vouched: bool = False
    is_taught: bool = False
    generation: int = 0
    discovered: int | None = None
    cut_requests: int = 0
    most_answered: int = 0
    calibration: Calibration = field(default_factory=Calibration)

    @property
    def facts(self) -> Facts:
        """The facts that requests are planned with."""
        facts = recall(self.known)
        return (
            facts if self.most_answered <= facts.answered_tokens else replace(facts, answered_tokens=self.most_answered)
        )

    def find_changes(self, believed_tokens: int, lesson: Lesson, now: float) -> dict[str, Any]:
        """The fields of the record that a lesson changes (see `lessons.find_changes`)."""
        return find_changes(believed_tokens, lesson, self.known, now=now)

    def take_test(self, of_all: Record) -> bool:
        """Count a request that was cut because of something learned. Returns True if it is to be sent as a test."""
        self.cut_requests += 1
        is_due = is_test_due(self.known, of_all, self.cut_requests)
        self.cut_requests = 0 if is_due else self.cut_requests
        return is_due

    def forget(self, record: Record) -> None:
        """Start again with a record, without samples and without an unwritten lesson."""
        self.known, self.is_taught, self.cut_requests = record, False, 0
        self.calibration = Calibration()

    def teach(self, changes: dict[str, Any]) -> None:
        """Apply the changes of a lesson in this process only."""
        if changes:
            self.known = msgspec.structs.replace(self.known, **changes)
            self.is_taught = True

    def adopts(self, generation: int, record: Record) -> bool:
        """Whether to use a record that was read.

        A newer one is used. So is one with another ratio, unless a lesson is not written yet: after an outage of the
        store, the record at the same place may be that of another process.
        """
        is_another = record.ratio != self.known.ratio and not self.is_taught
        return generation > self.generation or is_another

    def adopt(self, generation: int, record: Record) -> list[Change]:
        """Use a record from now on. Returns the values that changed."""
        before = self.known
        # The record may be from a process that has not asked for the window.
        self.known = msgspec.structs.replace(record, window_tokens=record.window_tokens or before.window_tokens)
        self.generation = generation
        self.calibration.restart(is_calibrated=record.calibrated)
        self.is_taught = False
        changes: list[Change] = [
            ("calibration", before.ratio, self.known.ratio),
            ("window", before.window_tokens, self.known.window_tokens),
            ("window", before.learned_tokens, self.known.learned_tokens),
        ]
        return [change for change in changes if change[1] != change[2]]
