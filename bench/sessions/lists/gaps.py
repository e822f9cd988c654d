"""How long a session is silent before each of its requests.

Law: the same session and seed have the same gaps. A gap is from the beginning of one request to that of the next.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from itertools import accumulate, pairwise
from random import Random

import orjson

from bench.material.workload import Session

TURN_SECONDS = 6.0
"""Seconds from one request to the next if nobody waits. Chosen: a model's turn with a short tool."""
LONG_SECONDS = 300.0
LONG_AFTER_USER = 0.37
LONG_AFTER_TOOL = 0.007
"""The shares of gaps over 300 seconds after `end_turn` and after `tool_use`. Source: context-guru's published log of
19,805 requests (../shared/notes/field.md, 2.5)."""
TAIL_EXPONENT = 0.5
"""A long gap is over t seconds with probability (300 / t) ** 0.5. Chosen: the log says nothing of longer gaps. So four
in ten of the long ones are over half an hour, three in ten over an hour, six in a hundred over a day."""
TIMES = ("timestamp", "created_at")
"""Keys of a message under which recordings have its time: seconds, or a date as ISO 8601 writes it."""


class Gaps(StrEnum):
    """Where gaps are from."""

    NONE = "none"
    PUBLISHED = "published"
    RECORDED = "recorded"


def find_moments(session: Session, gaps: Gaps, seed: int = 0) -> tuple[float, ...]:
    """The time of each request of a session, in seconds since the first. Raises LookupError without recorded times."""
    if gaps is Gaps.NONE:
        return tuple(TURN_SECONDS * turn for turn in range(len(session.stops)))
    found = _read_times(session) if gaps is Gaps.RECORDED else _draw(session, seed)
    return tuple(accumulate(max(seconds, TURN_SECONDS) for seconds in found))


def count_long(moments: Sequence[float]) -> int:
    """How many gaps are over 300 seconds."""
    return sum(later - earlier > LONG_SECONDS for earlier, later in pairwise(moments))


def _draw(session: Session, seed: int) -> Iterator[float]:
    """A gap before each request; before the first there is none."""
    yield 0.0
    for turn, (before, stop) in enumerate(zip(session.stops, session.stops[1:], strict=False), start=1):
        share = LONG_AFTER_USER if _asks_user(session.messages[before:stop]) else LONG_AFTER_TOOL
        yield draw_gap(Random(f"{seed}:{session.id}:{turn}"), share)  # noqa: S311 - a simulation


def draw_gap(random: Random, long_share: float) -> float:
    """A gap of which a share of `long_share` is over 300 seconds."""
    level = random.random()
    if level >= long_share:
        return random.uniform(0.0, LONG_SECONDS)
    # Of the long gaps, `level / long_share` is uniform: the share of them that is longer still.
    return float(LONG_SECONDS / max(level / long_share, 1e-9) ** (1 / TAIL_EXPONENT))


def _asks_user(added: Sequence[bytes]) -> bool:
    """Whether a person wrote one of the messages that were added: the turn before ended with `end_turn`."""
    return any(orjson.loads(raw)["role"] == "user" for raw in added)


def _read_times(session: Session) -> Iterator[float]:
    times = [_read_time(session.messages[stop - 1], session.id) for stop in session.stops]
    yield 0.0
    yield from (later - earlier for earlier, later in pairwise(times))


def _read_time(raw: bytes, session_id: str) -> float:
    message = orjson.loads(raw)
    value = next((message[key] for key in TIMES if message.get(key) is not None), None)
    if value is None:
        error = f"{session_id}: a message has no time under {' or '.join(TIMES)}"
        raise LookupError(error)
    return float(value) if isinstance(value, int | float) else datetime.fromisoformat(value).timestamp()
