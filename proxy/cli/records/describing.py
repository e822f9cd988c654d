"""What `trimtab inspect` shows of a recording, as values for JSON.

Law: the recording says what happened; only the changed messages are found out by planning it again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from difflib import unified_diff
from typing import Any

from proxy.cli.records.planning import plan_again
from proxy.compaction.tokenizers.exact import VocabularyError
from proxy.state.history.event import Event
from proxy.state.recordings.format import Recording
from proxy.state.statistics.costs import NANODOLLARS
from proxy.wire.codec import UndecodableError
from proxy.wire.content.cache_help import FIELDS
from rules.conversation import Outcome
from rules.pipeline.story.tell import tell_story
from rules.pipeline.story.values import Change
from rules.tokens.sections import Sections

CONTEXT_LINES = 2
"""Lines around a difference that are shown. Chosen: enough to find the place."""
OTHERWISE = "this version of trimtab plans the request otherwise than the one that recorded it"


@dataclass(frozen=True, slots=True)
class Changed:
    """The messages that are forwarded differently. doubt: why they may not be those of that time; empty if they are."""

    changes: tuple[Change, ...] = ()
    doubt: str = ""


def find_changes(recording: Recording) -> Changed:
    """Plan the request again, and compare it message by message."""
    try:
        again = plan_again(recording)
    except VocabularyError as error:
        return Changed(doubt=f"the changed messages are not known: {error}")
    except UndecodableError:
        return Changed(doubt="the changed messages are not known: the recorded body cannot be read")
    if again is None or again.is_refused:
        return Changed()
    compacted, plan = again.compacted, again.planned.plan
    outcome = Outcome(compacted.forwarded, compacted.decisions)
    story = tell_story(plan, outcome, ratio=again.planned.policy.token_ratio)
    counted = tuple(one for one in recording.counted.decisions if one.rule not in FIELDS)
    is_same = not counted or [one.rule for one in counted] == [one.rule for one in compacted.decisions]
    if recording.request is not None and not recording.request.is_redacted:
        is_same = is_same and (not counted or counted == compacted.decisions)
    return Changed(story.changes, "" if is_same else OTHERWISE)


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
        "changes": [_describe_change(change, with_texts=with_texts) for change in changed.changes],
        "summary": None if recording.summary is None else asdict(recording.summary),
    }
    if changed.doubt:
        described["doubt"] = changed.doubt
    if recording.call is not None:
        described["call"] = asdict(recording.call)
    return described


def describe_event(event: Event) -> dict[str, Any]:
    """An event as JSON, with sections by name and money in dollars, as at /trimtab/api/requests."""
    described = asdict(event)
    del described["cost"], described["without_cost"]
    return described | {
        "original_sections": _name_sections(event.original_sections),
        "sent_sections": _name_sections(event.sent_sections),
        "cost_usd": to_dollars(event.cost),
        "without_usd": to_dollars(event.without_cost),
    }


def to_dollars(nanodollars: int | None) -> float | None:
    """An amount in dollars; None if it is not known."""
    return None if nanodollars is None else nanodollars / NANODOLLARS


def _name_sections(tokens: Sequence[int]) -> dict[str, int]:
    return dict(zip(Sections._fields, tokens or (0,) * len(Sections._fields), strict=True))


def _describe_change(change: Change, *, with_texts: bool) -> dict[str, Any]:
    described = asdict(change)
    del described["before"], described["after"]
    if not with_texts:
        return described
    return described | {"before": _mend(change.before), "after": _mend(change.after)}


def _mend(text: str) -> str:
    """The text with `?` for each half of a pair of surrogates, which JSON in UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode()
