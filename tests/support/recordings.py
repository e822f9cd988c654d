"""Recordings for tests."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
from msgspec import structs

from trimtab.proxy.account.outcome import Outcome
from trimtab.proxy.account.recordings.format import (
    ENDING,
    Circumstances,
    Counted,
    RecordedRequest,
    RecordedSending,
    RecordedSummary,
    Recording,
    encode,
)
from trimtab.proxy.catalogue.prices import find_listed
from trimtab.proxy.cli.records.sums import UNKNOWN, RequestFigures
from trimtab.proxy.cli.records.variants import RecordedVariants
from trimtab.proxy.compaction.engine import Compaction
from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.models.records import Facts
from trimtab.proxy.telemetry.ledger import Entry
from trimtab.rules.conversation import Decision
from trimtab.rules.policy import Policy
from trimtab.rules.tokens.sections import Sections


def make_recording(request_id: str = "ab" * 12, *, at: float = 1_700_000_000.0, body: str = "{}") -> Recording:
    """A recording of a request that was forwarded unchanged."""
    event = Outcome(request_id, at, "chat", "POST", "/v1/chat/completions", 200, "unchanged", 0.1)
    circumstances = Circumstances({}, Policy(), 128_000, Facts(1.0), find_listed("http://127.0.0.1", "m"))
    request = RecordedRequest("chat", "/v1/chat/completions", "m", body=body)
    return Recording(structs.replace(event, session="5e5510"), request, RecordedSending(), circumstances)


def keep(folder: Path, recording: Recording) -> Path:
    """Write a recording's file."""
    path = folder / f"{round(recording.event.at * 1000):013}-{recording.id}{ENDING}"
    path.write_bytes(encode(recording))
    return path


def plan_again(compactors: Compactors, recording: Recording) -> Compaction | None:
    """A recorded request, planned again as it was planned; None if it was not."""
    ways = RecordedVariants(compactors)
    found = ways.read(recording)
    return None if found is None else ways.compact(recording, *found)[1]


def record(
    number: int, body: Mapping[str, Any], policy: Policy, *, summary: RecordedSummary | None = None, **figures: Any
) -> Recording:
    """A recording as the proxy makes one of a request that it plans with a policy. summary: the text of its cut."""
    made = make_recording(f"{number:02x}" * 12, at=1_700_000_000.0 + 60 * number, body=orjson.dumps(body).decode())
    circumstances = structs.replace(made.circumstances, policy=policy, vocabulary="heuristic")
    event = structs.replace(made.event, messages=len(body["messages"]), **figures)
    made = structs.replace(made, event=event, circumstances=circumstances, summary=summary)
    again = plan_again(Compactors(None), made)
    told = again.compacted
    planned = {
        "outcome": again.outcome,
        "original_tokens": told.original_tokens,
        "sent_tokens": told.sent_tokens if again.is_enforced else told.original_tokens,
        "limit_tokens": told.limit_tokens,
        "original_sections": told.original_sections,
        "sent_sections": again.sent_sections,
        "decisions": tuple(Entry.of(one, 1, told.limit_tokens) for one in told.decisions),
    }
    return structs.replace(
        made,
        event=structs.replace(event, **planned),
        sent=RecordedSending(None if again.body is None else again.body.decode()),
        story=tuple(one.text for one in again.tell().sentences),
        counted=Counted(True, True, told.decisions if again.is_enforced else ()),  # noqa: FBT003 - original and sent
    )


def make_figures(  # noqa: PLR0917 - in the order in which they are told
    label: str,
    endpoint: str,
    status: int,
    outcome: str,
    original: Sections | None = None,
    sent: Sections | None = None,
    limit_tokens: int = 0,
    decisions: tuple[Decision, ...] = (),
    **more: Any,
) -> RequestFigures:
    """The figures of a request; `original` and `sent` are None if they were not counted."""
    event = structs.replace(
        UNKNOWN,
        label=label,
        endpoint=endpoint,
        status=status,
        outcome=outcome,
        original_sections=original or (),
        sent_sections=sent or (),
        limit_tokens=limit_tokens,
        **more,
    )
    return RequestFigures(event, Counted(original is not None, sent is not None, decisions))
