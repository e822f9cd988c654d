"""What one process has of one model, and how that moves between clients, their upstream, and the store.

Law: no I/O and no clock. A client can name any model and have it refused; what that teaches stays in this process and
with that name until an upstream has answered for the model. Only then is a record written, and only by a record does
another process learn anything. Whom it is about besides, hypotheses.py says.
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
"""What caused it, what held before, and what holds now."""


@dataclass(slots=True)
class Model:
    """One model. `known` is its family's, the store's last record, or what a refusal has made of it since.

    `is_vouched`: its upstream has answered a request with success. Only then is anything of it written: names can be
    invented. `is_taught`: a refusal has taught what the store does not have; so until the next record is used.
    `generation` is how many records the store has of it, `discovered` the window that its upstream told last.
    `cut_requests` is how many requests something learned has cut since it was tested last, `most_answered` the longest
    prompt that was answered.
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
        """What requests are planned by."""
        facts = recall(self.known)
        return (
            facts if self.most_answered <= facts.answered_tokens else replace(facts, answered_tokens=self.most_answered)
        )

    def find_changes(self, believed_tokens: int, lesson: Lesson, now: float) -> dict[str, Any]:
        """What a lesson about a window of `believed_tokens` changes of the record."""
        return find_changes(believed_tokens, lesson, self.known, now=now)

    def take_test(self, of_all: Record) -> bool:
        """Something learned has cut a request; whether that is to go out as if nothing had been learned."""
        self.cut_requests += 1
        is_due = is_test_due(self.known, of_all, self.cut_requests)
        self.cut_requests = 0 if is_due else self.cut_requests
        return is_due

    def forget(self, record: Record) -> None:
        """Begin anew with a record."""
        self.known, self.is_taught, self.cut_requests = record, False, 0
        self.calibration = Calibration()

    def teach(self, changes: dict[str, Any]) -> None:
        """Learn what a lesson changes, in this process alone."""
        if changes:
            self.known = msgspec.structs.replace(self.known, **changes)
            self.is_taught = True

    def adopts(self, generation: int, record: Record) -> bool:
        """Whether a record that was read is to be used: a newer one, or another in its place; not over a lesson."""
        is_another = record.ratio != self.known.ratio and not self.is_taught
        return generation > self.generation or is_another

    def adopt(self, generation: int, record: Record) -> list[Change]:
        """Go by a record from now on; what that changes."""
        before = self.known
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
