"""The measure of needed identifiers in full: by class, and what was removed but is recalled by the text instead.

Law: a definition that does not change, so that figures of different days compare. Nobody answers from the shorter
prompt: the answer is the one that followed in the recording.
"""

import re
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

CLASSES = ("path", "url", "id", "number", "name", "address")
"""The classes: `id` are ids and hashes, `number` digits only, `name` is dotted, snake or camel case, `address` is a
mail address."""
_NUMBER = re.compile(r"#?[\d-]+")
_NAME = re.compile(r"[A-Za-z]+(?:_[A-Za-z0-9]+)+|[a-z]+[A-Z]\w+")


def classify(identifier: str) -> str:
    """The one of CLASSES to which an identifier belongs."""
    if "://" in identifier:
        return "url"
    if "/" in identifier:
        return "path"
    if "@" in identifier:
        return "address"
    if _NUMBER.fullmatch(identifier):
        return "number"
    return "name" if "." in identifier or _NAME.fullmatch(identifier) else "id"


@dataclass(frozen=True, slots=True)
class Named:
    """A message as the measure sees it.

    `canonical` is equal for equal messages. `ids` are those of its calls, or of the call that it answers.
    """

    canonical: Hashable
    names: frozenset[str]
    ids: frozenset[str | None]


@dataclass(slots=True)
class Tally:
    """Sums over requests, by class of identifier.

    `needed`: identifiers of the next answer that the transcript contained. `kept`: those of them that are forwarded in
    some form. `removed`: needed identifiers that no forwarded original message contains. `recalled`: those of the
    removed that are in the text that replaced the messages.
    """

    needed: Counter[str] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)
    removed: Counter[str] = field(default_factory=Counter)
    recalled: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Tally") -> None:
        """Add the sums of another."""
        self.needed += other.needed
        self.kept += other.kept
        self.removed += other.removed
        self.recalled += other.recalled

    def share_kept(self, kind: str | None = None) -> float | None:
        """Kept divided by needed, of one class or of all; None if nothing was needed."""
        return _divide(self.kept, self.needed, kind)

    def share_recalled(self, kind: str | None = None) -> float | None:
        """Recalled divided by removed; None if nothing was removed."""
        return _divide(self.recalled, self.removed, kind)


def sum_tallies(tallies: Iterable[Tally]) -> Tally:
    """The sum of several."""
    total = Tally()
    for tally in tallies:
        total.add(tally)
    return total


def _divide(part: Counter[str], whole: Counter[str], kind: str | None) -> float | None:
    total = whole.total() if kind is None else whole[kind]
    return (part.total() if kind is None else part[kind]) / total if total else None


@dataclass(slots=True)
class Known:
    """What a transcript up to a request holds. It only grows. `declared`: names that are in each request anyway."""

    names: set[str] = field(default_factory=set)
    declared: frozenset[str] = frozenset()
    _same: set[Hashable] = field(default_factory=set)
    _ids: set[str | None] = field(default_factory=set)

    def add(self, message: Named) -> None:
        """Add the next message."""
        self.names |= message.names
        self._same.add(message.canonical)
        self._ids |= message.ids

    def _is_carried_over(self, message: Named) -> bool:
        """Whether it equals a message of the client, or is the call or the result of one, whatever its text is."""
        return message.canonical in self._same or not self._ids.isdisjoint(message.ids)

    def measure(self, answer: Named, forwarded: Iterable[Named]) -> Tally:
        """Which identifiers the answer needs, and which of them are forwarded."""
        tally = Tally()
        wanted = answer.names & self.names
        if not wanted:
            return tally
        over = set(wanted & self.declared)
        rest: set[str] = set()
        for message in forwarded:
            found = wanted & message.names
            if found:
                (over if self._is_carried_over(message) else rest).update(found)
        removed = wanted - over
        tally.needed.update(map(classify, wanted))
        tally.kept.update(map(classify, wanted & (over | rest)))
        tally.removed.update(map(classify, removed))
        tally.recalled.update(map(classify, removed & rest))
        return tally
