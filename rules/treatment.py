"""How one tool's results are treated, and what says so.

Law: plain values, hashable; two treatments that are equal lead to the same text.
"""

from dataclasses import dataclass
from enum import StrEnum

MAX_NAME_CHARS = 256
"""A longer name is no tool's, and matches nothing. Names of upstreams have at most 64."""
ERROR_FACTOR = 2
"""Of its budget, what an error gets: it is what the model must act upon."""


@dataclass(frozen=True, slots=True)
class Tidying:
    """Which clean-ups are on."""

    ansi: bool = True
    """ANSI, VT and OSC escape sequences."""
    progress: bool = True
    """Progress that a terminal paints over itself with carriage returns: its last state."""
    json: bool = True
    """JSON without white space between its values."""
    tables: bool = True
    """Arrays of objects with the same keys as a header and rows."""


class Truncation(StrEnum):
    """What a long result keeps."""

    SALIENT = "salient"
    HEAD_TAIL = "head_tail"


@dataclass(frozen=True, slots=True)
class Budget:
    """What one tool result may cost: `max_tokens`, and `max_bytes` of UTF-8 where set."""

    max_tokens: int
    max_bytes: int | None = None

    def for_error(self) -> "Budget":
        """What an error may cost."""
        max_bytes = None if self.max_bytes is None else self.max_bytes * ERROR_FACTOR
        return Budget(self.max_tokens * ERROR_FACTOR, max_bytes)


@dataclass(frozen=True, slots=True)
class Treatment:
    """What becomes of one tool's results.

    An exempt result is neither tidied nor truncated nor deduplicated. Results are exempt all, or those of calls with
    an argument that one of the globs `exempt_arguments` matches (see tools/arguments.py).
    """

    budget: Budget
    truncation: Truncation = Truncation.SALIENT
    tidying: Tidying | None = None
    dedupe: bool = True
    is_exempt: bool = False
    exempt_arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolRule:
    """The treatment of the tools whose name the glob `match` matches."""

    match: str
    treatment: Treatment
