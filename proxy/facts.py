"""What is known of a model."""

from dataclasses import dataclass, replace

from proxy.catalogue import find_window
from proxy.records import ModelName, Record
from rules.policy import Policy


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a model.

    `ratio` is its tokens for one of ours. `window_tokens` is its context window, None where it is not known;
    `from_catalogue` where nobody but the catalogue knows it. `learned_tokens` is what it turned out to be where prompts
    were refused, or cut short, that went by one of the windows `refuted`; `adds_completion` that what the completion
    may have is added to the prompt.
    """

    ratio: float
    window_tokens: int | None = None
    from_catalogue: bool = False
    learned_tokens: int | None = None
    adds_completion: bool = False
    refuted: tuple[int, ...] = ()

    def correct_policy(self, policy: Policy) -> Policy:
        """The policy with what refusals have taught."""
        window_tokens = self.correct(policy.context_window)
        return replace(policy, context_window=window_tokens, adds_completion=self.adds_completion)

    def correct(self, window_tokens: int) -> int:
        """The window to go by where `window_tokens` is configured, or found, or assumed."""
        if self.learned_tokens is None or window_tokens not in self.refuted:
            return window_tokens
        return self.learned_tokens


@dataclass(frozen=True, slots=True)
class Known:
    """What may be shown of a model: `samples` are those since its ratio was last found, `mean_error` that of counts."""

    name: ModelName
    facts: Facts
    is_calibrated: bool = False
    samples: int = 0
    mean_error: float = 0.0


def recall(record: Record, window_tokens: int | None) -> Facts:
    """What a record says of a model, whose upstream has told a window of so many tokens."""
    return Facts(
        record.ratio,
        window_tokens,
        learned_tokens=record.learned_tokens,
        adds_completion=record.adds_completion,
        refuted=record.refuted,
    )


def complete(name: ModelName, facts: Facts) -> Facts:
    """With the catalogue's window where none was discovered; nobody keeps that in the store."""
    if facts.window_tokens is not None:
        return facts
    window_tokens = find_window(name.base_url, name.model)
    return replace(facts, window_tokens=window_tokens, from_catalogue=window_tokens is not None)
