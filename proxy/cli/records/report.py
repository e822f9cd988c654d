"""The result of a replay as JSON: figures, what changes between two variants, and what a reader must know.

Law: names are stable, because scripts read them; docs/reference/replay.md lists them. Each setting of the curve is the
person's own configuration with a few keys replaced.
"""

from functools import partial
from pathlib import Path
from typing import Any

from trimtab.proxy.cli.records.costs import INPUT_TOKENS, NOTHING, SLIDING, TRIMTAB
from trimtab.proxy.cli.records.run import Places, Replay
from trimtab.proxy.cli.records.sums import SUMMARIES, VariantSums
from trimtab.proxy.config.schema import Config
from trimtab.rules.economy import Economy

COMPARED = ("sent_tokens", "moved_cuts", "summaries", "sessions_refused", "prefix_kept")
"""Figures of a model that are compared between two variants. Costs are compared, too."""
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
THRESHOLDS = (0.2, 0.4, 0.6, 0.8)
"""Values of high_water. Chosen: from a cut that comes very early to one shortly before the window is full."""
CURVE_NOTES = (
    "cost: with the summaries, as a share of what the requests cost unchanged",
    (
        "kept: of the identifiers that the next answer needed and the conversation held, those that were still"
        " forwarded; only requests that were forwarded otherwise than the client sent them count"
    ),
)


def describe(replay: Replay, kind: str, path: Path) -> dict[str, Any]:
    variants = [sums.describe() for sums in replay.variants]
    return {
        "input": {
            "kind": kind,
            "path": str(path),
            "requests": replay.requests,
            "first_at": replay.first_at,
            "last_at": replay.last_at,
        },
        "sides": variants,
        "changes": compare(*variants) if len(variants) > 1 else [],
        "unreadable": _describe_places(replay.unreadable),
        "differing": _describe_places(replay.differing),
        "not_replayed": replay.not_replayed,
        "notes": list_notes(replay, kind, variants),
    }


def compare(before: dict[str, Any], after: dict[str, Any]) -> list[dict[str, Any]]:
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
    return costs[TRIMTAB] + costs.get(SUMMARIES, 0.0) if TRIMTAB in costs else None


def has_unassigned(variant: dict[str, Any]) -> bool:
    """Whether the costs of a variant's sessions are without the summaries, which are in the sums of its models."""
    summaries = any(costs.get(SUMMARIES) for model in variant["models"] for costs in model["costs"].values())
    return variant["name"] == "recorded" and variant["sessions"]["number"] > 0 and summaries


def list_notes(replay: Replay, kind: str, variants: list[dict[str, Any]]) -> list[str]:
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
    if any(variant["total"].get("stand_ins") for variant in variants):
        notes.append(
            "no model was asked: a digest stands in for each summary that was not recorded for the same cut; the call"
            " for it is priced as if the summary had the size that is reserved for it"
        )
    if kind == "recordings" and replay.configured:
        notes.append(
            "cuts at cold caches are as recorded: those of another configuration, and the summaries that are written"
            " ahead for them, are not expected"
        )
    if any(has_unassigned(variant) for variant in variants):
        notes.append(
            "a recorded call for a summary names no session, so the costs of recorded sessions are without summaries,"
            " cost (part): a session may cost more than nothing without being named"
        )
    if any(INPUT_TOKENS in model["costs"] for variant in variants for model in variant["models"]):
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


def list_settings(config: Config) -> dict[str, Config]:
    """A configuration with each economy, the one that keeps most first; then with each threshold, the latest first."""

    def lay_over(**keys: Any) -> Config:
        free = {"high_water": "auto", "low_water": "auto", "compact_at_tokens": None}
        return config.change_policies(lambda _: free | keys)

    economies = (Economy.CAREFUL, Economy.BALANCED, Economy.FRUGAL)
    found = {economy.value: lay_over(economy=economy, cut="when_it_pays") for economy in economies}
    thresholds = reversed(THRESHOLDS)
    return found | {f"high_water {share:g}": lay_over(high_water=share, cut="at_threshold") for share in thresholds}


def list_points(replay: Replay, kind: str, path: Path) -> dict[str, Any]:
    """The result of a replay with each economy and threshold, as JSON: costs are shares of doing nothing."""
    variants = [sums.describe() for sums in replay.variants]
    costs = replay.variants[-1].sum_costs()
    others = (_make_point(replay, name, costs[name], costs[NOTHING]) for name in (SLIDING, NOTHING))
    return {
        "input": {"kind": kind, "path": str(path), "requests": replay.requests},
        "curve": [*map(partial(_describe_point, replay), replay.variants, variants), *others],
        "unreadable": _describe_places(replay.unreadable),
        "differing": _describe_places(replay.differing),
        "notes": [*CURVE_NOTES, *list_notes(replay, kind, variants)],
    }


def _describe_point(replay: Replay, sums: VariantSums, described: dict[str, Any]) -> dict[str, Any]:
    costs = sums.sum_costs()
    point = _make_point(replay, sums.name, costs[TRIMTAB] + costs[SUMMARIES], costs[NOTHING])
    return point | {name: described["total"].get(name) or 0 for name in ("moved_cuts", "summaries", "refused")}


def _make_point(replay: Replay, name: str, cost: float, nothing: float) -> dict[str, Any]:
    tally = replay.needed.tallies.get(name) if replay.needed is not None else None
    kept = 1.0 if name == NOTHING else None if tally is None else tally.share_kept()
    return {
        "name": name,
        "cost": cost / nothing if nothing else None,
        "needed_kept": kept,
        "needed": 0 if tally is None else tally.needed,
    }
