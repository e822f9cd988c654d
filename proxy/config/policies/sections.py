"""The configuration's keys for the sections of a prompt, and for retrieved memory.

Law: every key has a default.
"""

from typing import Annotated, Self

from pydantic import Field, model_validator

from proxy.config.policies.tools import Section
from proxy.config.values import require
from proxy.config.words import Wanted
from rules.policy import MEMORY_TAGS, SectionShares

MAX_SUM = 1.0 + 1e-9
"""The shares together; a little above 1, because a sum of decimal fractions is not exact."""
MAX_TAG_CHARS = 64
"""Chosen: far longer than real tags."""
Tag = Annotated[
    str,
    Field(pattern=rf"^[A-Za-z_][A-Za-z0-9_.:-]{{0,{MAX_TAG_CHARS - 1}}}$"),
    Wanted("the name of an XML tag, without < and >"),
]
_DEFAULT = SectionShares()


class SectionsConfig(Section):
    """The share of the limit that each section of a prompt may have. Shares that are not used go to recent."""

    system: float = Field(
        _DEFAULT.system, ge=0, le=1, description="System messages at the beginning, tools and response format."
    )
    summary: float = Field(_DEFAULT.summary, ge=0, le=1, description="The summary of what was cut.")
    memory: float = Field(_DEFAULT.memory, ge=0, le=1, description="Retrieved memory, see memory.tags.")
    recent: float = Field(_DEFAULT.recent, ge=0, le=1, description="All other messages.")
    current: float = Field(_DEFAULT.current, ge=0, le=1, description="The last user message.")

    @model_validator(mode="after")
    def _check_sum(self) -> Self:
        total = self.system + self.summary + self.memory + self.recent + self.current
        require(total <= MAX_SUM, f"must be at most 1 together, and are {total:.2f}")
        return self

    def to_shares(self) -> SectionShares:
        """The value that the rules need."""
        return SectionShares(self.system, self.summary, self.memory, self.recent, self.current)


class MemoryConfig(Section):
    """How retrieved memory is recognised."""

    tags: tuple[Tag, ...] = Field(
        MEMORY_TAGS,
        examples=[["relevant_context", "memories"]],
        description="Names of tags. Text of user and system messages from <TAG> to </TAG> is retrieved memory. At "
        "high water it is dropped first, the oldest first. An empty list: no text is memory.",
    )
