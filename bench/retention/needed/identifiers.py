"""The identifiers in texts, and those that an answer needs.

Law: whole identifiers only, and a definition that does not change, so that figures of different days compare. Pure,
except that messages that were read are remembered.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import orjson

CLASSES = ("path", "url", "id", "number", "name", "address")
"""The classes: `id` are ids and hashes, `number` digits only, `name` is dotted, snake or camel case, `address` is a
mail address."""
LEAST_CHARS = 5
MOST_CHARS = 200
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


@lru_cache(maxsize=100_000)
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
class Worded:
    """A message as the measure sees it.

    `canonical` is its JSON with sorted keys. `ids` are those of its calls, or of the call that it answers. `calls` are
    (id, name, arguments) each.
    """

    role: str
    canonical: bytes
    text: str
    names: frozenset[str]
    ids: frozenset[str | None]
    calls: tuple[tuple[str | None, str, str], ...]


@lru_cache(maxsize=200_000)
def read_worded(raw: bytes) -> Worded:
    """Read a message from its JSON. The same bytes are read once."""
    message: dict[str, Any] = orjson.loads(raw)
    functions = [(call.get("id"), call.get("function") or {}) for call in message.get("tool_calls") or ()]
    calls = tuple((name, str(each.get("name") or ""), str(each.get("arguments") or "")) for name, each in functions)
    text = _read_text(message.get("content"))
    wording = text + "\n" + "\n".join(f"{name} {arguments}" for _, name, arguments in calls)
    role = str(message.get("role") or "")
    ids = {message.get("tool_call_id")} if role == "tool" else {call[0] for call in calls}
    canonical = orjson.dumps(message, option=orjson.OPT_SORT_KEYS)
    return Worded(role, canonical, text, find_identifiers(wording), frozenset(ids), calls)


def _read_text(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(str(part.get("text") or "") for part in parts if isinstance(part, dict))


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


class Transcript:
    """A session's messages up to a request, as the measure needs them. It only grows."""

    def __init__(self, messages: Sequence[bytes]) -> None:
        self._messages = messages
        self._read = 0
        self._names: set[str] = set()
        self._same: set[bytes] = set()
        self._ids: set[str | None] = set()

    def extend(self, stop: int) -> Iterator[Worded]:
        """Add the messages before `stop`; return the new ones."""
        for raw in self._messages[self._read : stop]:
            message = read_worded(raw)
            self._names |= message.names
            self._same.add(message.canonical)
            self._ids |= message.ids
            yield message
        self._read = max(self._read, stop)

    def _is_carried_over(self, message: Worded) -> bool:
        """Whether it equals a message of the client, or is the call or the result of one, whatever its text is."""
        return message.canonical in self._same or not self._ids.isdisjoint(message.ids)

    def measure(self, answer: Worded, forwarded: Sequence[Worded]) -> Tally:
        """Which identifiers the answer needs, and which of them are forwarded."""
        tally = Tally()
        wanted = answer.names & self._names
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
