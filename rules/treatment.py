"""The settings for the results of one tool.

Law: plain, hashable values; equal treatments produce the same text from the same result.
"""

from dataclasses import dataclass
from enum import StrEnum

MAX_NAME_CHARS = 256
"""A longer tool name matches no glob: this bounds the time of a match. Chosen: upstreams allow at most 64."""
ERROR_FACTOR = 2
"""An error result may have this many times the budget. Chosen: the model must act on it."""


@dataclass(frozen=True, slots=True)
class Tidying:
    """The clean-ups of tool results that are on."""

    ansi: bool = True
    """Remove ANSI, VT and OSC escape sequences."""
    progress: bool = True
    """Keep only the last state of progress lines that overwrite themselves with carriage returns."""
    json: bool = True
    """Remove white space between JSON values."""
    tables: bool = True
    """Write arrays of objects with the same keys as a table: a header and rows."""


class Truncation(StrEnum):
    """How a long result is shortened: to the lines that matter in a text of its kind, or to head and tail."""

    SALIENT = "salient"
    HEAD_TAIL = "head_tail"


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that one tool result may have: `max_tokens`, and `max_bytes` of UTF-8 unless None."""

    max_tokens: int
    max_bytes: int | None = None

    def for_error(self) -> "Budget":
        """The budget of an error result: ERROR_FACTOR times this one."""
        max_bytes = None if self.max_bytes is None else self.max_bytes * ERROR_FACTOR
        return Budget(self.max_tokens * ERROR_FACTOR, max_bytes)


@dataclass(frozen=True, slots=True)
class Treatment:
    """How the results of one tool are treated.

    An exempt result is not tidied, truncated or deduplicated. `is_exempt` exempts all results of the tool.
    `exempt_arguments` are globs: the result of a call is exempt if one of them matches an argument of the call (see
    rules/results/calls.py).
    """

    budget: Budget
    truncation: Truncation = Truncation.SALIENT
    tidying: Tidying | None = None
    dedupe: bool = True
    is_exempt: bool = False
    exempt_arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolRule:
    """The treatment of all tools with a name that the glob `match` matches."""

    match: str
    treatment: Treatment
