"""What is remembered of each session: its previous request, and its name.

Of the previous request: what was sent of it, and how the upstream's cache has treated the session. If it is unknown or
forgotten, that is said. A session that begins alone has the name of its beginning, in every process. If others begin
with the same messages, each gets a name of its own, derived from its first message that differs from theirs.

Law: it only observes: no decision about a request depends on it. Bounded in memory.
"""

import time
from collections.abc import Callable, Hashable, Sequence
from hashlib import sha256
from operator import attrgetter, itemgetter

import msgspec
from msgspec.structs import replace

from trimtab.proxy.account.prompt_cache import Cache, Prefix
from trimtab.proxy.lru import BytesLRU
from trimtab.rules.conversation import Conversation, Message, Role

MAX_BYTES = 16 * 1024 * 1024  # chosen: some hundred sessions of a thousand messages, or some twenty thousand short ones
MAX_NEWEST_BYTES = 1024 * 1024  # chosen: some three thousand sessions
FINGERPRINT_BYTES = 40  # an int of 64 bits in a tuple, in CPython
REQUEST_BYTES = 300  # What is kept of a request beside its fingerprints. Measured with CPython 3.12, rounded up.
HASH_BYTES = 80  # A hash of 32 bytes as an object: 65 bytes in CPython, rounded up to its blocks
MAX_NEW_MESSAGES = 1000
"""Messages by which a session may grow between two requests and still be recognised. Chosen: far above one turn."""

_NOTHING = bytes(32)  # The hash of a prefix without a message
Fingerprints = tuple[int, ...]
_Key = tuple[str, bytes]


class Sent(msgspec.Struct, frozen=True):
    """A request that was sent.

    original: the client's messages. forwarded: what was sent. fixed: the parts of the request outside its messages.
    age_seconds: how long ago that was. is_changed: trimtab changed it.
    """

    original: Sequence[Message]
    forwarded: Conversation
    fixed: Sequence[bytes]
    age_seconds: float = 0.0
    is_changed: bool = False


class Request(msgspec.Struct, frozen=True):
    """What is kept of a request.

    messages: the number of the client's messages. sent_at: seconds.
    fingerprints, tokens: of what was sent; the first is empty once another request has taken its place.
    outside: a hash of what the client said outside its messages, and in its system messages at the beginning.
    is_changed: trimtab changed it, or an earlier request of the session.
    """

    messages: int
    sent_at: float
    fingerprints: Fingerprints
    tokens: int
    outside: int
    is_changed: bool
    cache: Cache


class Seen(msgspec.Struct, frozen=True):
    """A request beside the previous one of its session.

    key: under which it is kept. before: the previous one; None if it is not known, or if the client has changed tools
    or instructions since. prefix: how what was sent begins, compared with it; None if that is not known.
    """

    key: _Key
    now: Request
    before: Request | None
    prefix: Prefix | None


class PreviousRequests:
    """The newest requests of all sessions, by the hash of their transcripts. Thread-safe.

    clock: seconds. The system's time by default: unlike the monotonic clock, it goes on while a laptop sleeps.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self._requests: BytesLRU[_Key, Request] = BytesLRU(
            MAX_BYTES, lambda _, request: FINGERPRINT_BYTES * len(request.fingerprints) + REQUEST_BYTES
        )
        # The last hash of the newest transcript with the same first message.
        self._newest: BytesLRU[_Key, bytes] = BytesLRU(MAX_NEWEST_BYTES, lambda *_: 2 * HASH_BYTES)

    def observe(
        self,
        client: str,
        hashes: Sequence[bytes],
        sent: Sent,
    ) -> Seen:
        """Compare a request with the previous one of its session, and keep it in its place.

        client: names all that has a prompt cache of its own: the tenant, the upstream, the model.
        hashes: of the transcript's prefixes. The previous request is the longest known one, at most
            MAX_NEW_MESSAGES shorter; if there is none, the last one with the same first message.
        """
        original, forwarded, fixed = sent.original, sent.forwarded, sent.fixed
        age_seconds, is_changed = sent.age_seconds, sent.is_changed
        tools = hash(tuple(fixed))
        systems = 0  # the hashes leave them out
        while systems < len(original) and original[systems].role is Role.SYSTEM:
            systems += 1
        fingerprints = (tools, *_list_fingerprints(forwarded.messages))
        is_same = forwarded.messages is original
        outside = hash(fingerprints[: systems + 1] if is_same else (tools, *_list_fingerprints(original[:systems])))
        key, found = self._find(client, hashes, outside)
        before = found if found is not None and found.outside == outside else None
        is_changed = is_changed or (before is not None and before.is_changed)
        cache, sent_at = Cache() if before is None else before.cache, self.clock() - age_seconds
        now = Request(len(original), sent_at, fingerprints, forwarded.tokens, outside, is_changed, cache)
        continues = found is not None and bool(found.fingerprints)
        last = found if continues else self._find_newest(client, hashes)
        prefix = None
        if last is not None:
            kept_tokens = _count_common(last.fingerprints, fingerprints, forwarded)
            pause_seconds = max(sent_at - last.sent_at, 0.0)
            is_ours = continues and before is not None
            prefix = Prefix(now.tokens, last.tokens, kept_tokens, pause_seconds, continues, is_ours)
        # Without an answer that the model is to go on with: later transcripts have the whole one.
        begun = bool(original) and original[-1].role is Role.ASSISTANT and hashes[-2:][0] != _NOTHING
        end = hashes[-2:][0] if begun else hashes[-1]
        if found is not None and continues and key[1] != end and found.outside == outside:
            self._requests[key] = replace(found, fingerprints=())
        return self._keep(client, hashes, end, now, before, prefix)

    def learn(self, seen: Seen, cache: Cache) -> None:
        if cache != seen.now.cache:
            kept = self._requests.get(seen.key)
            is_there = kept is None or kept.outside == seen.now.outside
            self._requests[seen.key if is_there else _set_apart(seen.key, seen.now.outside)] = replace(
                seen.now, cache=cache
            )

    def _find(self, client: str, hashes: Sequence[bytes], outside: int) -> tuple[_Key, Request | None]:
        """The longest known request that a transcript goes on with, and its key.

        Sessions may differ in their tools only, side by side. So of the same transcript the one with the same tools
        and instructions is taken; another one if there is none, because a client may change them within a session.
        """
        shortest, other = max(len(hashes) - 1 - MAX_NEW_MESSAGES, 0), None
        for known in hashes[:shortest:-1]:
            key = client, known
            found = self._requests.get(key)
            if found is None:
                continue
            if found.outside == outside:
                return key, found
            other = other or (key, found)
            own_key = _set_apart(key, outside)
            own = self._requests.get(own_key)
            if own is not None:
                return own_key, own
        return other or ((client, b""), None)

    def _find_newest(self, client: str, hashes: Sequence[bytes]) -> Request | None:
        """The newest request with the same first message; another branch may go on with it, so it stays."""
        first = _find_first(hashes)
        newest = None if first is None else self._newest.get((client, first))
        found = None if newest is None else self._requests.get((client, newest))
        return found if found is not None and found.fingerprints else None

    def _keep(
        self,
        client: str,
        hashes: Sequence[bytes],
        end: bytes,
        now: Request,
        before: Request | None,
        prefix: Prefix | None,
    ) -> Seen:
        key, first = (client, end), _find_first(hashes)
        other = self._requests.get(key)
        if other is not None and other.outside != now.outside:
            self._requests[_set_apart(key, other.outside)] = other
        self._requests[key] = now
        if first is not None:
            self._newest[client, first] = end
        return Seen(key, now, before, prefix)


def _set_apart(key: _Key, outside: int) -> _Key:
    """The key of a request while one with the same transcript, and other tools or instructions, has its own."""
    return f"{key[0]} {outside}", key[1]


def _find_first(hashes: Sequence[bytes]) -> bytes | None:
    for known in hashes:
        if known != _NOTHING:
            return known
    return None


_TELL_RAW, _TELL_EDITED = attrgetter("raw"), attrgetter("edited")


def _list_fingerprints(messages: Sequence[Message]) -> list[int]:
    """Hashes of the forwarded bytes, which remember them. Python's hash is keyed: nobody can construct a collision."""
    raws: list[Hashable] = list(map(_TELL_RAW, messages))
    if not all(raws) or any(map(_TELL_EDITED, messages)):
        raws = [one.raw if one.raw and not one.edited else _tell_written(one) for one in messages]
    return list(map(hash, raws))


def _tell_written(message: Message) -> Hashable:
    return message.raw, message.role, message.texts, message.media, message.tool_calls


def _count_common(before: Fingerprints, now: Fingerprints, forwarded: Conversation) -> int:
    if now[: len(before)] == before:  # the usual case: only new messages
        return forwarded.tokens - sum(message.tokens for message in forwarded.messages[len(before) - 1 :])
    tokens = 0
    sizes = (forwarded.fixed_tokens, *(message.tokens for message in forwarded.messages))
    for old, new, size in zip(before, now, sizes, strict=False):
        if old != new:
            break
        tokens += size
    return tokens


NAME_CHARS = 16
"""Length of a session's name, in hexadecimal digits. Chosen: 64 bits; the names of a million sessions differ."""
MAX_NAMES_BYTES = 8 * 1024 * 1024  # chosen: some thousand sessions of some hundred messages
MAX_MESSAGES = 1024
"""Messages at the beginning of a session that tell it from others. Chosen: sessions differ far earlier."""
MAX_ALIKE = 32
"""Sessions with the same beginning that are told apart. Chosen: those of a busy hour; the oldest is forgotten."""
MAX_COMPARED, MAX_SAMPLE = 4, 64
"""Of these, the newest that are searched for a transcript's newest messages, and the number of these. Chosen: it takes
a millisecond at most."""
PRINT_BYTES = 8  # Bytes that are kept of a hash. Chosen: two messages of one place are never the same by accident.
LINE_BYTES = 400  # What a session takes beside its fingerprints. An estimate for CPython.


class Transcript(msgspec.Struct, frozen=True):
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
        return self.prefixes[(number - 1) * PRINT_BYTES : number * PRINT_BYTES]

    def list_messages(self, start: int) -> frozenset[bytes]:
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


class _Line(msgspec.Struct, frozen=True):
    name: str
    last: Transcript


class SessionNames:
    """The sessions seen lately, by the name of their beginning. For one thread."""

    def __init__(self) -> None:
        self._alike: BytesLRU[str, tuple[_Line, ...]] = BytesLRU(
            MAX_NAMES_BYTES, lambda _, lines: sum(map(_weigh, lines))
        )

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
    common = max(line.last.count_common(transcript) for line in lines)
    names = ",".join(sorted(line.name for line in lines)).encode()
    differs = transcript.prefix(common + 1) if common < len(transcript) else names
    return sha256(beginning.encode() + b"\0" + differs).hexdigest()[:NAME_CHARS]


def _weigh(line: _Line) -> int:
    return LINE_BYTES + len(line.last.prefixes) + len(line.last.messages)
