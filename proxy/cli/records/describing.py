"""What `trimtab inspect` shows of a recording, as values for JSON.

Law: the recording says what happened; only the changed messages are found out by planning it again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from difflib import unified_diff
from typing import Any

from proxy.account.history.event import Event
from proxy.account.recordings.format import Recording
from proxy.cli.records.replaying.carry_out import Carried
from proxy.cli.records.replaying.compare import find_difference
from proxy.cli.records.replaying.ways import RecordedWays
from proxy.compaction.pool import Compactors
from proxy.server.admin.dashboard.shapes import shape_event
from proxy.telemetry.logs import get_log
from proxy.wire.codec import UndecodableError
from rules.conversation import Decision, Outcome
from rules.pipeline.changes import Change
from rules.pipeline.story import tell_story
from rules.tokens.sections import Sections

CONTEXT_LINES = 2
"""Lines around a difference that are shown. Chosen: enough to find the place."""
OTHERWISE = "this trimtab plans the request otherwise than the one that recorded it: "


@dataclass(frozen=True, slots=True)
class Changed:
    """The messages that are forwarded differently. doubt: why they may not be those of that time; empty if they are."""

    changes: tuple[Change, ...] = ()
    doubt: str = ""


def find_changes(recording: Recording) -> Changed:
    """Plan the request again, and compare it message by message."""
    ways = RecordedWays(Compactors(get_log()))
    try:
        found = ways.read(recording)
        carried = None if found is None else ways.carry_out(recording, *found)[1]
    except (UndecodableError, ValueError):  # values that no trimtab has written
        return Changed(
            doubt="the changed messages are not known: the recorded body, or what it was planned with, cannot be read"
        )
    if carried is None or not carried.compacted.forwarded.messages:  # the policy refuses it
        return Changed()
    planned, compacted = carried.planned, carried.compacted
    outcome = Outcome(compacted.forwarded, compacted.decisions)
    story = tell_story(planned.plan, outcome, ratio=planned.policy.token_ratio)
    return Changed(story.changes, _find_doubt(recording, carried))


def _find_doubt(recording: Recording, carried: Carried) -> str:
    """Why the plan may not be that of the recording. A replaced credential may change tokens.

    Then only the rules are compared, and the messages that they have changed.
    """
    difference = find_difference(recording, carried)
    if recording.is_redacted:
        was, now = _place(recording.counted.decisions), _place(carried.compacted.decisions)
        return "" if not was or was == now else OTHERWISE + difference
    return OTHERWISE + difference if difference else ""


def _place(decisions: Sequence[Decision]) -> list[tuple[str, int, int]]:
    return [(one.rule, one.messages, one.first_changed) for one in decisions]


def diff(change: Change) -> Iterator[str]:
    """The lines of a change: each begins with `-`, `+`, a space, or `@@` where lines are left out."""
    before, after = change.before.splitlines(), change.after.splitlines()
    lines = unified_diff(before, after, n=CONTEXT_LINES, lineterm="")
    return (line for line in lines if not line.startswith(("---", "+++")) or line[3:].strip())


def describe(recording: Recording, changed: Changed, *, with_texts: bool = False) -> dict[str, Any]:
    """A recording as JSON, without the bodies. with_texts: also the texts of changed messages."""
    event, request = recording.event, recording.request
    described: dict[str, Any] = {
        "event": describe_event(event),
        "request": None
        if request is None
        else {
            "dialect": request.dialect,
            "path": request.path,
            "model": request.model,
            "headers": dict(request.headers),
            "is_redacted": request.is_redacted,
        },
        "story": list(recording.story),
        "changes": [change.describe(with_texts=with_texts) for change in changed.changes],
        "summary": None if recording.summary is None else asdict(recording.summary),
    }
    if changed.doubt:
        described["doubt"] = changed.doubt
    if recording.call is not None:
        described["call"] = asdict(recording.call)
    return described


def describe_event(event: Event) -> dict[str, Any]:
    """An event as JSON, as at /trimtab/api/requests, but with all sections also if the prompt was not counted."""
    shaped, none = shape_event(event), dict.fromkeys(Sections._fields, 0)
    return shaped | {name: none | shaped[name] for name in ("original_sections", "sent_sections")}
