"""The identifiers that the next answer needs, and whether they are still forwarded.

Law: whole identifiers only, and a definition that does not change, so that figures of different days compare. Nobody
answers from the shorter prompt: the answer is the one that followed in the recording.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from trimtab.proxy.lru import BytesLRU
from trimtab.rules.conversation import Conversation, Message, Role

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
MAX_READ_BYTES = 64 * 1024 * 1024
MAX_WAITING_BYTES = 256 * 1024 * 1024
"""Of messages that were read, and of requests whose answer has not come. Chosen: some hundred long sessions."""
TOKEN_BYTES, MESSAGE_BYTES, IDENTIFIER_BYTES = 4, 64, 120
"""What a token, a message that several conversations share, and an identifier cost. Estimates for CPython."""


def find_identifiers(text: str) -> frozenset[str]:
    found = (word.strip(_STRIPPED) for word in _IDENTIFIER.findall(text))
    return frozenset(word for word in found if LEAST_CHARS <= len(word) <= MOST_CHARS)


@dataclass(slots=True)
class Tally:
    """Sums over requests.

    `needed`: identifiers of the next answer that the transcript contained. `kept`: those of them that are forwarded in
    some form.
    """

    needed: int = 0
    kept: int = 0

    def share_kept(self) -> float | None:
        return self.kept / self.needed if self.needed else None


@dataclass(slots=True)
class Needed:
    """The needed identifiers of requests, by the variant in which they were forwarded.

    A request is measured when the next one of its session comes, because that one holds the answer.
    """

    tallies: dict[str, Tally] = field(default_factory=dict)
    _read: "BytesLRU[tuple[str, ...], frozenset[str]]" = field(
        default_factory=lambda: BytesLRU(
            MAX_READ_BYTES, lambda key, names: sum(map(len, key)) + len(names) * IDENTIFIER_BYTES
        )
    )
    _waiting: "BytesLRU[str, tuple[Conversation, dict[str, Conversation]]]" = field(
        default_factory=lambda: BytesLRU(MAX_WAITING_BYTES, lambda _, one: _weigh(*one))
    )

    def add(self, session: str, original: Conversation, forwarded: dict[str, Conversation]) -> None:
        """Measure the session's request before this one, and keep this one. `forwarded`: by variant, if it was sent."""
        before = self._waiting.get(session)
        self._waiting[session] = original, forwarded
        for name in forwarded:
            self.tallies.setdefault(name, Tally())
        if before is None or (answer := _find_answer(before[0].messages, original.messages)) is None:
            return
        changed = {name: sent for name, sent in before[1].items() if sent.messages != before[0].messages}
        wanted = self._name(answer) & self._name(*before[0].messages) if changed else frozenset()
        for name, sent in changed.items() if wanted else ():
            tally = self.tallies.setdefault(name, Tally())
            tally.needed += len(wanted)
            tally.kept += len(wanted & self._name(*sent.messages))

    def _name(self, *messages: Message) -> frozenset[str]:
        """The identifiers in some messages. Each message is read once."""
        found: set[str] = set()
        for message in messages:
            key = tuple(_list_texts(message))
            names = self._read.get(key)
            if names is None:
                names = self._read[key] = find_identifiers("\n".join(key))
            found |= names
        return frozenset(found)


def _list_texts(message: Message) -> Iterator[str]:
    yield from message.texts
    yield from (f"{call.name} {call.arguments}" for call in message.tool_calls)


def _find_answer(before: Sequence[Message], after: Sequence[Message]) -> Message | None:
    """The model's answer to a request, which the next one holds; None if that one does not continue it."""
    at = len(before)
    is_continued = 0 < at < len(after) and after[at - 1] == before[-1] and after[at].role is Role.ASSISTANT
    return after[at] if is_continued else None


def _weigh(original: Conversation, forwarded: Mapping[str, Conversation]) -> int:
    return TOKEN_BYTES * original.tokens + MESSAGE_BYTES * len(original.messages) * (1 + len(forwarded))
