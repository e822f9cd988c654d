"""Names the session of a request: by what the client says, else by its first messages.

Law: only a hash of what the client says leaves this module. No decision about a request depends on the name.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256

import msgspec

from trimtab.proxy.account.sessions import MAX_MESSAGES, NAME_CHARS, Transcript
from trimtab.proxy.compaction.compactor import Planned
from trimtab.proxy.exchange.arrival import Arrival
from trimtab.proxy.exchange.services import Services
from trimtab.proxy.wire.codec import Request
from trimtab.proxy.wire.json import DECODE_ERRORS, decode_member
from trimtab.proxy.wire.transcript.body import KeptBody, read_outside
from trimtab.rules.conversation import Role, count_asked, count_leading, ends_with_prefill
from trimtab.rules.pipeline.plan import Plan
from trimtab.rules.tokens.messages import as_schema

CLASS, COMPACTION = "x-claude-code-request-class", "x-claude-code-compaction"
"""Claude Code's hints, which it sends with CLAUDE_CODE_GATEWAY_HINT_HEADERS=1. Source: its gateway protocol."""
BETAS, _ON_DEMAND_TYPE = "anthropic-beta", "compaction.type"
_ON_DEMAND = f"{_ON_DEMAND_TYPE}=summarize"
"""What asks Anthropic for its compaction on demand. Source: its page on that."""
CLASSES = frozenset({"main", "subagent", "workflow", "auxiliary"})
MAX_OUTSIDE_BYTES = 1024 * 1024
"""Members beside a longer transcript are not searched for fields. Chosen: reading them would take milliseconds."""
MAX_FIELD_BYTES = 16 * 1024
"""A longer member says nothing of a session. Chosen: far above the longest id."""


def name_session(services: Services, arrival: Arrival, model: str, planned: Planned) -> str:
    """The name of a planned request's session.

    Requests with the same ids in headers belong to one session if they begin alike. Without such ids, sessions that
    begin alike are told apart by the first message that differs. If the upstream holds the messages before, the ids
    alone decide.
    """
    config, original, hashes = services.config.sessions, planned.original, planned.plan.hashes
    by_headers = _read_headers(arrival, config.headers)
    told = "\0".join([*by_headers, *_read_fields(planned.request, config.fields)])
    client = f"session {arrival.tenant.id} {model}" + (told and f"\0{told}")
    task = planned.plan.window.task
    opening = min(count_leading(original.messages) if task is None else task, len(hashes) - 2) + 1
    begun = b"" if original.continues and told else hashes[opening]
    name = _hash(client, begun)
    if by_headers or original.continues:
        return name
    return _find(services, planned.plan, name, opening)


@lru_cache(maxsize=1024)
def _hash(client: str, begun: bytes) -> str:
    return sha256(client.encode("utf-8", "surrogatepass") + b"\0" + begun).hexdigest()[:NAME_CHARS]


def _find(services: Services, plan: Plan, name: str, opening: int) -> str:
    """The name among the sessions that begin alike."""
    messages, hashes, names = plan.conversation.messages, plan.hashes, services.session_names
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


def tells_compaction(arrival: Arrival, request: Request) -> bool | None:
    """Whether the client says that it asks for a summary of its conversation; None if it says nothing of that."""
    named = arrival.named
    if BETAS in named and "compact-" in named[BETAS] and _ON_DEMAND in _read_fields(request, (_ON_DEMAND_TYPE,)):
        return True
    if CLASS not in named and COMPACTION not in named:
        return None
    kind = named.get(CLASS, "").strip().lower()
    if named.get(COMPACTION, "").strip().lower() not in {"", "0", "false"} or kind == "compaction":
        return True
    return False if kind in CLASSES else None


def _read_headers(arrival: Arrival, names: Sequence[str]) -> list[str]:
    """The ids in headers, with their names, in the order of the configuration; of a side call, also that it is one."""
    named = arrival.named
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
