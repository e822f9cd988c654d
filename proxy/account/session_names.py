"""Names the sessions that begin alike, by the first message in which they differ.

Law: it only observes: no decision about a request depends on a name. Bounded in memory. A session that begins alone
has the name of its beginning, in every process. If others begin with the same messages, each gets a name of its own,
derived from its first message that differs from theirs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from operator import itemgetter

from trimtab.proxy.lru import BytesLRU
from trimtab.rules.conversation import Message

NAME_CHARS = 16
"""Length of a session's name, in hexadecimal digits. Chosen: 64 bits; the names of a million sessions differ."""
MAX_BYTES = 8 * 1024 * 1024  # chosen: some thousand sessions of some hundred messages
MAX_MESSAGES = 1024
"""Messages at the beginning of a session that tell it from others. Chosen: sessions differ far earlier."""
MAX_ALIKE = 32
"""Sessions with the same beginning that are told apart. Chosen: those of a busy hour; the oldest is forgotten."""
MAX_COMPARED, MAX_SAMPLE = 4, 64
"""Of these, the newest that are searched for a transcript's newest messages, and the number of these. Chosen: it takes
a millisecond at most."""
PRINT_BYTES = 8
"""Bytes that are kept of a hash. Chosen: two messages of one place are never the same by accident."""
LINE_BYTES = 400
"""What a session takes beside its fingerprints. An estimate for CPython."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """What is known of a transcript.

    prefixes: fingerprints of its prefixes, by number of messages. messages: those of its messages.
    opening: number of messages up to the first one of the user.
    answered: number of messages up to the last one of the assistant.
    """

    prefixes: bytes
    messages: bytes
    opening: int
    answered: int

    @classmethod
    def of(cls, hashes: Sequence[bytes], digests: Sequence[bytes], opening: int, answered: int) -> "Transcript":
        """From the hashes of prefixes, from 0 messages on, and the digests of messages."""
        prefixes = b"".join([one[:PRINT_BYTES] for one in hashes[1 : MAX_MESSAGES + 1]])
        messages = b"".join([one[:PRINT_BYTES] for one in digests[:MAX_MESSAGES]])
        return cls(prefixes, messages, opening, answered)

    def __len__(self) -> int:
        return len(self.prefixes) // PRINT_BYTES

    def prefix(self, number: int) -> bytes:
        """The fingerprint of the first `number` messages."""
        return self.prefixes[(number - 1) * PRINT_BYTES : number * PRINT_BYTES]

    def list_messages(self, start: int) -> frozenset[bytes]:
        """The fingerprints of the messages from `start` on."""
        places = range(start * PRINT_BYTES, len(self.messages), PRINT_BYTES)
        return frozenset(self.messages[at : at + PRINT_BYTES] for at in places)

    def count_common(self, other: "Transcript") -> int:
        """How many messages both begin with: equal prefixes have equal fingerprints."""
        low, high = 0, min(len(self), len(other))
        if self.prefix(high) == other.prefix(high):  # the usual case: one goes on with the other
            return high
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.prefix(middle) == other.prefix(middle) else (low, middle - 1)
        return low


@dataclass(frozen=True, slots=True)
class _Line:
    """A session: its name, and its longest transcript."""

    name: str
    last: Transcript


class SessionNames:
    """The sessions seen lately, by the name of their beginning. For one thread."""

    def __init__(self) -> None:
        self._alike: BytesLRU[str, tuple[_Line, ...]] = BytesLRU(MAX_BYTES, lambda _, lines: sum(map(_weigh, lines)))

    def follow(self, beginning: str, hashes: Sequence[bytes], messages: Sequence[Message], answered: int) -> str | None:
        """As `find`, for a transcript that goes on with the only session of this beginning; else None.

        The usual case. It reads only what is new, so that a long session costs no more than a short one.
        """
        lines = self._alike.get(beginning)
        if lines is None or len(lines) != 1:
            return None
        last, new = lines[0].last, len(hashes) - 1
        known = len(last)
        if not 0 < known <= new or hashes[known][:PRINT_BYTES] != last.prefixes[-PRINT_BYTES:]:
            return None
        if known < new and known < MAX_MESSAGES:
            added = Transcript.of(
                hashes[known:], [one.digest for one in messages[known:MAX_MESSAGES]], last.opening, answered
            )
            prefixes = (last.prefixes + added.prefixes)[: MAX_MESSAGES * PRINT_BYTES]
            longer = Transcript(prefixes, last.messages + added.messages, last.opening, answered)
            self._alike[beginning] = (_Line(lines[0].name, longer),)
        return lines[0].name

    def find(self, beginning: str, transcript: Transcript) -> str:
        """The name of a transcript's session; the transcript is kept. `beginning`: the name if no other is alike."""
        lines = self._alike.get(beginning) or ()
        found = _choose(lines, transcript)
        if found is None:
            found = _Line(_name(beginning, lines, transcript) if lines else beginning, transcript)
        others = [line for line in lines if line.name != found.name]
        if found.last.count_common(transcript) < len(transcript):
            found = replace(found, last=transcript)
        self._alike[beginning] = (*others[-(MAX_ALIKE - 1) :], found)
        return found.name


def _choose(lines: Sequence[_Line], transcript: Transcript) -> _Line | None:
    """The session that a transcript belongs to; None for another one than all of them."""
    alike = [(common, line) for line in lines if (common := _count_alike(line.last, transcript)) is not None]
    if alike:
        return max(reversed(alike), key=itemgetter(0))[1]
    return next((line for line in lines[: -MAX_COMPARED - 1 : -1] if _is_rewritten(line.last, transcript)), None)


def _count_alike(known: Transcript, transcript: Transcript) -> int | None:
    """How many messages a transcript shares with the session `known`, if it goes on with it; else None."""
    common = known.count_common(transcript)
    if common == len(known):
        return common
    if common == len(transcript):  # it was sent before; a mere opening begins another session
        return common if len(transcript) > transcript.opening else None
    # What the model had not answered yet may be written otherwise when the session goes on.
    return common if transcript.answered > known.answered > 0 and common >= known.answered else None


def _is_rewritten(known: Transcript, transcript: Transcript) -> bool:
    """Whether a client has dropped or rewritten old messages of a session: it still sends most of the others."""
    common = known.count_common(transcript)
    left = transcript.list_messages(max(common, len(transcript) - MAX_SAMPLE))
    return 2 * len(left & known.list_messages(common)) > len(left)


def _name(beginning: str, lines: Sequence[_Line], transcript: Transcript) -> str:
    """The name of a session that is another than all of `lines`."""
    common = max(line.last.count_common(transcript) for line in lines)
    names = ",".join(sorted(line.name for line in lines)).encode()
    differs = transcript.prefix(common + 1) if common < len(transcript) else names
    return sha256(beginning.encode() + b"\0" + differs).hexdigest()[:NAME_CHARS]


def _weigh(line: _Line) -> int:
    return LINE_BYTES + len(line.last.prefixes) + len(line.last.messages)
