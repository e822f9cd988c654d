"""The settings whose cost and memory a person may choose between: the economies, and a few thresholds.

Law: each is the person's own configuration with these keys replaced, in general and for each model and profile.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from proxy.cli.records.replaying.run import Replay
from proxy.cli.records.replaying.side import Side
from proxy.config.policies.policy import PolicyConfig
from proxy.config.schema import Config
from rules.economy import Economy

THRESHOLDS = (0.2, 0.4, 0.6, 0.8)
"""Values of high_water. Chosen: from a cut that comes very early to one shortly before the window is full."""
SLIDING, NOTHING = "sliding", "nothing"
"""The ways without trimtab that the settings are compared with."""
P = TypeVar("P", bound=PolicyConfig)


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its name, and the keys of a policy that make it."""

    name: str
    keys: Mapping[str, Any]

    def lay_over(self, config: Config) -> Config:
        """The configuration with this setting."""

        def override(policy: P) -> P:
            return policy.model_copy(update=dict(self.keys))

        return config.model_copy(
            update={
                "defaults": override(config.defaults),
                "models": tuple(map(override, config.models)),
                "profiles": {name: override(profile) for name, profile in config.profiles.items()},
            }
        )


def list_settings() -> Iterator[Setting]:
    """The economies, the one that keeps most first; then the thresholds, the latest first."""
    free = {"high_water": "auto", "low_water": "auto", "compact_at_tokens": None}
    for economy in (Economy.CAREFUL, Economy.BALANCED, Economy.FRUGAL):
        yield Setting(economy.value, {**free, "economy": economy, "cut": "when_it_pays"})
    for share in reversed(THRESHOLDS):
        yield Setting(f"high_water {share:g}", {**free, "high_water": share, "cut": "at_threshold"})


def describe_curve(replay: Replay) -> list[dict[str, Any]]:
    """What each way costs, as a share of doing nothing, and which share of the needed identifiers it keeps."""
    costs = replay.sides[-1].sum_costs()
    others = (_make_point(replay, name, costs[name], costs[NOTHING]) for name in (SLIDING, NOTHING))
    return [*(_describe(replay, side) for side in replay.sides), *others]


def _describe(replay: Replay, side: Side) -> dict[str, Any]:
    costs, total = side.sum_costs(), side.describe()["total"]
    point = _make_point(replay, side.name, costs["trimtab"] + costs["summaries"], costs[NOTHING])
    counts = {name: total.get(name) or 0 for name in ("moved_cuts", "summaries", "refused")}
    return point | counts


def _make_point(replay: Replay, name: str, cost: float, nothing: float) -> dict[str, Any]:
    tally = replay.needed.tallies.get(name) if replay.needed is not None else None
    kept = 1.0 if name == NOTHING else None if tally is None else tally.share_kept()
    return {
        "name": name,
        "cost": cost / nothing if nothing else None,
        "needed_kept": kept,
        "needed": 0 if tally is None else tally.needed.total(),
    }
