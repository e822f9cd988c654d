"""The identifiers that the next answer needs, and whether they are still forwarded.

Law: whole identifiers only, and a definition that does not change, so that figures of different days compare. Nobody
answers from the shorter prompt: the answer is the one that followed in the recording.
"""

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from proxy.lru import BytesLRU
from rules.conversation import Conversation, Message, Role

CLASSES = ("path", "url", "id", "number", "name", "address")
"""The classes: `id` are ids and hashes, `number` digits only, `name` is dotted, snake or camel case, `address` is a
mail address."""
LEAST_CHARS, MOST_CHARS = 5, 200
"""Of an identifier. Source: the same definition as below."""
_STRIPPED = ".,:;-"
_IDENTIFIER = re.compile(
    r"""(?:[\w.+-]+@[\w-]+\.[\w.-]+)"""
    r"""|(?:https?://[^\s"'<>)\]]+)"""
    r"""|(?:(?:[\w.@~-]*/)+[\w.@~-]+)"""
    r"""|(?:[A-Za-z_]\w*(?:\.\w+)+)"""
    r"""|(?:\b[A-Za-z]+(?:_[A-Za-z0-9]+)+\b)"""
    r"""|(?:\b[a-z]+[A-Z]\w+\b)"""
    r"""|(?:#?\b(?=\w*\d)[A-Za-z0-9-]{5,}\b)"""
)
"""In this order: mail addresses, URLs, paths, dotted, snake and camel names, ids, and numbers of five characters and
more. Source: the definition in issue 16, copied exactly."""
_NUMBER = re.compile(r"#?[\d-]+")
_NAME = re.compile(r"[A-Za-z]+(?:_[A-Za-z0-9]+)+|[a-z]+[A-Z]\w+")
MAX_READ_BYTES = 64 * 1024 * 1024
MAX_WAITING_BYTES = 256 * 1024 * 1024
"""Of messages that were read, and of requests whose answer has not come. Chosen: some hundred long sessions."""
TOKEN_BYTES, MESSAGE_BYTES, IDENTIFIER_BYTES = 4, 64, 120
"""What a token, a message that several conversations share, and an identifier cost. Estimates for CPython."""


def find_identifiers(text: str) -> frozenset[str]:
    """The identifiers in a text."""
    found = (word.strip(_STRIPPED) for word in _IDENTIFIER.findall(text))
    return frozenset(word for word in found if LEAST_CHARS <= len(word) <= MOST_CHARS)


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
    """What a transcript up to a request holds. It only grows."""

    names: set[str] = field(default_factory=set)
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
        over: set[str] = set()
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


@dataclass(slots=True)
class Needed:
    """The needed identifiers of requests, by the name of the way in which they were forwarded.

    A request is measured when the next one of its session comes, because that one holds the answer.
    """

    tallies: dict[str, Tally] = field(default_factory=dict)
    _read: "BytesLRU[tuple[str, ...], Named]" = field(
        default_factory=lambda: BytesLRU(
            MAX_READ_BYTES, lambda key, one: sum(map(len, key)) + len(one.names) * IDENTIFIER_BYTES
        )
    )
    _waiting: "BytesLRU[str, tuple[Conversation, dict[str, Conversation]]]" = field(
        default_factory=lambda: BytesLRU(MAX_WAITING_BYTES, lambda _, one: _weigh(*one))
    )

    def add(self, session: str, original: Conversation, forwarded: dict[str, Conversation]) -> None:
        """Measure the session's request before this one, and keep this one. `forwarded`: by way, if it was sent."""
        before = self._waiting.get(session)
        self._waiting[session] = original, forwarded
        for name in forwarded:
            self.tallies.setdefault(name, Tally())
        if before is None or (answer := _find_answer(before[0].messages, original.messages)) is None:
            return
        changed = {name: sent for name, sent in before[1].items() if sent.messages != before[0].messages}
        wanted = self._name(answer)
        if not changed or not wanted.names:
            return
        known = Known()
        for message in before[0].messages:
            known.add(self._name(message))
        for name, sent in changed.items():
            self.tallies.setdefault(name, Tally()).add(known.measure(wanted, map(self._name, sent.messages)))

    def _name(self, message: Message) -> Named:
        calls = [f"{call.name} {call.arguments}" for call in message.tool_calls]
        key = (message.role, message.answers or "", *message.texts, "", *calls)
        named = self._read.get(key)
        if named is None:
            ids = {call.id for call in message.tool_calls} if message.role is not Role.TOOL else {message.answers}
            names = find_identifiers("\n".join((*message.texts, *calls)))
            named = self._read[key] = Named(key, names, frozenset(ids))
        return named


def _find_answer(before: Sequence[Message], after: Sequence[Message]) -> Message | None:
    """The model's answer to a request, which the next one holds; None if that one does not continue it."""
    at = len(before)
    is_continued = 0 < at < len(after) and after[at - 1] == before[-1] and after[at].role is Role.ASSISTANT
    return after[at] if is_continued else None


def _weigh(original: Conversation, forwarded: Mapping[str, Conversation]) -> int:
    return TOKEN_BYTES * original.tokens + MESSAGE_BYTES * len(original.messages) * (1 + len(forwarded))
