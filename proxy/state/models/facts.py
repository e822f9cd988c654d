"""What is known of a model, in the form that requests are planned with and that pages show."""

from dataclasses import dataclass, field, replace

from proxy.state.catalogue.windows import find_window
from proxy.state.models.records import ModelName, Record, Source


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a model. Fields without a line here are explained at `Record`.

    ratio: the model's own tokens for one token of our count.
    window_tokens: the context window that the upstream or the catalogue reports; None if neither does.
    from_catalogue: only the catalogue knows `window_tokens`.
    has_ratio: the ratio was learned; else it is the family's.
    is_calibrated: the ratio comes from usage reports of the upstream to this client.
    answered_tokens: the longest answered prompt; it may be longer than a learned window.
    """

    ratio: float
    window_tokens: int | None = None
    from_catalogue: bool = False
    learned_tokens: int | None = None
    added_tokens: int | None = None
    refuted: tuple[int, ...] = ()
    has_ratio: bool = field(default=False, compare=False)
    is_calibrated: bool = field(default=False, compare=False)
    answered_tokens: int = field(default=0, compare=False)

    def correct(self, window_tokens: int, *, is_configured: bool = False) -> int:
        """The window to plan with, given the one that is configured, found or assumed.

        If that window was refuted, the learned one replaces it. A configured window is never enlarged.
        """
        if self.learned_tokens is None or window_tokens not in self.refuted:
            return window_tokens
        return min(self.learned_tokens, window_tokens) if is_configured else self.learned_tokens

    def has_outgrown(self, window_tokens: int) -> bool:
        """Whether the upstream has answered a prompt that is longer than this window."""
        return self.answered_tokens > window_tokens

    def forget(self, family_ratio: float) -> "Facts":
        """The facts without anything that was learned."""
        return replace(self, ratio=family_ratio, learned_tokens=None, added_tokens=None, refuted=(), has_ratio=False)

    def doubt(self, family_ratio: float) -> "Facts":
        """The facts for a test: without anything learned, except a ratio that the upstream's answers confirm.

        With a wrong ratio, the prompt of a test would look longer than it is, or its answer would look cut short.
        """
        forgotten = self.forget(family_ratio)
        return replace(forgotten, ratio=self.ratio, has_ratio=True) if self.is_calibrated else forgotten


@dataclass(frozen=True, slots=True)
class Learned:
    """One thing that was learned of a model: its window or its ratio.

    source, at: how, and when in seconds since 1970.
    for_all: it counts for all clients; else for one only.
    """

    source: Source
    at: float
    window_tokens: int | None = None
    ratio: float | None = None
    for_all: bool = False

    def describe(self, now: float) -> dict[str, object]:
        """What was learned, how, how long ago, and for whom it counts: the JSON object that pages show."""
        told = {"window_tokens": self.window_tokens, "token_ratio": self.ratio}
        return {
            **{name: value for name, value in told.items() if value is not None},
            "source": self.source,
            "age_seconds": max(round(now - self.at), 0),
            "counts_for": "all clients" if self.for_all else "one client",
        }


@dataclass(frozen=True, slots=True)
class Known:
    """What may be shown of a model.

    samples: usage reports since its ratio was last found.
    mean_error: mean relative error of our counts.
    """

    name: ModelName
    facts: Facts
    is_calibrated: bool = False
    samples: int = 0
    mean_error: float = 0.0
    learned: tuple[Learned, ...] = ()


def recall(record: Record) -> Facts:
    """The facts in a record."""
    return Facts(
        record.ratio,
        record.window_tokens,
        learned_tokens=record.learned_tokens,
        added_tokens=record.added_tokens,
        refuted=record.refuted,
        has_ratio=record.calibrated or bool(record.ratio_source),
        is_calibrated=record.calibrated,
        answered_tokens=record.answered_tokens,
    )


def list_learned(record: Record, *, for_all: bool) -> tuple[Learned, ...]:
    """What was learned according to a record: the window first, then the ratio."""
    found = []
    if record.learned_tokens is not None:
        found.append(Learned(record.window_source, record.window_at, record.learned_tokens, for_all=for_all))
    if record.ratio_source:
        found.append(Learned(record.ratio_source, record.ratio_at, ratio=record.ratio, for_all=for_all))
    return tuple(found)


def complete(name: ModelName, facts: Facts) -> Facts:
    """Add the catalogue's window if the upstream reported none. That window is never written to the store."""
    if facts.window_tokens is not None:
        return facts
    window_tokens = find_window(name.base_url, name.model)
    return replace(facts, window_tokens=window_tokens, from_catalogue=window_tokens is not None)
