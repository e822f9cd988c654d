"""The result of a replay as JSON, with what changes between two sides, and what a reader must know.

Law: names are stable, because scripts read them; docs/reference/replay.md lists them.
"""

from pathlib import Path
from typing import Any

from proxy.cli.records.replaying.curve import describe_curve
from proxy.cli.records.replaying.run import Places, Replay

COMPARED = ("sent_tokens", "moved_cuts", "summaries", "sessions_refused", "prefix_kept")
"""Figures of a model that are compared between two sides. Costs are compared, too."""
LOG_NOTES = (
    "a log holds no messages, so nothing was planned again: these are the figures that were logged",
    (
        "what the requests would have cost without trimtab or with a sliding window, sessions, and other"
        " configurations can be told from recordings only"
    ),
    "costs are at list prices, for upstreams that the catalogue knows by their host",
)
REPLACED = (
    "requests held a credential, which was replaced when they were recorded: their tokens and cuts may differ a little,"
    " and they are not compared with what was sent"
)
"""Said of requests with `***` in a body."""

CURVE_NOTES = (
    "cost: with the summaries, as a share of what the requests cost unchanged",
    (
        "kept: of the identifiers that the next answer needed and the conversation held, those that were still"
        " forwarded; only requests that were forwarded otherwise than the client sent them count"
    ),
)


def describe(replay: Replay, kind: str, path: Path) -> dict[str, Any]:
    """The result as JSON."""
    sides = [side.describe() for side in replay.sides]
    return {
        "input": {
            "kind": kind,
            "path": str(path),
            "requests": replay.requests,
            "first_at": replay.first_at,
            "last_at": replay.last_at,
        },
        "sides": sides,
        "changes": compare(*sides) if len(sides) > 1 else [],
        "unreadable": _describe_places(replay.unreadable),
        "differing": _describe_places(replay.differing),
        "not_replayed": replay.not_replayed,
        "notes": list_notes(replay, kind, sides),
    }


def list_points(replay: Replay, kind: str, path: Path) -> dict[str, Any]:
    """The result of a replay with each economy and threshold, as JSON."""
    return {
        "input": {"kind": kind, "path": str(path), "requests": replay.requests},
        "curve": describe_curve(replay),
        "unreadable": _describe_places(replay.unreadable),
        "differing": _describe_places(replay.differing),
        "notes": [*CURVE_NOTES, *list_notes(replay, kind, [side.describe() for side in replay.sides])],
    }


def compare(before: dict[str, Any], after: dict[str, Any]) -> list[dict[str, Any]]:
    """What changes from one side to the other, by model."""
    others = {model["name"]: model for model in after["models"]}
    return [_compare_models(model, others[model["name"]]) for model in before["models"] if model["name"] in others]


def _compare_models(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    units = [unit for unit in before["costs"] if unit in after["costs"]]
    return {
        "name": before["name"],
        **{name: {"before": before[name], "after": after[name]} for name in COMPARED},
        "costs": {
            unit: {"before": sum_cost(before["costs"][unit]), "after": sum_cost(after["costs"][unit])} for unit in units
        },
    }


def sum_cost(costs: dict[str, float]) -> float | None:
    """What trimtab costs with the summaries that it asks for; None if it is not known."""
    return costs["trimtab"] + costs.get("summaries", 0.0) if "trimtab" in costs else None


def has_unassigned(side: dict[str, Any]) -> bool:
    """Whether the costs of a side's sessions are without the summaries, which are in the sums of its models."""
    summaries = any(costs.get("summaries") for model in side["models"] for costs in model["costs"].values())
    return side["name"] == "recorded" and side["sessions"]["number"] > 0 and summaries


def list_notes(replay: Replay, kind: str, sides: list[dict[str, Any]]) -> list[str]:
    """Sentences about what is estimated or cannot be known."""
    if kind == "log":
        return list(LOG_NOTES)
    notes = [
        (
            "costs assume that the upstream's cache holds the beginning of the session's previous prompt, and misses"
            " nothing else"
        ),
        (
            "nothing: the requests unchanged, as if the window were large enough; sliding: the oldest messages dropped"
            " so that the rest fits"
        ),
    ]
    if any(side["total"].get("stand_ins") for side in sides):
        notes.append(
            "no model was asked: a digest stands in for each summary that was not recorded for the same cut; the call"
            " for it is priced as if the summary had the size that is reserved for it"
        )
    if kind == "recordings" and replay.configured:
        notes.append(
            "cuts at cold caches are as recorded: those of another configuration, and the summaries that are written"
            " ahead for them, are not expected"
        )
    if any(has_unassigned(side) for side in sides):
        notes.append(
            "a recorded call for a summary names no session, so the costs of recorded sessions are without summaries,"
            " cost (part): a session may cost more than nothing without being named"
        )
    if any("input_tokens" in model["costs"] for side in sides for model in side["models"]):
        notes.append("costs without a price in dollars are in the price of one prompt token that is not cached")
    if kind == "bodies":
        notes.append("completions are not known, so they are in no cost")
    if replay.redacted:
        notes.append(f"{replay.redacted} {REPLACED}")
    return notes


def _describe_places(places: Places) -> dict[str, Any]:
    return {
        "number": places.number,
        "places": [{"place": place, "reason": reason} for place, reason in places.named],
    }
