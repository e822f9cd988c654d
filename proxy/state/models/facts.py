"""What is known of a model."""

from dataclasses import dataclass, field, replace

from proxy.state.models.catalogue import find_window
from proxy.state.models.records import ModelName, Record, Source


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a model.

    `ratio` is its tokens for one of ours. `window_tokens` is its context window, None where it is not known;
    `from_catalogue` where nobody but the catalogue knows it. `learned_tokens` is what it turned out to be where prompts
    were refused, or cut short, that went by one of the windows `refuted`; `added_tokens` is set where
    the upstream adds what the completion may have to the prompt: so much where a request asks for no maximum.
    `has_ratio`: the ratio was learned, and is not the family's; `is_calibrated`: it is the upstream's own word, given
    with several answers to this client. `answered_tokens` is the longest prompt that has
    contradicted a learned window.
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
        """The window to go by where `window_tokens` is found or assumed; or configured: then it is made no larger."""
        if self.learned_tokens is None or window_tokens not in self.refuted:
            return window_tokens
        return min(self.learned_tokens, window_tokens) if is_configured else self.learned_tokens

    def has_outgrown(self, window_tokens: int) -> bool:
        """Whether a longer prompt than such a window holds has been answered."""
        return self.answered_tokens > window_tokens

    def forget(self, family_ratio: float) -> "Facts":
        """What is known without anything that was learned."""
        return replace(self, ratio=family_ratio, learned_tokens=None, added_tokens=None, refuted=(), has_ratio=False)

    def doubt(self, family_ratio: float) -> "Facts":
        """What is known without anything that is to be tested: a ratio that the upstream's answers confirm stays.

        By another one the answer to a test would seem to be cut short, or the prompt longer than it is.
        """
        forgotten = self.forget(family_ratio)
        return replace(forgotten, ratio=self.ratio, has_ratio=True) if self.is_calibrated else forgotten


@dataclass(frozen=True, slots=True)
class Learned:
    """One thing that was learned of a model: its window, or its ratio; when, in seconds since 1970, and how.

    `for_all`: it counts for all clients, and not only for one.
    """

    source: Source
    at: float
    window_tokens: int | None = None
    ratio: float | None = None
    for_all: bool = False

    def describe(self, now: float) -> dict[str, object]:
        """What, how, how long ago, and for whom it counts; to be shown."""
        told = {"window_tokens": self.window_tokens, "token_ratio": self.ratio}
        return {
            **{name: value for name, value in told.items() if value is not None},
            "source": self.source,
            "age_seconds": max(round(now - self.at), 0),
            "counts_for": "all clients" if self.for_all else "one client",
        }


@dataclass(frozen=True, slots=True)
class Known:
    """What may be shown of a model: `samples` are those since its ratio was last found, `mean_error` that of counts."""

    name: ModelName
    facts: Facts
    is_calibrated: bool = False
    samples: int = 0
    mean_error: float = 0.0
    learned: tuple[Learned, ...] = ()


def recall(record: Record) -> Facts:
    """What a record says of a model."""
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
    """What a record says that was learned, its age and its source."""
    found = []
    if record.learned_tokens is not None:
        found.append(Learned(record.window_source, record.window_at, record.learned_tokens, for_all=for_all))
    if record.ratio_source:
        found.append(Learned(record.ratio_source, record.ratio_at, ratio=record.ratio, for_all=for_all))
    return tuple(found)


def complete(name: ModelName, facts: Facts) -> Facts:
    """With the catalogue's window where none was discovered; nobody keeps that in the store."""
    if facts.window_tokens is not None:
        return facts
    window_tokens = find_window(name.base_url, name.model)
    return replace(facts, window_tokens=window_tokens, from_catalogue=window_tokens is not None)
