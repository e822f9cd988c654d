"""Lays the keys that one policy sets over those of another.

Law: a key counts as set if it is written, also with its default value.
"""

from functools import lru_cache
from typing import Generic, TypeVar

from proxy.config.policies.policy import PolicyConfig

S = TypeVar("S")


class Same(Generic[S]):
    """A cache key that compares one object by identity.

    Equal sections may still set different keys, so equality is not enough.
    """

    __slots__ = ("value",)

    def __init__(self, value: S) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def overlay(defaults: PolicyConfig, patch: PolicyConfig) -> PolicyConfig:
    """The defaults, with the keys that the patch sets; the same object each time."""
    return _overlay(Same(defaults), Same(patch))


@lru_cache(256)
def _overlay(under: Same[PolicyConfig], over: Same[PolicyConfig]) -> PolicyConfig:
    defaults, patch = under.value, over.value
    changes = {key: getattr(patch, key) for key in patch.model_fields_set - {"match", "summary"}}
    summary = {key: getattr(patch.summary, key) for key in patch.summary.model_fields_set}
    changes["summary"] = defaults.summary.model_copy(update=summary)
    changes["tidy"] = patch.tidy.over(defaults.tidy)
    return defaults.model_copy(update=changes)


def with_window(settings: PolicyConfig, tokens: int) -> PolicyConfig:
    """The settings with this context window; the same object each time."""
    return _with_window(Same(settings), tokens)


@lru_cache(256)
def _with_window(settings: Same[PolicyConfig], tokens: int) -> PolicyConfig:
    return settings.value.model_copy(update={"context_window": tokens})
