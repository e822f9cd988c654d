"""What one worker knows. Each part is asked for by its name, by this worker or by another one.

Law: plain values that can be written as JSON, and merged.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import chain
from typing import Any

import orjson

from proxy.account.history.kept import Row
from proxy.account.history.texts import Packed, unpack_text
from proxy.account.history.timeline import STEP_SECONDS
from proxy.exchange.services import Services
from proxy.server.admin.dashboard.diff import diff_lines
from proxy.server.admin.dashboard.merge import join_minutes
from proxy.server.admin.dashboard.shapes import Json, shape_bucket, shape_session, shape_turn
from proxy.server.admin.models import MAX_SHOWN
from proxy.state.models.model_policy import ModelView
from rules.pipeline.changes import Change

Query = dict[str, Any]
CHANGING_STEPS = 2
"""Minutes that requests may still change. Chosen: the running one, and the one before if it has just ended."""


async def answer_part(services: Services, name: str, query: Query) -> Any:
    """What this worker knows; None for an unknown name or a thing that it does not know."""
    part = PARTS.get(name)
    return None if part is None else await part(services, query)


def number_of(services: Services) -> int:
    """The number of this worker; 1 for a single process."""
    return 1 if services.place is None else services.place.number


async def _list_requests(services: Services, query: Query) -> Json:
    return await asyncio.to_thread(_choose_requests, services, list(services.past.newest()), query)


def _choose_requests(services: Services, rows: Iterable[Row], query: Query) -> Json:
    before = query["before"]
    found: list[Row] = []
    for row in rows:
        if before is not None and (row.at, row.request_id) >= tuple(before):
            continue
        if query["session"] not in {None, row.session} or query["outcome"] not in {None, row.outcome}:
            continue
        if query["model"] not in {None, row.model, row.label}:
            continue
        if len(found) == query["limit"]:
            return {"requests": [_shape(services, each) for each in found], "more": True}
        found.append(row)
    return {"requests": [_shape(services, row) for row in found], "more": False}


def _shape(services: Services, row: Row) -> Json:
    """A request. It may run in a thread: the text is one look-up, which nothing can interrupt."""
    packed = services.past.texts.find(row.request_id)
    return shape_turn(row.turn, number_of(services), None if packed is None else packed.sentences)


async def _locate(services: Services, query: Query) -> list[float | str] | None:
    row = services.past.find(query["id"])
    return None if row is None else [row.at, row.request_id]


async def _show_request(services: Services, query: Query) -> Json | None:
    row = services.past.find(query["id"])
    if row is None:
        return None
    packed = services.past.texts.find(row.request_id)
    text = None if packed is None else await asyncio.to_thread(_show_text, packed)
    return {"event": _shape(services, row), "text": text}


def _show_text(packed: Packed) -> Json:
    text = unpack_text(packed)
    # The changes are written at once: a dictionary for each line of all texts would be freed on the event loop.
    changes = [orjson.Fragment(orjson.dumps(_show_change(change))) for change in text.changes]
    return {"sentences": text.sentences, "changes": changes, "summary": text.summary}


def _show_change(change: Change) -> Json:
    return {**change.describe(with_texts=True), "lines": diff_lines(change.before, change.after)}


async def _list_sessions(services: Services, query: Query) -> list[Json]:
    past, names = services.past, list(reversed(services.past.sessions.by_name))[: query["limit"]]
    return [shape_session(name, past.sessions.by_name[name], has_text=past.texts.has(name)) for name in names]


async def _show_session(services: Services, query: Query) -> Json | None:
    past, name = services.past, query["id"]
    session = past.sessions.by_name.get(name)
    if session is None:
        return None
    shaped = shape_session(name, session, has_text=past.texts.has(name))
    return {"session": shaped, **await asyncio.to_thread(_choose_turns, services, list(past.newest()), query)}


def _choose_turns(services: Services, rows: Sequence[Row], query: Query) -> Json:
    found = [row for row in rows if row.session == query["id"]]
    turns = [_shape(services, row) for row in reversed(found[: query["limit"]])]
    return {"turns": turns, "more": len(found) > len(turns)}


async def _show_timeline(services: Services, query: Query) -> dict[int, Json]:
    buckets = services.past.timeline.buckets
    steps = [step for step in buckets if query["from"] <= step * STEP_SECONDS < query["to"]]
    # Requests still change the newest minutes, so these are read here and not in the thread.
    newest = [(step, shape_bucket(buckets[step])) for step in steps[-CHANGING_STEPS:]]
    older = [(step, buckets[step]) for step in steps[:-CHANGING_STEPS]]

    def join() -> dict[int, Json]:
        shaped = ((step, shape_bucket(bucket)) for step, bucket in older)
        return join_minutes(chain(shaped, newest), query["step"])

    return await asyncio.to_thread(join)


async def _erase(services: Services, query: Query) -> bool:
    return services.past.erase(query["id"], text_only=query["text_only"])


async def _tell_seen(services: Services, query: Query) -> list[bool]:
    """For each session, mark and time: whether this worker saw the mark before that time."""
    sessions = services.past.sessions.by_name
    told = []
    for name, mark, at in query["marks"]:
        session = sessions.get(name)
        told.append(session is not None and session.marks.get(mark, at) < at)
    return told


async def _note(services: Services, _: Query) -> list[Json]:
    """What people should know about the figures of this worker."""
    counted, unlearned = [], []
    for known in services.models.list_known()[:MAX_SHOWN]:
        model = known.name.model
        view = ModelView.of(services.config, services.config.policy_for(model), known.name, known.facts)
        if services.compactors.name_vocabulary(view.settings, model) == "heuristic":
            counted.append(model)
        if view.window_from == "default":
            unlearned.append(model)
    notes = _note_restart(services)
    if counted:
        names = ", ".join(dict.fromkeys(counted))
        notes.append({"kind": "counting", "text": f"Tokens of {names} are estimated by characters."})
    if unlearned:
        names = ", ".join(dict.fromkeys(unlearned))
        text = f"The context window of {names} is not known; the default is assumed. See context_window."
        notes.append({"kind": "window", "text": text})
    fallen = services.summaries.fallen.count()
    if fallen:
        reasons = ", ".join(f"{reason} {number}" for reason, number in sorted(fallen.items()))
        text = f"Sessions with digests instead of summaries on worker {number_of(services)}: {reasons}."
        notes.append({"kind": "summaries", "text": text})
    return notes


def _note_restart(services: Services) -> list[Json]:
    number, place = number_of(services), services.place
    if place is None or not any(restarts for each, _, restarts in place.shared.roster.read() if each == number):
        return []
    at = time.strftime("%H:%M", time.gmtime(services.past.began_at))
    text = f"Worker {number} was started again at {at} UTC; its earlier requests are missing in the lists."
    return [{"kind": "worker", "text": text}]


PARTS: dict[str, Callable[[Services, Query], Awaitable[Any]]] = {
    "requests": _list_requests,
    "locate": _locate,
    "request": _show_request,
    "sessions": _list_sessions,
    "session": _show_session,
    "timeline": _show_timeline,
    "erase": _erase,
    "seen": _tell_seen,
    "notes": _note,
}
