"""The contestants that need no package: nothing, a sliding window, masking old tool results.

Law: pure; input is a session, output the messages of each of its requests, as JSON.
"""

from collections.abc import Callable, Iterator, Sequence

import orjson

from bench.material.workload import MODEL, Session
from bench.sessions.prompts import LEADERS, read_fixed, read_part

KEPT_RESULTS = 10
MASK = "[old tool result omitted]"

Requests = Iterator[Sequence[bytes]]
Contestant = Callable[[Session, int], Requests]


def send_everything(session: Session, _: int) -> Requests:
    """Send everything, as if there were no window."""
    for stop in session.stops:
        yield session.messages[:stop]


def slide_window(session: Session, limit_tokens: int) -> Requests:
    """Leading system messages and task, and the newest steps that fit; always at least the last step."""
    parts = [read_part(raw) for raw in session.messages]
    head = find_head(session)
    head_tokens = read_fixed(MODEL, session.tools).tokens + sum(parts[index].tokens for index in head)
    starts = [index for index, part in enumerate(parts) if part.role != "tool" or not index]
    first = 0
    for stop in session.stops:
        tokens = head_tokens + sum(parts[index].tokens for index in range(starts[first], stop) if index not in head)
        while tokens > limit_tokens and first + 1 < len(starts) and starts[first + 1] < stop:
            step = range(starts[first], starts[first + 1])
            tokens -= sum(parts[index].tokens for index in step if index not in head)
            first += 1
        yield [raw for index, raw in enumerate(session.messages[:stop]) if index >= starts[first] or index in head]


def mask_old_results(session: Session, _: int, *, kept_results: int = KEPT_RESULTS) -> Requests:
    """Replace the texts of all tool results except the newest `kept_results` by one line."""
    masked = [_mask(raw) for raw in session.messages]
    results = [index for index, raw in enumerate(session.messages) if masked[index] is not raw]
    for stop in session.stops:
        old = {index for index in results if index < stop}
        old.difference_update(sorted(old)[-kept_results:] if kept_results else ())
        yield [masked[index] if index in old else raw for index, raw in enumerate(session.messages[:stop])]


IN_PROCESS: dict[str, Contestant] = {
    "nothing": send_everything,
    "window": slide_window,
    "mask": mask_old_results,
}
WINDOWLESS = frozenset({"nothing", "mask", "headroom-cache", "headroom-token"})
"""Contestants that do not know the window: they do the same at each."""


def find_head(session: Session) -> set[int]:
    """The indexes of the leading system messages and of the task."""
    roles = [read_part(raw).role for raw in session.messages]
    leading = next((index for index, role in enumerate(roles) if role not in LEADERS), len(roles))
    task = [roles.index("user")] if "user" in roles else []
    return {*range(leading), *task}


def _mask(raw: bytes) -> bytes:
    """A tool result with its text masked; any other message unchanged, as the same object."""
    message = orjson.loads(raw)
    return orjson.dumps({**message, "content": MASK}) if message["role"] == "tool" else raw
