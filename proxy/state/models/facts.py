"""What is known of a model."""

from dataclasses import dataclass, replace

from proxy.state.models.catalogue import find_window
from proxy.state.models.records import ModelName, Record


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a model.

    `ratio` is its tokens for one of ours. `window_tokens` is its context window, None where it is not known;
    `from_catalogue` where nobody but the catalogue knows it. `learned_tokens` is what it turned out to be where prompts
    were refused, or cut short, that went by one of the windows `refuted`; `added_tokens` is set where
    the upstream adds what the completion may have to the prompt: so much where a request asks for no maximum.
    """

    ratio: float
    window_tokens: int | None = None
    from_catalogue: bool = False
    learned_tokens: int | None = None
    added_tokens: int | None = None
    refuted: tuple[int, ...] = ()

    def correct(self, window_tokens: int, *, is_configured: bool = False) -> int:
        """The window to go by where `window_tokens` is found or assumed; or configured: then it is made no larger."""
        if self.learned_tokens is None or window_tokens not in self.refuted:
            return window_tokens
        return min(self.learned_tokens, window_tokens) if is_configured else self.learned_tokens


@dataclass(frozen=True, slots=True)
class Known:
    """What may be shown of a model: `samples` are those since its ratio was last found, `mean_error` that of counts."""

    name: ModelName
    facts: Facts
    is_calibrated: bool = False
    samples: int = 0
    mean_error: float = 0.0


def recall(record: Record) -> Facts:
    """What a record says of a model."""
    return Facts(
        record.ratio,
        record.window_tokens,
        learned_tokens=record.learned_tokens,
        added_tokens=record.added_tokens,
        refuted=record.refuted,
    )


def complete(name: ModelName, facts: Facts) -> Facts:
    """With the catalogue's window where none was discovered; nobody keeps that in the store."""
    if facts.window_tokens is not None:
        return facts
    window_tokens = find_window(name.base_url, name.model)
    return replace(facts, window_tokens=window_tokens, from_catalogue=window_tokens is not None)
