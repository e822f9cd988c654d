"""Names the session of a request: by what the client says, else by its first messages.

A session that begins alone has the name of its beginning, in every process. If others begin with the same messages,
each gets a name of its own, derived from its first message that differs from theirs.

Law: only a hash of what the client says leaves this module. No decision about a request depends on the name. Bounded in
memory.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from operator import itemgetter

import msgspec
from msgspec.structs import replace

from trimtab.proxy.account.outcome import NAME_CHARS
from trimtab.proxy.compaction.compactor import Planned
from trimtab.proxy.config.schema import SessionsConfig
from trimtab.proxy.lru import BytesLRU
from trimtab.proxy.wire.codec import Request
from trimtab.proxy.wire.json import DECODE_ERRORS, decode_member
from trimtab.proxy.wire.transcript.body import KeptBody, read_outside
from trimtab.rules.conversation import Message, Role, count_asked, count_leading, ends_with_prefill
from trimtab.rules.pipeline.plan import Plan
from trimtab.rules.tokens.messages import as_schema

MAX_NAMES_BYTES = 8 * 1024 * 1024  # chosen: some thousand sessions of some hundred messages
MAX_MESSAGES = 1024  # Of a beginning that tells sessions apart. Chosen: sessions differ far earlier.
MAX_ALIKE = 32  # Sessions told apart with the same beginning. Chosen: those of a busy hour; the oldest is forgotten.
MAX_COMPARED, MAX_SAMPLE = 4, 64
"""Of these, the newest that are searched for a transcript's newest messages, and the number of these. Chosen: it takes
a millisecond at most."""
PRINT_BYTES = 8  # Bytes that are kept of a hash. Chosen: two messages of one place are never the same by accident.
LINE_BYTES = 400  # What a session takes beside its fingerprints. An estimate for CPython.
CLASS, COMPACTION = "x-claude-code-request-class", "x-claude-code-compaction"
"""Claude Code's hints, which it sends with CLAUDE_CODE_GATEWAY_HINT_HEADERS=1. Source: its gateway protocol."""
BETAS, _ON_DEMAND_TYPE = "anthropic-beta", "compaction.type"
_ON_DEMAND = f"{_ON_DEMAND_TYPE}=summarize"
"""What asks Anthropic for its compaction on demand. Source: its page on that."""
CLASSES = frozenset({"main", "subagent", "workflow", "auxiliary"})
MAX_OUTSIDE_BYTES = 1024 * 1024  # Searched beside the transcript. Chosen: reading more would take milliseconds.
MAX_FIELD_BYTES = 16 * 1024  # A longer member says nothing of a session. Chosen: far above the longest id.
Named = Mapping[str, str]  # Headers by their names, in lower case


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
            MAX_NAMES_BYTES,
            lambda _, lines: sum(LINE_BYTES + len(one.last.prefixes) + len(one.last.messages) for one in lines),
        )

    def follow(self, beginning: str, hashes: Sequence[bytes], messages: Sequence[Message], answered: int) -> str | None:
        """As `find`, if the only session of this beginning goes on; else None. Reads only what is new."""
        lines = self._alike.get(beginning)
        if lines is None or len(lines) != 1:
            return None
        last, new = lines[0].last, len(hashes) - 1
        known = len(last.prefixes) // PRINT_BYTES
        if not 0 < known <= new or hashes[known][:PRINT_BYTES] != last.prefixes[-PRINT_BYTES:]:
            return None
        if known < new and known < MAX_MESSAGES:
            prefixes = [one[:PRINT_BYTES] for one in hashes[known + 1 : MAX_MESSAGES + 1]]
            prints = [one.digest[:PRINT_BYTES] for one in messages[known:MAX_MESSAGES]]
            longer = Transcript(
                b"".join((last.prefixes, *prefixes)), b"".join((last.messages, *prints)), last.opening, answered
            )
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


def name_session(
    names: SessionNames, config: SessionsConfig, named: Named, tenant_id: str, model: str, planned: Planned
) -> str:
    """The name of a planned request's session. `named`: the first header of each name.

    Requests with the same ids in headers belong to one session if they begin alike. Without such ids, sessions that
    begin alike are told apart by the first message that differs. If the upstream holds the messages before, the ids
    alone decide.
    """
    original, hashes = planned.original, planned.plan.hashes
    by_headers = _read_headers(named, config.headers)
    told = "\0".join([*by_headers, *_read_fields(planned.request, config.fields)])
    client = f"session {tenant_id} {model}" + (told and f"\0{told}")
    task = planned.plan.window.task
    opening = min(count_leading(original.messages) if task is None else task, len(hashes) - 2) + 1
    begun = b"" if original.continues and told else hashes[opening]
    name = _hash(client, begun)
    if by_headers or original.continues:
        return name
    return _find(names, planned.plan, name, opening)


@lru_cache(maxsize=1024)
def _hash(client: str, begun: bytes) -> str:
    return sha256(client.encode("utf-8", "surrogatepass") + b"\0" + begun).hexdigest()[:NAME_CHARS]


def _find(names: SessionNames, plan: Plan, name: str, opening: int) -> str:
    messages, hashes = plan.conversation.messages, plan.hashes
    asked = count_asked(messages)
    # Nearly all requests end with another role, so nearly all are spared the call.
    if messages and messages[-1].role is Role.ASSISTANT and ends_with_prefill(messages):
        messages, hashes = messages[:-1], hashes[:-1]
    is_answered = asked < len(messages) and messages[asked].role is Role.ASSISTANT
    answered = asked + 1 if is_answered else 0
    found = names.follow(name, hashes, messages, answered)
    if found is None:
        digests = [message.digest for message in messages[:MAX_MESSAGES]]
        found = names.find(name, Transcript.of(hashes, digests, opening, answered))
    return found


def tells_compaction(named: Named, request: Request) -> bool | None:
    """Whether the client says that it asks for a summary of its conversation; None if it says nothing of that."""
    if BETAS in named and "compact-" in named[BETAS] and _ON_DEMAND in _read_fields(request, (_ON_DEMAND_TYPE,)):
        return True
    if CLASS not in named and COMPACTION not in named:
        return None
    kind = named.get(CLASS, "").strip().lower()
    if named.get(COMPACTION, "").strip().lower() not in {"", "0", "false"} or kind == "compaction":
        return True
    return False if kind in CLASSES else None


def _read_headers(named: Named, names: Sequence[str]) -> list[str]:
    """The ids in headers, with their names, in the order of the configuration; of a side call, also that it is one."""
    if named.keys().isdisjoint(names):
        return []
    told = [f"{name}={named[name]}" for name in names if named.get(name)]
    if told and named.get(CLASS, "").strip().lower() == "auxiliary":
        told.append(f"{CLASS}=auxiliary")
    return told


@lru_cache(maxsize=16)
def _quote(paths: tuple[str, ...]) -> tuple[tuple[str, bytes], ...]:
    return tuple([(path, f'"{path.partition(".")[0]}"'.encode()) for path in paths])


def _read_fields(request: Request, fields: tuple[str, ...]) -> list[str]:
    body, kept_body = request.body, request.kept_body
    if len(body) - (0 if kept_body is None else kept_body.array.stop - kept_body.array.start) > MAX_OUTSIDE_BYTES:
        return []
    around = body if kept_body is None else body[: kept_body.array.start] + body[kept_body.array.stop :]
    paths = [path for path, quoted in _quote(fields) if quoted in around]
    return [*_read_members(body, kept_body, paths)] if paths else []


def _read_members(body: bytes, kept_body: KeptBody | None, paths: Iterable[str]) -> Iterator[str]:
    members: dict[str, msgspec.Raw] = {}
    with suppress(*DECODE_ERRORS):
        members = read_outside(body, kept_body)
    for path in paths:
        name, _, rest = path.partition(".")
        raw = members.get(name)
        if raw is not None and len(bytes(raw)) <= MAX_FIELD_BYTES and (told := _read_id(raw, rest)):
            yield f"{path}={told}"


def _read_id(raw: msgspec.Raw, name: str) -> str:
    """A text or number: the member itself, or its member `name`, or its `id`; empty if it is something else."""
    value: object = None
    with suppress(*DECODE_ERRORS):
        value = decode_member(raw)
    if name or isinstance(value, dict):
        value = as_schema(value).get(name or "id")
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
