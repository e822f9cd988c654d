"""Puts together what several workers know.

Law: pure. Requests are ordered by time, sessions by their newest request, minutes are added.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from proxy.account.history.timeline import STEP_SECONDS
from proxy.server.admin.dashboard.shapes import Json, add_bucket, add_buckets, show_bucket

MAX_BUCKETS = 120
"""Buckets of a timeline. Chosen: as many as a picture can show."""


def merge_requests(parts: Sequence[Json], limit: int) -> Json:
    """The newest requests of all."""
    every = [event for part in parts for event in part["requests"]]
    every.sort(key=lambda event: (event["at"], event["request_id"]), reverse=True)
    return {"requests": every[:limit], "more": len(every) > limit or any(part["more"] for part in parts)}


def merge_turns(parts: Sequence[Json], limit: int) -> Json:
    """A session of all: its newest requests, oldest first."""
    turns = [turn for part in parts for turn in part["turns"]]
    turns.sort(key=lambda turn: (turn["at"], turn["request_id"]))
    more = len(turns) > limit or any(part["more"] for part in parts)
    return {"session": merge_session([part["session"] for part in parts]), "turns": turns[-limit:], "more": more}


def merge_sessions(parts: Iterable[Sequence[Json]], limit: int) -> list[Json]:
    """The sessions of all; one that several workers served is one session."""
    by_name: dict[str, list[Json]] = {}
    for part in parts:
        for session in part:
            by_name.setdefault(session["id"], []).append(session)
    merged = [merge_session(same) for same in by_name.values()]
    return sorted(merged, key=lambda session: -session["last_at"])[:limit]


def merge_session(same: Sequence[Json]) -> Json:
    """One session of several workers: sums, with summaries in `cost_usd`, and the newest request's figures."""
    newest = max(same, key=lambda session: session["last_at"])
    cost_usd, summary_usd = _add([each["cost_usd"] for each in same]), sum(each["summary_usd"] for each in same)
    merged = newest | {
        "first_at": min(session["first_at"] for session in same),
        "requests": sum(session["requests"] for session in same),
        "saved_tokens": sum(session["saved_tokens"] for session in same),
        "cost_usd": None if cost_usd is None else cost_usd + summary_usd,
        "summary_usd": summary_usd if cost_usd is not None or summary_usd else None,
        "without_usd": _add([session["without_usd"] for session in same]),
        "has_text": any(session["has_text"] for session in same),
        "cuts": len({mark for session in same for mark in session["marks"]}),
    }
    del merged["marks"]
    return merged


def _add(amounts: Iterable[float | None]) -> float | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None


def choose_step(minutes: int) -> int:
    """The length of a bucket in seconds, for a timeline of so many minutes."""
    return STEP_SECONDS * max(1, -(-minutes // MAX_BUCKETS))


def join_minutes(minutes: Iterable[tuple[int, Json]], step_seconds: int) -> dict[int, Json]:
    """Some minutes of one worker, by their number since 1970, as longer steps by the time at which these begin."""
    joined: dict[int, Json] = {}
    for minute, bucket in minutes:  # one by one: to free those of a whole day at once would hold the interpreter
        at = minute * STEP_SECONDS
        add_bucket(joined.setdefault(at - at % step_seconds, add_buckets(())), bucket)
    return joined


def merge_timelines(parts: Iterable[dict[Any, Json]], start: int, stop: int, step_seconds: int) -> Json:
    """The timeline of all, from one time to another, without holes. Both are multiples of the step.

    parts: what `join_minutes` returns, for each worker.
    """
    by_step: dict[int, list[Json]] = {at: [] for at in range(start, stop, step_seconds)}
    for part in parts:
        for at, bucket in part.items():
            by_step[int(at)].append(bucket)
    buckets = [show_bucket(float(at), add_buckets(found)) for at, found in by_step.items()]
    return {"step_seconds": step_seconds, "buckets": buckets}
